"""Sweeps that run: the same trials and choice for any number of workers, and however often they are stopped."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import polyrhythm as pr
from polyrhythm import figures
from polyrhythm.results import Run
from polyrhythm.studies.searches import Range, Side, Sweep, Swept
from polyrhythm.studies.searches.performing import Job
from polyrhythm.studies.searches.space import Setting
from polyrhythm.studies.searches.sweeping import judged
from polyrhythm.studies.searches.trials import Record, Trial
from small import federation
from sweep_makers import made, stumbling

needs_optuna = pytest.mark.skipif(importlib.util.find_spec("optuna") is None, reason="Optuna is not installed")
RATES = {"lr": (0.001, 0.5, 0.1)}


def sweep(**changes: Any) -> Sweep:
    values: dict[str, Any] = {"name": "s", "sides": {"": Side(make=made, space=RATES)}}
    return Sweep(**values | changes)


class Stops:
    """Ctrl-C once so many versions were made."""

    def __init__(self, after: int) -> None:
        self.left = after
        self.begun: list[str] = []

    def begin(self, record: Record, sweep: Sweep) -> None: ...

    def version(self, job: Job, version: int, rounds: int | None, score: float | None) -> None:
        self.begun.append(f"{job.name}:{job.seed}:{version}")
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt

    def over(self, trial: Trial) -> None: ...

    def end(self) -> None: ...


def outcome(found: Swept) -> list[dict[str, Any]]:
    """All that does not depend on when it was run."""
    return [{k: v for k, v in row.items() if k != "runs"} for row in found.rows()]


def test_trials_are_runs_and_the_best_on_validation_is_chosen(tmp_path: Path) -> None:
    found = pr.sweep(sweep(seeds=(0, 1)), out=tmp_path, workers=1)
    runs = {(run.name, run.seed): run for run in Run.all(tmp_path)}
    assert set(runs) == {(f"s/{n}", seed) for n in (1, 2, 3) for seed in (0, 1)}
    for trial in found.trials:
        history = [runs[f"s/{trial.number}", seed].history["validation_accuracy"].iloc[-1] for seed in (0, 1)]
        assert trial.score == pytest.approx(sum(history) / 2)
        assert list(trial.runs.values()) == [runs[f"s/{trial.number}", seed].id for seed in (0, 1)]
    chosen = found.best()
    assert chosen is not None
    assert chosen.score == max(trial.score or 0 for trial in found.trials)
    assert outcome(Swept.open("s", tmp_path)) == outcome(found)
    assert list(found.table()["lr"]) == [0.001, 0.5, 0.1]


def test_a_finished_sweep_runs_nothing_again_and_may_be_made_longer(tmp_path: Path) -> None:
    space = {"lr": Range(low=0.01, high=1.0, log=True)}
    short = sweep(sides={"": Side(make=made, space=space)}, search="random", trials=2)
    first = outcome(pr.sweep(short, out=tmp_path, workers=1))
    assert outcome(pr.sweep(short, out=tmp_path, workers=1)) == first
    assert len(Run.all(tmp_path)) == 2
    longer = pr.sweep(replace(short, trials=3), out=tmp_path, workers=1)
    assert outcome(longer)[:2] == first
    assert len(Run.all(tmp_path)) == 3


def test_another_sweep_of_that_name_is_refused(tmp_path: Path) -> None:
    pr.sweep(sweep(), out=tmp_path, workers=1)
    with pytest.raises(pr.UserError, match=r"another sweep 's': they differ in seeds, sides\.\.space\.lr"):
        pr.sweep(sweep(seeds=(3,), sides={"": Side(make=made, space={"lr": (0.2, 0.3)})}), out=tmp_path, workers=1)


@needs_optuna
@pytest.mark.parametrize("stop", [1, 7, 16])
def test_a_stopped_sweep_goes_on_to_the_same_trials(tmp_path: Path, stop: int) -> None:
    space = {"lr": Range(low=0.001, high=1.0, log=True), "epochs": Range(low=1, high=3)}
    whole = sweep(sides={"": Side(make=made, space=space)}, search="tpe", trials=5, batch=2, fresh=(5,), prune=2)
    undisturbed = pr.sweep(whole, out=tmp_path / "a", workers=1)
    stops = Stops(stop)
    with pytest.raises(KeyboardInterrupt):
        pr.sweep(whole, out=tmp_path / "b", workers=1, listener=stops)
    rest = Stops(10**9)
    resumed = pr.sweep(whole, out=tmp_path / "b", workers=1, listener=rest)
    assert outcome(resumed) == outcome(undisturbed)
    assert [run.summary["digest"] for run in resumed.chosen("")] == [
        run.summary["digest"] for run in undisturbed.chosen("")
    ]
    # Nothing was made twice but what the run under way had made since its last checkpoint.
    twice = set(stops.begun) & set(rest.begun)
    assert len(twice) <= 2


@needs_optuna
def test_workers_change_nothing(tmp_path: Path) -> None:
    space = {"lr": Range(low=0.001, high=1.0, log=True)}
    sides = {name: Side(make=made, space=space) for name in ("one", "two")}
    whole = sweep(sides=sides, search="tpe", trials=4, batch=2, seeds=(0, 1), fresh=(5,), prune=2)
    found = [outcome(pr.sweep(whole, out=tmp_path / str(n), workers=n)) for n in (1, 2)]
    assert found[0] == found[1]
    digests = [{(run.name, run.seed): run.summary["digest"] for run in Run.all(tmp_path / str(n))} for n in (1, 2)]
    assert digests[0] == digests[1]


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced_and_a_trial_that_kills_them_has_failed(tmp_path: Path) -> None:
    folder = tmp_path / "fuses"
    folder.mkdir()
    for name in ("0.1-0", "0.5-0", "0.5-1"):
        (folder / name).write_text("")
    listed = tuple({"lr": lr, "folder": str(folder)} for lr in (0.1, 0.5, 0.2))
    stumbles = sweep(sides={"": Side(make=stumbling, settings=listed)}, search="list")
    # Looking at the settings beforehand would kill this process.
    from polyrhythm.studies.searches.sweeping import carry_out
    from polyrhythm.trackers import Tracking

    found = carry_out(stumbles, tmp_path / "out", 2, Tracking(), None, {})
    assert [trial.state for trial in found.trials] == ["finished", "failed", "finished"]
    assert "2 processes died in it (signal 9)" in found.trials[1].reason
    again = carry_out(stumbles, tmp_path / "out", 1, Tracking(), None, {})
    assert [trial.state for trial in again.trials] == ["finished"] * 3


def test_a_trial_that_diverges_has_failed_and_the_others_go_on(tmp_path: Path) -> None:
    space = {"lr": (1e38, 0.1)}
    found = pr.sweep(sweep(sides={"": Side(make=made, space=space)}), out=tmp_path, workers=1)
    assert [trial.state for trial in found.trials] == ["failed", "finished"]
    assert "(seed 0)" in found.trials[0].reason
    assert found.best().number == 2  # type: ignore[union-attr]


def test_runs_that_are_behind_are_stopped_by_earlier_batches(tmp_path: Path) -> None:
    space = {"lr": (0.2, 0.3, 0.4, 1e-9)}
    whole = sweep(sides={"": Side(make=made, space=space)}, prune=1, batch=3, seeds=(0, 1))
    found = pr.sweep(whole, out=tmp_path, workers=1)
    assert [trial.state for trial in found.trials] == ["finished"] * 3 + ["pruned"]
    last = found.trials[3]
    assert last.reason.startswith("pruned: accuracy ")
    assert len(last.runs) == 1
    (run,) = pr.Run.find("s/4", tmp_path)
    assert run.status == "stopped"
    assert run.history.index[-1] < 4


def test_each_side_has_its_best_and_they_are_compared_over_fresh_seeds(tmp_path: Path) -> None:
    sides = {"slow": Side(make=made, space={"lr": (1e-4, 1e-3)}), "quick": Side(make=made, space={"lr": (0.1, 0.5)})}
    found = pr.sweep(sweep(sides=sides, fresh=(7, 8)), out=tmp_path, workers=1)
    table = found.comparison().results()
    assert [(entry["method"], entry["seeds"]) for entry in table] == [("s/slow/best", [7, 8]), ("s/quick/best", [7, 8])]
    assert table[1]["final_accuracy"]["mean"] > table[0]["final_accuracy"]["mean"]


def untouched(setting: Setting, seed: int) -> pr.Experiment:
    return made(setting, seed, federation=federation())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sides": {"": Side(make=untouched, space=RATES)}}, "without validation data"),
        ({"sides": {"": Side(make=made, space={"lr": (0.1, -1.0)})}}, r"lr = -1\.0: .*lr = -1"),
        ({"search": "random"}, "without trials"),
        ({"trials": 3}, "and 3 trials"),
        ({"search": "random", "trials": 4}, "4 trials of a space with 3 settings"),
        ({"fresh": (0,)}, "seeds that the trials use"),
        ({"name": "a/b"}, "the name 'a/b'"),
        ({"sides": {"": Side(make=made, space={"lr": Range(low=0.1, high=1.0)})}}, "a range in a grid"),
        (
            {"sides": {"a": Side(make=made, space=RATES), "b": Side(make=made, space={"lr": (0.1,)})}},
            "3 trials for a and 1 trials for b",
        ),
        ({"search": "list"}, "0 listed settings and 1 keys"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(pr.UserError, match=words):
        pr.sweep(sweep(**changes), out=tmp_path / "out", workers=1)
    assert not (tmp_path / "out").exists()


def test_the_part_of_the_same_name_is_named() -> None:
    with pytest.raises(pr.UserError, match=r"pr\.parts\.sweep\(\)"):
        pr.sweep()


def test_what_judges_a_run() -> None:
    history = [(0, 0.9), (1, 0.2), (2, 0.6), (3, 0.4)]
    assert judged(history, "final") == 0.4
    assert judged(history, "best") == 0.6
    assert judged(history, "last20") == pytest.approx(0.4)
    assert judged([(0, 0.9)], "final") is None


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_picture_has_a_line_for_each_trial(tmp_path: Path, theme: Any) -> None:
    space = {"lr": (0.001, 0.1), "epochs": (1, 2)}
    found = pr.sweep(sweep(sides={"": Side(make=made, space=space)}), out=tmp_path, workers=1)
    drawn = json.dumps(found.plot(theme=theme).to_dict())
    assert drawn.count('"trial": 4,') == 3  # two keys and the score
    figures.save(found.plot(theme=theme), tmp_path / "trials.svg")
    assert "validation accuracy" in (tmp_path / "trials.svg").read_text()
