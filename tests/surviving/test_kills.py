"""SIGKILL at any moment, and then on: weights, history and costs are those of a run that nothing happened to."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

import numpy as np
import pytest
from safetensors import safe_open

import polyrhythm as pr
from polyrhythm.runs.database import read_records

from . import ground, scenarios

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="runs to be killed are forked")
IN_FILES = {step for step in ground.STEPS if "client" in step} | {"before it is on the disk", "half of it written"}
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


@pytest.fixture(scope="module")
def killing() -> Iterator[Ground]:
    place = Ground()
    yield place
    place.close()


def record(out: Path) -> dict[str, Any]:
    """All of a run's record that no clock decides."""
    (run,) = pr.runs.all_runs(out)
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


def survive(place: Ground, folder: Path, kills: int, seed: int) -> dict[str, int]:
    """So many kills, spread over the scenarios; gives how often a run had to go on, by scenario."""
    random, tally = np.random.default_rng(seed), dict.fromkeys(scenarios.MAKE, 0)
    names = itertools.cycle(scenarios.MAKE)
    for number in itertools.count():
        name = next(names)
        said, whole = place.run(name, folder / f"{number} whole", every="never")
        assert said == "ended", said
        for moment in (*random.uniform(0, 2 * whole, min(2, kills - sum(tally.values()))).tolist(), None):
            said, _ = place.run(name, folder / f"{number} killed", kill_after=moment)
            if said == "ended":
                break
            assert said in ("", "begun"), said
            tally[name] += 1
        assert_equal(record(folder / f"{number} killed"), record(folder / f"{number} whole"))
        if sum(tally.values()) == kills:
            return tally
    raise AssertionError("no end")


def test_25_kills_change_nothing(killing: Ground, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tally = survive(killing, tmp_path, 25, 0)
    with capsys.disabled():
        print(f"\n{sum(tally.values())} kills: {tally}")


@pytest.mark.slow
def test_200_kills_change_nothing(killing: Ground, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tally = survive(killing, tmp_path, 200, 1)
    with capsys.disabled():
        print(f"\n{sum(tally.values())} kills: {tally}")


@pytest.mark.parametrize("step", ground.STEPS)
def test_a_kill_while_a_checkpoint_is_written_changes_nothing(killing: Ground, tmp_path: Path, step: str) -> None:
    name = "remembered in files" if step in IN_FILES else "rolling, coming and going"
    for call in (5, 12):
        said, _ = killing.run(name, tmp_path / f"{call}", step=step, call=call)
        assert said == "begun", said
        assert killing.run(name, tmp_path / f"{call}")[0] == "ended"
    assert killing.run(name, tmp_path / "whole", every="never")[0] == "ended"
    for call in (5, 12):
        assert_equal(record(tmp_path / f"{call}"), record(tmp_path / "whole"))
