"""SIGKILL at any moment, and then on: weights, history and costs are those of a run that nothing happened to."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import numpy as np
import pytest

from . import ground, scenarios
from .killing import Ground, assert_equal, record

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="runs to be killed are forked")
IN_FILES = {step for step in ground.STEPS if "client" in step} | {"before it is on the disk", "half of it written"}


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


def test_8_kills_change_nothing(killing: Ground, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tally = survive(killing, tmp_path, 8, 0)
    with capsys.disabled():
        print(f"\n{sum(tally.values())} kills: {tally}")


@pytest.mark.slow
def test_200_kills_change_nothing(killing: Ground, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tally = survive(killing, tmp_path, 200, 1)
    with capsys.disabled():
        print(f"\n{sum(tally.values())} kills: {tally}")


QUICK = {"half of it written", "before the rows are durable", "when a client's vector is written"}


@pytest.mark.parametrize("step", [pytest.param(s, marks=[pytest.mark.slow] * (s not in QUICK)) for s in ground.STEPS])
def test_a_kill_while_a_checkpoint_is_written_changes_nothing(killing: Ground, tmp_path: Path, step: str) -> None:
    name = "remembered in files" if step in IN_FILES else "rolling, coming and going"
    for call in (5, 12):
        said, _ = killing.run(name, tmp_path / f"{call}", step=step, call=call)
        assert said == "begun", said
        assert killing.run(name, tmp_path / f"{call}")[0] == "ended"
    assert killing.run(name, tmp_path / "whole", every="never")[0] == "ended"
    for call in (5, 12):
        assert_equal(record(tmp_path / f"{call}"), record(tmp_path / "whole"))
