"""Studies that go on after something has changed: a full disk, other trials, another grid, runs that were deleted."""

from __future__ import annotations

import importlib.util
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import polyrhythm as pr
from polyrhythm.base.errors import RunFailed, UserError
from polyrhythm.results import Run
from polyrhythm.studies import Range, Search, Study, planned
from polyrhythm.studies.files.reading import read
from polyrhythm.studies.running import performing, searching
from polyrhythm.studies.running.trials import Trial
from study_makers import made

needs_optuna = pytest.mark.skipif(importlib.util.find_spec("optuna") is None, reason="Optuna is not installed")
SWEEP = """data = "digits"
clients = 4
model = "logistic"
rounds = 1
validation = 0.2
[sweep.space]
method.lr = [0.1, 0.2]
"""
WITH_EXPERT = """data = "digits"
clients = 4
model = "logistic"
rounds = 1
[rows.A]
method = "fedavg(cohort=2)"
[expert_training]
epochs = 1
"""


def test_a_trial_that_the_machine_hindered_is_made_again_and_none_is_chosen_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    what = Study(name="s", rows={"": made}, search=Search(space={"lr": (0.001, 0.5)}))
    carried_out, calls = performing.Launch.carry_out, list[int]()

    def once_full(launch: performing.Launch, watches: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise RunFailed("the run database could not be written") from sqlite3.OperationalError("disk is full")
        return carried_out(launch, watches)

    monkeypatch.setattr(performing.Launch, "carry_out", once_full)
    with pytest.raises(RunFailed, match=r"s, trial 2, could not be made: .*The same command goes on with it"):
        pr.study(what, out=tmp_path, workers=1)
    found = pr.study(what, out=tmp_path, workers=1)
    assert [trial.state for trial in found.trials] == ["finished"] * 2
    assert found.best().number == 2


def test_fewer_trials_than_there_are_count_alone(tmp_path: Path) -> None:
    def of(trials: int) -> Study:
        space = {"lr": Range(low=0.001, high=0.5, log=True)}
        return Study(name="s", rows={"": made}, search=Search(kind="random", trials=trials, space=space))

    many = pr.study(of(4), out=tmp_path, workers=1)
    few = pr.study(of(2), out=tmp_path, workers=1)
    assert few.trials == many.trials[:2]
    assert few.finished
    again = pr.study(of(4), out=tmp_path, workers=1)
    assert again.trials == many.trials
    assert len(Run.all(tmp_path)) == 4


@needs_optuna
def test_no_more_trials_are_chosen_than_are_asked_for() -> None:
    arm = planned(
        Study(name="s", rows={"": made}, search=Search(kind="tpe", trials=6, space={"lr": Range(low=0.1, high=1.0)}))
    ).arms[""]
    before = [Trial(arm="", number=n, setting={"lr": 0.1 * n}, state="finished", score=0.5) for n in range(1, 9)]
    assert searching.next_batch(arm, before) == []


def test_a_trial_whose_run_was_deleted_is_made_again(tmp_path: Path) -> None:
    what = Study(name="s", rows={"": made}, search=Search(space={"lr": (0.001, 0.5)}))
    first = pr.study(what, out=tmp_path, workers=1)
    Run.open(first.trials[1].runs[0], tmp_path).delete()
    again = pr.study(what, out=tmp_path, workers=1)
    assert [trial.score for trial in again.trials] == [trial.score for trial in first.trials]
    assert again.trials[1].runs != first.trials[1].runs


def test_what_there_is_so_far_of_another_search_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(SWEEP)
    pr.study(file, out=tmp_path, workers=1)
    file.write_text(SWEEP.replace("[0.1, 0.2]", "[0.3, 0.4]"))
    with pytest.raises(UserError, match="is of another study"):
        pr.study(file, out=tmp_path, so_far=True)


def test_an_expert_is_not_trained_for_what_there_is_so_far(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(WITH_EXPERT)
    with pytest.raises(UserError, match="nothing has been made of own"):
        pr.study(planned(read(file)), out=tmp_path / "runs", so_far=True)
    assert not [*tmp_path.rglob("*.safetensors")]
