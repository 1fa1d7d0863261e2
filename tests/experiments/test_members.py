"""Results of single clients and classes: what is on record is what the model does, whoever computes it."""

from __future__ import annotations

import dataclasses
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import polyrhythm as pr
import small
from polyrhythm.experiments.evaluation import FEW_CLASSES
from polyrhythm.runs.holes import missing
from polyrhythm.runs.records import ClassResultsRecord, ClientResultsRecord
from small import collection, federation

TIERS = pr.Fleet(devices=pr.fleet.Tiers())


def trial(**changes: Any) -> pr.Experiment:
    return small.experiment(**{"federation": federation(local_test=0.25), "fleet": TIERS, **changes})


def outputs(run: pr.Run, samples: Any, positions: Tensor) -> tuple[Tensor, Tensor]:
    module = run.model(model="logistic") if run._made is None else run.model()
    inputs, targets = samples.batch(positions)
    with torch.no_grad():
        return module(inputs), targets


@pytest.mark.parametrize("engine", ["torch", "native"])
def test_each_client_is_measured_on_its_own_test_alone(tmp_path: Path, engine: str) -> None:
    split = federation(local_test=0.25)
    run = pr.run(trial(federation=split), execution=pr.Execution(engine=engine), out=tmp_path)
    assert split.local_tests is not None
    last = run.client_results.loc[3]
    for client in range(4):
        logits, targets = outputs(run, split.local_tests.samples, split.local_tests.indices(client))
        right = (logits.argmax(dim=1) == targets).double().mean()
        assert last.loc[client, "accuracy"] == pytest.approx(float(right))
        loss = nn.functional.cross_entropy(logits, targets)
        assert last.loc[client, "loss"] == pytest.approx(float(loss), rel=1e-5)
    assert last["accuracy"].mean() == pytest.approx(run.history.loc[3, "clients_accuracy_mean"])
    members = run.members
    assert members["samples"].tolist() == split.sizes.tolist()
    assert members["test_samples"].tolist() == split.local_tests.sizes.tolist()
    assert members["measured"].all()
    assert set(members["device"]) <= {"tier 1", "tier 2", "tier 3"}


@pytest.mark.parametrize("engine", ["torch", "native"])
def test_classes_and_confusion_are_those_of_the_test_set(tmp_path: Path, engine: str) -> None:
    split = federation()
    run = pr.run(trial(federation=split), execution=pr.Execution(engine=engine), out=tmp_path)
    logits, targets = outputs(run, split.test, torch.arange(len(split.test)))
    by_hand = np.zeros((3, 3), dtype=int)
    for true, put in zip(targets.tolist(), logits.argmax(dim=1).tolist(), strict=True):
        by_hand[true, put] += 1
    assert run.confusion().to_numpy().tolist() == by_hand.tolist()
    last = run.class_results.loc[3]
    assert last["right"].tolist() == by_hand.diagonal().tolist()
    assert last["present"].tolist() == by_hand.sum(axis=1).tolist()
    assert last["right"].sum() / last["present"].sum() == pytest.approx(run.history.loc[3, "test_accuracy"])
    assert run.classes == ("0", "1", "2")
    assert len(run.client_results) == 0


def told(experiment: pr.Experiment) -> tuple[dict[str, Any], list[Any]]:
    heard: list[Any] = []

    class Ear(small.Log):
        def client_results(self, record: ClientResultsRecord) -> None:
            heard.append(record)

        def class_results(self, record: ClassResultsRecord) -> None:
            heard.append(record)

    return small.carry_out(small.ready(lambda: experiment), [Ear()]), heard


def test_measuring_them_changes_no_weight() -> None:
    digests = {told(trial(evaluation=pr.Evaluation(client_results=n)))[0]["digest"] for n in (0, 2, 100)}
    silent = small.carry_out(small.ready(trial), [small.Log()])["digest"]
    assert digests == {silent}


def test_of_many_clients_a_sample_is_kept_and_the_same_one_at_every_version(tmp_path: Path) -> None:
    split = pr.federate(collection(240), pr.data.Iid(), 12, 0, local_test=0.25)
    plan = pr.Evaluation(client_results=5)
    run = pr.run(trial(federation=split, evaluation=plan), out=tmp_path)
    chosen = run.members.index[run.members["measured"]].tolist()
    assert len(chosen) == 5
    assert len(run.members) == 12
    of_version = run.client_results.reset_index().groupby("version")["client"].apply(list)
    assert of_version.tolist() == [chosen] * 4
    whole = pr.run(trial(federation=split), out=tmp_path)
    of_all = whole.client_results.loc[3].loc[chosen]
    assert run.client_results.loc[3]["accuracy"].tolist() == of_all["accuracy"].tolist()
    assert "of a sample of 5" in str(run)
    assert "of a sample" not in str(whole)


def test_none_is_kept_where_none_is_wanted(tmp_path: Path) -> None:
    run = pr.run(trial(evaluation=pr.Evaluation(client_results=0)), out=tmp_path)
    assert len(run.client_results) == 0
    assert not run.members["measured"].any()


def test_alone_each_is_measured_with_its_own_model_and_classes_over_all_models(tmp_path: Path) -> None:
    recipe = pr.local_only(cohort=2, epochs=20, batch=10, lr=0.5)
    split = small.opposed()
    run = pr.run(small.experiment(federation=split, recipe=recipe, rounds=1), out=tmp_path)
    assert run.client_results.loc[1]["accuracy"].min() > 0.8
    last = run.class_results.loc[1]
    assert last["present"].sum() == 2 * len(split.test)
    assert last["right"].sum() / last["present"].sum() == pytest.approx(run.history.loc[1, "test_accuracy"])


class Broken(Exception):
    pass


def test_a_run_that_goes_on_has_the_same_rows_each_once(tmp_path: Path) -> None:
    plan = trial(rounds=6)
    how = pr.Execution(checkpoint=pr.Checkpoint(every=2))
    whole = pr.run(plan, execution=how, out=tmp_path / "whole")

    def die(record: Any) -> None:
        if getattr(record, "test", None) is not None and record.version == 5:
            raise Broken

    with pytest.raises(Broken):
        pr.run(plan, execution=how, out=tmp_path / "parts", observers=[small.Log(die)])
    [broken] = pr.Run.all(tmp_path / "parts")
    resumed = pr.resume(plan, broken, execution=how)
    for one, other in ((whole, resumed),):
        assert one.client_results.equals(other.client_results)
        assert one.class_results.equals(other.class_results)
        assert one.members.equals(other.members)
        assert one.confusion().equals(other.confusion())
    assert resumed.status == "finished"
    assert not resumed.missing


def test_rows_that_somebody_took_away_are_missed(tmp_path: Path) -> None:
    run = pr.run(trial(), out=tmp_path)
    with sqlite3.connect(tmp_path / "runs.sqlite") as connection:
        connection.execute("DELETE FROM client_results WHERE version = 2")
        recorded = run._row["summary"]["recorded"]
    assert missing(tmp_path, run.number, finished=True, recorded=recorded) == ("1 of 4 client_results",)


class Half(nn.Module):
    """Gives NaN for every sample whose first input is negative."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        found = self.linear(inputs)
        return found if self.training else torch.where(inputs[:, :1] < 0, torch.nan, found)


def test_what_has_no_answer_is_put_into_no_class(tmp_path: Path) -> None:
    split = federation()
    inputs, targets = split.test.batch(torch.arange(len(split.test)))
    without = (inputs[:, 0] < 0).numpy()
    run = pr.run(trial(federation=split, model=Half), execution=pr.Execution(engine="torch"), out=tmp_path)
    counted = run.confusion().to_numpy().sum(axis=1)
    present = run.class_results.loc[3]["present"].to_numpy()
    assert without.any()
    for c in range(3):
        assert present[c] - counted[c] == int(without[targets.numpy() == c].sum())


@pytest.mark.parametrize("until", [pr.Until(), pr.Until(accuracy=0.01)])
def test_with_many_classes_only_the_last_matrix_is_kept(tmp_path: Path, until: pr.Until) -> None:
    many = FEW_CLASSES + 1
    data = dataclasses.replace(collection(10 * many, classes=many), name="many")
    run = pr.run(trial(federation=pr.federate(data, pr.data.Iid(), 4, 0), until=until), out=tmp_path)
    last = int(run.history.index[-1])
    assert run.confusion().shape == (many, many)
    assert run.confusion(last).equals(run.confusion())
    if last:
        with pytest.raises(pr.UserError, match="no confusion matrix of version 0"):
            run.confusion(0)


def test_a_regression_has_no_classes(tmp_path: Path) -> None:
    inputs = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    data = pr.data.arrays(inputs, inputs.sum(axis=1))
    split = pr.federate(data, pr.data.Iid(), 4, 0, local_test=0.25)
    run = pr.run(trial(federation=split), out=tmp_path)
    assert len(run.class_results) == 0
    assert run.client_results.columns.tolist() == ["r2", "loss"]
    with pytest.raises(pr.UserError, match="one class each"):
        run.confusion()
