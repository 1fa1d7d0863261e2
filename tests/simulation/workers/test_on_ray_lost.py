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
