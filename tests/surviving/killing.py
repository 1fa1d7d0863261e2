"""The test's end of the killing ground, and what is compared of the records that come from it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, final

from safetensors import safe_open

import polyrhythm as pr
from polyrhythm.runs.database import read_records

UNLIKE = {"wall", "wall_seconds", "run_id", "driver", "workers"}  # what may differ


@final
class Ground:
    """The test's end of the killing ground."""

    def __init__(self) -> None:
        tests = Path(__file__).parents[1]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tests), os.environ["PYTHONPATH"]])}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "surviving.ground"],
            **{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment},
        )
        assert self._heard() == "ready"

    def _heard(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def run(
        self, scenario: str, out: Path, *, every: int | str = 1, kill_after: float | None = None, **job: Any
    ) -> tuple[str, float]:
        """Lets a child begin or go on with a scenario.

        Args:
            scenario: its name.
            out: the folder of the record.
            every: versions between checkpoints.
            kill_after: seconds after it has begun.
            job: where it kills itself.

        Returns:
            The last that it said: nothing, "begun", "ended" or what went wrong; and the seconds after it had begun.
        """
        assert self._process.stdin is not None
        job |= {"scenario": scenario, "out": str(out), "every": every}
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        child, said, begun = int(self._heard()), "", time.monotonic()
        while (word := self._heard()) != "gone":
            said = word
            if word == "begun":
                begun = time.monotonic()
                if kill_after is not None:
                    time.sleep(kill_after)
                    os.kill(child, signal.SIGKILL)
        return said, time.monotonic() - begun

    def close(self) -> None:
        self._process.communicate()


def record(out: Path, run_id: str = "") -> dict[str, Any]:
    """All of a run's record that no clock decides; of the only one if none is named."""
    (run,) = [run for run in pr.Run.all(out) if run_id in ("", run.id)]
    assert run.status == "finished", run.reason
    files = {}
    for which in ("best", "final"):
        with safe_open(run.path / f"{which}.safetensors", "pt") as file:
            about = {key: value for key, value in file.metadata().items() if key not in UNLIKE}
            files[which] = about, {name: file.get_tensor(name).tolist() for name in file.keys()}  # noqa: SIM118
    return {
        "summary": {key: value for key, value in run.summary.items() if key not in UNLIKE},
        "versions": [{k: v for k, v in row.items() if k not in UNLIKE} for row in run.versions],
        "visits": read_records(out, "visits", run.number),
        "answers": read_records(out, "answers", run.number),
        "events": read_records(out, "events", run.number),
        "files": files,
    }


def assert_equal(one: dict[str, Any], other: dict[str, Any]) -> None:
    for name in one:
        assert one[name] == other[name], name
