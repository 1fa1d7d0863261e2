"""`polyrhythm resume` and `run --resume auto`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import polyrhythm as pr
from polyrhythm.results import Run
from small import experiment
from terminal import Command

QUICK = ("--model", "logistic", "--method", "scaffold(cohort=3)", "--set", "checkpoint.every=1")


def killed(out: Path, rounds: int, *more: str) -> Run:
    """A run of its own process that was killed when it had made a few versions."""
    code = "import sys; from polyrhythm.cli import main; main()"
    arguments = ["run", *QUICK, "--rounds", str(rounds), "--out", str(out), "--name", "mine", *more]
    process = subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (list(out.glob("*/checkpoint-*3.safetensors"))):
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    (run,) = Run.all(out)
    assert run.status == "killed"
    return run


UNLIKE = ("run_id", "wall_seconds", "notices")


def outcome(line: str) -> dict[str, Any]:
    return {key: value for key, value in json.loads(line).items() if key not in UNLIKE}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there a killed run cannot be told from one that goes on")
def test_a_killed_run_goes_on_by_name_and_by_auto(polyrhythm: Command, tmp_path: Path) -> None:
    rounds = 400
    whole = polyrhythm("run", *QUICK, "--rounds", str(rounds), "--out", str(tmp_path / "whole"), "--json").out
    run = killed(tmp_path / "one", rounds)
    found = polyrhythm("resume", "mine", "--out", str(tmp_path / "one"), "--json")
    assert found.code == 0, found.err
    assert "note: the run went on from its checkpoint of version" in found.err
    assert json.loads(found.out)["run_id"] == run.id
    assert outcome(found.out) == outcome(whole)
    run = killed(tmp_path / "two", rounds)
    again = ("run", *QUICK, "--rounds", str(rounds), "--out", str(tmp_path / "two"), "--resume", "auto", "--json")
    found = polyrhythm(*again)
    assert json.loads(found.out)["run_id"] == run.id
    assert outcome(found.out) == outcome(whole)
    done = polyrhythm(*again)
    assert "has finished already" in done.err
    assert done.out == found.out
    assert len(Run.all(tmp_path / "two")) == 1


def test_a_finished_run_goes_on_to_more_rounds(polyrhythm: Command, tmp_path: Path) -> None:
    one, other = ("--out", str(tmp_path / "one")), ("--out", str(tmp_path / "other"))
    polyrhythm("run", *QUICK, "--rounds", "4", *one, "--name", "mine")
    assert "has finished already" in polyrhythm("resume", "mine", *one).out
    found = polyrhythm("resume", "mine", "--rounds", "7", *one, "--json")
    assert outcome(found.out) == outcome(polyrhythm("run", *QUICK, "--rounds", "7", *other, "--json").out)
    assert len(list((tmp_path / "one").glob("*/checkpoint-*"))) == 2  # as it was asked for when it was started
    fewer = polyrhythm("resume", "mine", "--rounds", "3", *one)
    assert fewer.code == 2
    assert "3 rounds for" in fewer.err


def test_a_run_whose_parts_read_the_number_of_rounds_does_not(polyrhythm: Command, tmp_path: Path) -> None:
    out = ("--out", str(tmp_path))
    polyrhythm("run", "--model", "logistic", "--method", "fedavg | cosine", "--rounds", "2", *out, "--name", "mine")
    found = polyrhythm("resume", "mine", "--rounds", "4", *out)
    assert found.code == 2
    assert "cosine spreads over all rounds" in found.err


def test_the_engine_that_computed_computes_again(polyrhythm: Command, tmp_path: Path) -> None:
    out = ("--out", str(tmp_path))
    polyrhythm("run", *QUICK, "--rounds", "2", "--engine", "auto", *out, "--name", "mine")
    computed_by = Run.open("mine", tmp_path).machine["computed_by"]
    assert polyrhythm("resume", "mine", "--rounds", "3", *out).code == 0
    assert Run.open("mine", tmp_path).config == {**Run.open("mine", tmp_path).config, "rounds": 3}
    assert Run.open("mine", tmp_path).machine["computed_by"] == computed_by


def test_what_was_started_from_python_goes_on_there(polyrhythm: Command, tmp_path: Path) -> None:
    run = pr.run(experiment(), out=tmp_path)
    found = polyrhythm("resume", run.id, "--rounds", "5", "--out", str(tmp_path))
    assert found.code == 2
    assert "pr.resume(experiment, run)" in found.err


def test_a_damaged_run_says_what_it_does(polyrhythm: Command, tmp_path: Path) -> None:
    out = ("--out", str(tmp_path))
    polyrhythm("run", *QUICK, "--rounds", "4", *out, "--name", "mine")
    for path in Run.open("mine", tmp_path).path.glob("checkpoint-*"):
        path.write_bytes(path.read_bytes()[:100])
    found = polyrhythm("resume", "mine", "--rounds", "5", *out, "--json")
    assert found.code == 0
    assert found.err.count("is damaged") == 2
    assert "begins anew" in found.err


@pytest.mark.parametrize("setting", ["checkpoint.every=0", "checkpoint.every=sometimes", "checkpoint.keep=0"])
def test_bad_settings_are_explained(polyrhythm: Command, tmp_path: Path, setting: str) -> None:
    found = polyrhythm("run", "--set", setting, "--out", str(tmp_path))
    assert found.code == 2
    assert "checkpoint" in found.err
    assert not list(tmp_path.iterdir())
