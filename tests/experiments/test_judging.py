"""What judges a run tells the truth: NaN wins nothing, undefined is no number, and the best version has trained."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import polyrhythm as pr
from polyrhythm.base.errors import UserError
from polyrhythm.data.keys import Keys
from polyrhythm.experiments import ending
from polyrhythm.experiments.evaluation import Evaluator
from polyrhythm.experiments.prepared import prepare
from polyrhythm.runs.records import VersionRecord
from polyrhythm.runs.result_rule import best_of
from polyrhythm.runs.summary import Best
from polyrhythm.studies.running.executing import judged
from polyrhythm.studies.running.trials import history_of

X = np.random.default_rng(0).normal(size=(60, 4)).astype("f4")
Y = (X[:, 0] > 0.3).astype(int)


def federation(targets: Any = Y, *, clients: int = 3, **settings: Any) -> pr.data.Federation:
    data = pr.data.arrays(X, targets, test=(X[:20], targets[:20]), **settings)
    return pr.federate(data, pr.data.Iid(), clients=clients, seed=0)


def experiment(held: pr.data.Federation | None = None, **changes: Any) -> pr.Experiment:
    given: dict[str, Any] = {"model": "logistic", "recipe": pr.fedavg(cohort=2, epochs=1, batch=5), "rounds": 3}
    return pr.Experiment(federation=federation() if held is None else held, **{**given, **changes})


class Lost(nn.Module):
    """Gives NaN for some inputs, in tests alone."""

    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(shape[0], outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.linear(inputs)
        return outputs if self.training else torch.where(inputs[:, :1] > 0.3, outputs, torch.nan)


def test_nan_outputs_are_wrong_counted_and_said(tmp_path: Path) -> None:
    lost = int((Y[:20] == 0).sum())  # all of class 0, for which an argmax over NaN would be right
    run = pr.run(experiment(model=Lost), out=tmp_path)
    for row in run.versions:
        assert row["test"]["nan_outputs"] == lost
        assert row["test"]["accuracy"] <= (20 - lost) / 20
    assert run.summary["nan_outputs"] == lost
    assert f"NaN for {lost} test samples: they count as wrong" in " ".join(str(run).split())


@pytest.mark.parametrize("metric", [None, "loss"])
@pytest.mark.parametrize("value", [np.nan, None])
def test_nan_and_nothing_reach_no_goal(metric: str | None, value: float | None) -> None:
    goal = experiment(until=pr.Until(accuracy=0.5, metric=metric))
    judged = {} if value is None else {metric or "accuracy": value}
    assert ending.by_metric(goal, version(1, judged), None) == ""
    good = {"accuracy": 0.5, "loss": 0.5}
    assert "has reached 0.5" in ending.by_metric(goal, version(1, good), None)
    short = {"accuracy": 0.4, "loss": 0.6}
    assert ending.by_metric(goal, version(1, short), None) == ""


def version(number: int, test: dict[str, float] | None, **changes: Any) -> VersionRecord:
    updates = changes.pop("client_updates", number)
    empty = {field.name: 0 for field in dataclasses.fields(VersionRecord) if field.default is dataclasses.MISSING}
    given = {"validation": None, "train": None, "clients": None, "faults": {}, "client_updates": updates}
    return VersionRecord(**{**empty, "version": number, "test": test, **given, **changes})


def test_the_best_version_is_one_that_trained() -> None:
    scores = [0.9, 0.5, 0.9, np.nan, 0.9]
    best = Best("accuracy")
    assert [best.improves(version(i, {"accuracy": s})) for i, s in enumerate(scores)] == [
        False,
        True,
        True,
        False,
        False,
    ]
    assert (best.version, best.test) == (2, 0.9)
    rows = [
        {"version": i, "test": {"accuracy": s}, "validation": None, "client_updates": i} for i, s in enumerate(scores)
    ]
    assert (row := best_of(rows, "accuracy")) is not None
    assert row["version"] == 2
    refused = Best("accuracy")
    assert not refused.improves(version(1, {"accuracy": 0.9}, client_updates=0))  # every report was refused


def test_less_loss_is_better() -> None:
    best = Best("loss", falling=True)
    assert [best.improves(version(i, {"loss": s})) for i, s in enumerate([0.1, 0.5, 0.4, np.nan, 0.4])] == [
        *(False, True, True, False, False)
    ]


def test_a_trial_is_not_judged_by_what_it_was_before_it_diverged() -> None:
    rows = [{"version": i, "validation": {"r2": s}} for i, s in enumerate([0.9, None, 0.5, 0.6, None])]
    history = history_of([*rows, {"version": 5, "validation": None}], "r2")
    assert [judged(history, by) for by in ("final", "best", "last20")] == [None, 0.6, None]  # type: ignore[arg-type]
    assert [judged(history[:4], by) for by in ("final", "best", "last20")] == [0.6, 0.6, None]  # type: ignore[arg-type]


@pytest.mark.parametrize("every", [1, 2])
def test_patience_ends_a_run_so_many_versions_after_its_best(every: int, tmp_path: Path) -> None:
    given = {"rounds": 30, "until": pr.Until(patience=3), "evaluation": pr.Evaluation(every=every)}
    run = pr.run(experiment(recipe=pr.fedavg(cohort=2, epochs=1, batch=5, lr=1e-9), **given), out=tmp_path)
    first = every  # nothing is better than the first version that is looked at
    last = next(v for v in range(first, 99, every) if v - first >= 3)
    assert run.versions[-1]["version"] == last
    assert run.reason.startswith(f"accuracy has not been better for {last - first} versions than in version {first}")


def test_patience_by_a_metric_of_which_less_is_better(tmp_path: Path) -> None:
    until = pr.Until(patience=2, metric="loss")
    run = pr.run(experiment(rounds=6, until=until, recipe=pr.fedavg(cohort=3, batch=5, lr=0.05)), out=tmp_path)
    losses = [row["test"]["loss"] for row in run.versions]
    assert losses == sorted(losses, reverse=True)
    assert run.reason == "all rounds made"


def test_a_metric_without_any_value_ends_patience(tmp_path: Path) -> None:
    lost = experiment(federation(X[:, 0] / 7), model=Gone, rounds=9, until=pr.Until(patience=2))
    run = pr.run(lost, out=tmp_path)
    assert run.reason == "r2 has had no value in 2 versions"
    assert run.summary["best_version"] is None


class Gone(nn.Linear):
    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__(shape[0], outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs = super().forward(inputs)
        return outputs if self.training else outputs * torch.nan


def test_a_resumed_run_has_the_same_patience(tmp_path: Path) -> None:
    given = {"recipe": pr.fedavg(cohort=2, epochs=1, batch=5, lr=1e-9), "until": pr.Until(patience=6)}
    whole = pr.run(experiment(rounds=20, **given), out=tmp_path / "whole")
    pr.run(experiment(rounds=4, **given), out=tmp_path / "cut")
    again = pr.resume(experiment(rounds=20, **given), pr.Run.all(tmp_path / "cut")[0], out=tmp_path / "cut")
    assert again.reason == whole.reason != "all rounds made"
    assert [row["digest"] for row in again.versions] == [row["digest"] for row in whole.versions]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"until": pr.Until(metric="auc")}, "until metric = 'auc' alone"),
        ({"until": pr.Until(metric="auc", patience=2)}, "unknown metric 'auc'"),
        ({"until": pr.Until(metric="f2", accuracy=0.5)}, "unknown metric 'f2'"),
    ],
)
def test_ends_that_nobody_measures_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        experiment(**changes)


def test_ends_by_a_metric_that_cannot_tell_are_refused() -> None:
    tags = federation((X > 0).astype(int))
    with pytest.raises(UserError, match="recall_at_5 of 4 outputs, which is the same"):
        experiment(tags, until=pr.Until(accuracy=0.9))
    assert any("the same whatever a model gives for 4 labels" in note for note in prepare(experiment(tags)).notices())
    flat = pr.data.arrays(X, X[:, 0], test=(X[:9], np.full(9, 0.5)))
    with pytest.raises(UserError, match="r2, which has no value on the test data"):
        experiment(pr.federate(flat, pr.data.Iid(), clients=3, seed=0), until=pr.Until(accuracy=0.9))


def test_means_are_over_clients_for_which_a_metric_is_defined() -> None:
    targets = np.concatenate([np.linspace(0.1, 1.1, 20), np.full(20, 0.5), np.linspace(0.3, 0.9, 20)])
    owner = Keys.of([0] * 20 + [1] * 20 + [2] * 20)
    tested = [*range(20), *range(20, 30), 41]  # client 2 has one test, whose target varies as little as those of 1
    data = pr.data.arrays(targets[:, None].astype("f4"), targets, test=(targets[:, None].astype("f4"), targets))
    data = dataclasses.replace(data, columns={**data.columns, "owner": owner}, test_columns={"owner": owner})
    held = pr.federate(data, pr.data.ByColumn(column="owner"), None, 0, local_test="natural")
    assert held.local_tests is not None
    order = np.concatenate([np.intersect1d(held.local_tests.indices(c).numpy(), tested) for c in range(3)])
    shares = type(held.local_tests).of(held.local_tests.samples, order, np.array([20, 10, 1]))
    prepared = prepare(experiment(dataclasses.replace(held, local_tests=shares), model=Same, rounds=1))
    evaluator = Evaluator(prepared)
    found = evaluator.over_clients(evaluator.own_tests(lambda _: prepared.initial))
    assert found is not None
    assert found["r2_mean"] == pytest.approx(1.0)
    assert found["r2_mean_clients"] == 1
    assert found["rmse_mean"] == pytest.approx(0.0, abs=1e-6)
    assert "rmse_mean_clients" not in found


class Same(nn.Linear):
    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__(1, 1)
        nn.init.ones_(self.weight)
        nn.init.zeros_(self.bias)


WEIGHTS = (0.2, 3.0)


@pytest.mark.parametrize("engine", ["auto", "native", "stacked", "torch"])
def test_class_weights_are_right_on_every_engine(engine: Any, tmp_path: Path) -> None:
    one = federation(clients=1)
    trained = experiment(
        one,
        task=pr.task("classification", class_weights=WEIGHTS),
        recipe=pr.fedavg(cohort=1, epochs=1, batch=60, lr=0.5),
        rounds=1,
    )
    run = pr.run(trained, execution=pr.Execution(engine=engine), out=tmp_path)
    model = trained.module()
    inputs, targets = one.train.batch(one.indices(0))
    functional.cross_entropy(model(inputs), targets, weight=torch.tensor(WEIGHTS)).backward()  # type: ignore[no-untyped-call]
    for name, value in model.named_parameters():
        torch.testing.assert_close(run.weights()[name], (value - 0.5 * value.grad).detach())  # type: ignore[operator]
    assert run.summary["engine"] == ("stacked" if engine == "stacked" else "torch")
    if engine == "native":
        assert any("engine: torch, since" in note and "class weights" in note for note in run.notices)


def test_runs_are_judged_by_the_first_metric(tmp_path: Path) -> None:
    aim = pr.task("classification", metrics=("balanced_accuracy", "auc", "class_accuracy"), class_weights="balanced")
    run = pr.run(experiment(task=aim, until=pr.Until(accuracy=0.01, metric="auc")), out=tmp_path)
    assert run.headline == "balanced_accuracy"
    assert run.reason.startswith("auc ")
    assert {"accuracy", "auc", "balanced_accuracy", "accuracy_of_0"} <= run.versions[0]["test"].keys()
    assert "final balanced accuracy" in str(run)
    assert "final accuracy" not in str(run)
    assert any("class weights follow" in note for note in run.notices)


def test_r2_is_called_so(tmp_path: Path) -> None:
    run = pr.run(experiment(federation(X[:, 0] / 7), recipe=pr.fedavg(cohort=2, lr=0.01), rounds=1), out=tmp_path)
    assert "final R²" in str(run)
    assert "accuracy" not in str(run)
