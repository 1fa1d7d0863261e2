"""A cluster of the run's own that is lost ends the run in words, and it goes on from its record."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from polyrhythm.results import Run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: the extra [ray]"),
]
SCRIPT = """
import os, signal, sys, threading, time
from polyrhythm.cli.app import app

def end():
    import ray
    while not (ray.is_initialized() and any(p.stat().st_size for p in out.glob("*/checkpoint-*"))):
        time.sleep(0.05)
    for kind, process in ray._private.worker._global_node.live_processes():
        if kind == sys.argv[1]:
            os.kill(process.pid, signal.SIGKILL)

from pathlib import Path
out = Path(sys.argv[2])
threading.Thread(target=end, daemon=True).start()
app(["run", "--clients", "6", "--model", "logistic", "--method", "fedavg(cohort=2)", "--rounds", "100000",
     "--driver", "ray", "--workers", "2", "--set", "checkpoint.every=1", "--out", str(out), "--json"])
"""


@pytest.mark.parametrize("process", ["raylet"])
def test_a_cluster_of_its_own_that_is_lost_ends_the_run_in_words(tmp_path: Path, process: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, process, str(tmp_path)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 1, done.stderr[-2000:]
    assert "has lost its raylet" in done.stderr
    assert "Traceback" not in done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    (run,) = Run.all(tmp_path)
    assert (run.status, told["status"]) == ("failed", "failed")
    assert "has lost its raylet" in run.reason
    assert run.missing == ()


MEASURING = """
import os, signal, sys, time
from pathlib import Path
import torch
import polyrhythm as pr

HERE, out = os.getpid(), Path(sys.argv[1])

class Slow(torch.nn.Module):
    "Measured for half a minute, after the raylet has been killed."

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(64, 10)

    def forward(self, inputs):
        if os.getpid() == HERE and not self.training and any(p.stat().st_size for p in out.glob("*/checkpoint-*")):
            import ray
            for kind, process in ray._private.worker._global_node.live_processes() if ray.is_initialized() else ():
                if kind == "raylet":
                    os.kill(process.pid, signal.SIGKILL)
                    time.sleep(30)
        return self.inner(inputs.flatten(1))

federation = pr.federate(pr.data.digits(), pr.data.Iid(), clients=6, seed=0)
experiment = pr.Experiment(federation=federation, model=Slow(), recipe=pr.fedavg(cohort=2), rounds=40)
execution = pr.Execution(driver="ray", workers=2, engine="torch", checkpoint=pr.Checkpoint(every=1))
try:
    pr.run(experiment, execution=execution, out=out)
except pr.RunFailed as error:
    print(error)
    sys.exit(7)
"""


def test_a_cluster_that_is_lost_while_a_model_is_measured_ends_the_run_in_words(tmp_path: Path) -> None:
    """Ray may end a process that has lost its raylet for 15 s, without a word."""
    file = tmp_path / "measuring.py"
    file.write_text(MEASURING)
    done = subprocess.run(
        [sys.executable, str(file), str(tmp_path / "runs")], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 7, done.stdout[-1000:] + done.stderr[-2000:]
    assert "has lost its raylet" in done.stdout
    (run,) = Run.all(tmp_path / "runs")
    assert (run.status, run.missing) == ("failed", ())
    assert "has lost its raylet" in run.reason
