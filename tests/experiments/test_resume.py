"""Runs that go on: from where, as what, and when they may not."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import polyrhythm as pr
import small
from polyrhythm.experiments.experiment import Evaluation, Until
from polyrhythm.experiments.prepared import Prepared
from polyrhythm.runs import VersionRecord, VisitRecord, checkpointing, run_lock
from polyrhythm.runs.checkpoints import checkpoints, version_of
from small import Log, collection, dealt, prepared

OFTEN = pr.Checkpoint(every=1, keep=3)


def trial(**changes: Any) -> Prepared:
    values: dict[str, Any] = {
        "rounds": 6,
        "recipe": pr.scaffold(cohort=2, epochs=1, batch=5),
        "evaluation": Evaluation(every=4),
        "checkpoint": OFTEN,
    }
    return prepared(**values | changes)


def broken_off(out: Path, after: int, made: Prepared | None = None) -> pr.Run:
    """A run that failed once it had made a version."""

    def fail(record: VisitRecord | VersionRecord) -> None:
        if isinstance(record, VisitRecord) and record.version == after:
            raise OSError("the power went")

    with contextlib.suppress(OSError):
        small.run(made or trial(), out=out, observers=[Log(fail)])
    (run,) = pr.Run.all(out)
    assert run.status == "failed"
    return run


def stops_at(version: int) -> Callable[[VisitRecord | VersionRecord], None]:
    """What Ctrl-C does at a visit to a version."""

    def stop(record: VisitRecord | VersionRecord) -> None:
        if isinstance(record, VisitRecord) and record.version == version:
            raise KeyboardInterrupt

    return stop


def same(one: pr.Run, other: pr.Run) -> None:
    """Asserts that two runs have made the same."""
    assert one.summary["digest"] == other.summary["digest"]
    assert one.history.drop(columns="wall").equals(other.history.drop(columns="wall"))
    assert one.visits.equals(other.visits)
    assert one.answers.equals(other.answers)
    unlike = {"run_id", "wall_seconds"}
    assert {k: v for k, v in one.summary.items() if k not in unlike} == {
        k: v for k, v in other.summary.items() if k not in unlike
    }
    for which in ("best", "final"):
        ones, others = one.weights(which), other.weights(which)  # type: ignore[arg-type]
        assert all(torch.equal(tensor, others[name]) for name, tensor in ones.items())


def test_a_broken_run_goes_on_under_its_id(tmp_path: Path) -> None:
    run = broken_off(tmp_path / "one", 3)
    found = small.resume(trial(), run.id[:-1], out=tmp_path / "one")
    assert (found.id, found.status, len(pr.Run.all(tmp_path / "one"))) == (run.id, "finished", 1)
    same(found, small.run(trial(), out=tmp_path / "other"))
    assert "from its checkpoint of version 3" in found.notices[-1]


def test_without_a_checkpoint_it_begins_anew(tmp_path: Path) -> None:
    never = trial(checkpoint=pr.Checkpoint(every="never"))
    run = broken_off(tmp_path / "one", 3, never)
    assert checkpoints(run.path) == []
    found = small.resume(never, run)
    same(found, small.run(never, out=tmp_path / "other"))
    assert "begins anew" in found.notices[-1]


def test_a_damaged_checkpoint_gives_way_with_a_word(tmp_path: Path) -> None:
    run = broken_off(tmp_path / "one", 4)
    newest, older = checkpoints(run.path)[:2]
    newest.write_bytes(newest.read_bytes()[:-40])
    found = small.resume(trial(), run)
    same(found, small.run(trial(), out=tmp_path / "other"))
    assert any(f"{newest.name} is damaged" in note for note in found.notices)
    assert f"of version {version_of(older)}" in found.notices[-1]


def test_it_can_break_off_again_and_again(tmp_path: Path) -> None:
    run = broken_off(tmp_path / "one", 1)
    for after in (2, 3, 5):
        log = Log(stops_at(after))
        assert small.resume(trial(), run, observers=[log]).status == "stopped"
    same(small.resume(trial(), run), small.run(trial(), out=tmp_path / "other"))


def test_a_run_that_stops_after_it_went_on_has_nothing_of_its_former_future(tmp_path: Path) -> None:
    made = trial(rounds=8, evaluation=Evaluation(every=1), checkpoint=pr.Checkpoint(every=2))
    run = broken_off(tmp_path, 5, made)
    assert len(run.history) == 6
    log = Log(stops_at(4))
    found = small.resume(made, run, observers=[log])
    assert found.status == "stopped"
    assert found.history.index.tolist() == [0, 1, 2, 3, 4]
    assert set(found.visits.index) <= set(range(9))
    best = found.history["test_accuracy"].idxmax()
    assert found.weights("best").keys() == found.weights("final").keys()
    assert found.summary["best_version"] == best


def test_what_has_finished_is_not_done_again(tmp_path: Path) -> None:
    run = small.run(trial(), out=tmp_path)
    with pytest.raises(pr.UserError, match="has finished"):
        small.resume(trial(), run)
    assert small.run(trial(), out=tmp_path, resume="auto").id == run.id
    assert small.run(trial(seed=1), out=tmp_path, resume="auto").id != run.id


def test_auto_goes_on_or_begins(tmp_path: Path) -> None:
    run = broken_off(tmp_path, 3)
    found = small.run(trial(), out=tmp_path, resume="auto")
    assert (found.id, found.status) == (run.id, "finished")
    assert small.run(trial(), out=tmp_path / "new", resume="auto").status == "finished"
    assert small.run(trial(), out=tmp_path).id != run.id


def test_a_run_that_is_going_on_is_left_alone(tmp_path: Path) -> None:
    run = broken_off(tmp_path, 3)
    with run_lock.hold(run.path) as mark:
        with pytest.raises(pr.UserError, match="is going on"):
            small.resume(trial(), run)
        run_lock.release(run.path, mark)
    assert run.history.index.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"recipe": pr.fedavg(cohort=2, epochs=1, batch=5)}, "method was"),
        ({"seed": 4}, "seed was 0 and is 4"),
        ({"evaluation": Evaluation(every=2)}, "evaluation was"),
        ({"until": Until(accuracy=0.9)}, "until was"),
        ({"rounds": 5}, "5 rounds"),
    ],
)
def test_another_experiment_is_refused(tmp_path: Path, changes: dict[str, Any], word: str) -> None:
    run = broken_off(tmp_path, 3)
    with pytest.raises(pr.UserError, match=word):
        small.resume(trial(**changes), run)
    assert run.status == "failed"
    assert len(run.history) == 4


def test_other_data_and_another_initial_model_are_refused(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = nn.Linear(4, 3)
    run = broken_off(tmp_path, 3, trial(model=net, federation=dealt(collection(), [15, 15, 15, 15])))
    for changes, word in (
        ({"model": net, "federation": dealt(collection(), [14, 16, 15, 15])}, "other data"),
        ({"model": nn.Linear(4, 3), "federation": dealt(collection(), [15, 15, 15, 15])}, "another initial model"),
    ):
        with pytest.raises(pr.UserError, match=word):
            small.resume(trial(**changes), run)


# More rounds.


@pytest.mark.parametrize("keep", [OFTEN, pr.Checkpoint(every="never"), pr.Checkpoint()])
@pytest.mark.parametrize(
    "recipe",
    [
        pr.scaffold(cohort=2, epochs=1, batch=5),
        pr.fedavg(epochs=1, batch=5)
        | pr.parts.rolling(concurrency=3)
        | pr.parts.buffer(size=2)
        | pr.parts.server_adam(lr=0.03),
        pr.ccfl(cohort=3, epochs=1, batch=5),
    ],
    ids=lambda recipe: recipe.title,
)
def test_a_finished_run_with_more_rounds_is_the_longer_run(
    tmp_path: Path, keep: pr.Checkpoint, recipe: pr.Recipe
) -> None:
    fleet = pr.Fleet(devices=pr.fleet.Tiers())
    short = trial(recipe=recipe, checkpoint=keep, fleet=fleet)
    run = small.run(short, out=tmp_path / "one")
    longer = dataclasses.replace(short, experiment=dataclasses.replace(short.experiment, rounds=11))
    found = small.resume(longer, run)
    same(found, small.run(longer, out=tmp_path / "other"))
    assert found.id == run.id
    assert found.config["rounds"] == 11
    if keep.wanted:
        assert "of version 5" in found.notices[-1]


@pytest.mark.parametrize(
    ("recipe", "word"),
    [
        (pr.alt(cohort=2, epochs=1, batch=5, representation="logits"), "stop_on_drift"),
        (pr.fedavg(cohort=2, epochs=1, batch=5) | pr.parts.cosine(), "cosine"),
        (pr.fedavg(cohort=2, epochs=1, batch=5) | pr.parts.client_curriculum(), "client_curriculum"),
    ],
)
def test_more_rounds_are_refused_where_their_number_is_read(tmp_path: Path, recipe: pr.Recipe, word: str) -> None:
    run = small.run(trial(recipe=recipe), out=tmp_path)
    with pytest.raises(pr.UserError, match=f"with {word}") as refused:
        small.resume(trial(recipe=recipe, rounds=9), run)
    assert "would have been others" in refused.value.why
    assert run.status == "finished"


# What goes wrong while one is written.


def test_a_full_disk_costs_the_checkpoint_and_not_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: object, **named: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(checkpointing, "store", full)
    run = small.run(trial(), out=tmp_path)
    assert run.status == "finished"
    assert "checkpoints could not be written (No space left on device)" in run.reason
    assert checkpoints(run.path) == []


def test_checkpoints_change_no_number(tmp_path: Path) -> None:
    runs = [
        small.run(trial(checkpoint=pr.Checkpoint(every=every)), out=tmp_path / str(every))
        for every in (1, 2, 5, "0 s", "never")
    ]
    for run in runs:
        same(run, runs[-1])
    assert len({run.config_digest for run in runs}) == 1


def test_numpy_scores_of_an_expert_are_part_of_the_experiment(tmp_path: Path) -> None:
    scores = np.arange(60.0)
    made = {"recipe": pr.fedavg(cohort=2, epochs=1, batch=5) | pr.parts.curriculum(score="expert")}
    run = broken_off(tmp_path / "one", 3, trial(expert=scores, **made))
    same(
        small.resume(trial(expert=scores, **made), run), small.run(trial(expert=scores, **made), out=tmp_path / "other")
    )


HOWS: tuple[dict[str, Any], ...] = (
    {"driver": "processes", "workers": 2, "engine": "torch"},
    {"engine": "torch", "client_memory": "0 B", "checkpoint": pr.Checkpoint(every=2)},
    {"engine": "stacked", "device": "cpu", "stack": 1},
)


@pytest.mark.parametrize("how", HOWS, ids=lambda how: how.get("driver", how["engine"]))
def test_a_run_may_go_on_with_another_execution(tmp_path: Path, how: dict[str, Any]) -> None:
    """The experiment is the same, and so are its numbers; with another engine up to rounding, and with a notice."""
    whole = small.run(trial(engine="torch"), out=tmp_path / "whole")
    begun = broken_off(tmp_path / "parts", 3, trial(engine="torch"))
    gone_on = small.resume(trial(**how), begun, out=tmp_path / "parts")
    assert gone_on.status == "finished"
    assert gone_on.config_digest == whole.config_digest
    assert gone_on.config == whole.config
    noticed = any("numbers may differ by its rounding" in notice for notice in gone_on.notices)
    if how["engine"] == "torch":
        assert not noticed
        assert gone_on.summary["digest"] == whole.summary["digest"]
        assert gone_on.history.drop(columns="wall").equals(whole.history.drop(columns="wall"))
    else:
        assert noticed
        verdict = small.verify(gone_on, trial(engine="torch"))
        assert verdict.equal or any("are by stacked" in reason for reason in verdict.explained_by)
        for name, tensor in whole.weights("final").items():
            torch.testing.assert_close(gone_on.weights("final")[name], tensor, rtol=1e-4, atol=1e-5)


def test_an_experiment_with_another_execution_is_found_again(tmp_path: Path) -> None:
    first = small.run(trial(engine="torch"), out=tmp_path)
    again = small.run(trial(engine="stacked", device="cpu", stack=2), out=tmp_path, resume="auto")
    assert again.id == first.id
