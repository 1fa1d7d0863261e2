"""What can be known to be wrong is refused before the first round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import polyrhythm as pr
from polyrhythm.base.errors import UserError
from polyrhythm.experiments.experiment import Evaluation, Until
from small import collection, dealt, experiment, federation, logged, prepared


class Pair(nn.Module):
    """Gives two tensors in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, inputs: torch.Tensor) -> list[torch.Tensor]:
        return [self.linear(inputs), inputs]


TIERS = pr.Fleet(devices=pr.fleet.Tiers())
BATCH_NORM = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"rounds": None}, "no end"),
        ({"rounds": 0}, "rounds = 0"),
        ({"rounds": 1.5}, "rounds = 1.5"),
        ({"rounds": True}, "rounds = True"),
        ({"seed": -1}, "seed = -1"),
        ({"seed": 0.5}, "seed = 0.5"),
        ({"model": "lenet6"}, "unknown model 'lenet6'"),
        ({"model": "lenet5"}, "lenet5"),
        ({"model": nn.Linear(4, 2)}, "2"),
        ({"model": nn.Linear(5, 3)}, "could not be run"),
        ({"model": Pair()}, "gives a list"),
        ({"model": BATCH_NORM, "recipe": pr.fedavg(batch=1)}, "batch=1"),
        ({"model": BATCH_NORM, "federation": dealt(collection(), [1, 1, 0])}, "at most one sample at every client"),
        ({"recipe": pr.moon(layer="nowhere")}, "nowhere"),
        ({"recipe": pr.alt(representation="nowhere")}, "nowhere"),
        ({"recipe": "fedavg"}, "recipe is a str"),
        ({"task": "classification"}, "task is a str"),
        ({"task": pr.task("multilabel", k=3)}, "the task multilabel for blobs, whose targets are those of classif"),
        ({"federation": collection()}, "federation is a Collection"),
        (
            {"recipe": pr.fedavg(schedule=pr.parts.cosine()), "rounds": None, "until": Until(updates=3)},
            "without rounds",
        ),
        ({"initial": "nothing.safetensors"}, "no such file"),
        ({"federation": dealt(collection(), [0, 0])}, "none of 2 clients holds a sample"),
        ({"recipe": pr.fedavg() | pr.parts.on_arrival() | pr.parts.buffer(size=2)}, "everybody is always there"),
        (
            {
                "rounds": None,
                "until": Until(time=5.0),
                "fleet": pr.Fleet(devices=pr.fleet.Uniform(seconds_per_sample=0.0)),
            },
            "a fleet whose visits take no time",
        ),
        (
            {
                "recipe": pr.fedavg() | pr.parts.on_arrival() | pr.parts.buffer(),
                "fleet": pr.Fleet() | pr.fleet.Energy(battery=1.0),
            },
            "everybody is always there",
        ),
        ({"fleet": pr.Fleet(devices=pr.fleet.Uniform(memory=10.0))}, "the most memory that any device has is 10 bytes"),
        ({"evaluation": Evaluation(groups=True)}, "groups = True with the devices uniform"),
        (
            {"evaluation": Evaluation(groups=True), "fleet": TIERS, "recipe": pr.local_only(cohort=2)},
            "no tests of the clients' own",
        ),
    ],
)
def test_a_mistake_is_refused_before_round_1(changes: dict[str, Any], found: str) -> None:
    with pytest.raises(UserError) as caught:
        logged(**changes)
    assert found in caught.value.found
    assert caught.value.expected
    assert caught.value.why
    assert caught.value.fix


def test_the_settings_of_ends_and_evaluation_are_checked() -> None:
    for make in (
        lambda: Until(updates=0),
        lambda: Until(time=-1.0),
        lambda: Until(accuracy="high"),  # type: ignore[arg-type]
        lambda: Evaluation(every=0),
        lambda: Evaluation(train_samples=-1),
    ):
        with pytest.raises(UserError):
            make()


def test_the_model_is_copied_and_the_generator_left_alone() -> None:
    net = nn.Linear(4, 3)
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    state = torch.get_rng_state()
    logged(model=net)
    logged(model="mlp")
    assert all(torch.equal(before[name], tensor) for name, tensor in net.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())


def test_initial_weights_are_the_ones_in_the_file(tmp_path: Path) -> None:
    run = pr.run(experiment(), out=tmp_path)
    weights = run.weights("final")
    _, log = logged(initial=run.path / "final.safetensors")
    assert all(torch.equal(log.states[0][name], weights[name]) for name in weights)


def test_the_description_names_everything_that_decides() -> None:
    first = experiment().describe()
    for changes in (
        {"seed": 1},
        {"rounds": 4},
        {"recipe": pr.fedavg(cohort=3)},
        {"model": "mlp"},
        {"federation": federation(clients=5)},
        {"fleet": pr.Fleet(devices=pr.fleet.Uniform(seconds_per_sample=1))},
        {"until": Until(updates=5)},
        {"task": pr.task("classification", smoothing=0.1)},
    ):
        assert experiment(**changes).describe() != first
    assert experiment(name="called so").describe() == first
    assert experiment(task=pr.task("classification")).describe() == first


def test_a_tasks_settings_reach_the_training_and_the_metrics() -> None:
    plain, log = logged()
    assert logged(task=pr.task("classification"))[0]["digest"] == plain["digest"]
    smoothed, other = logged(task=pr.task("classification", smoothing=0.5))
    assert smoothed["digest"] != plain["digest"]
    # Before the first step they have the same loss, since what is reported is never smoothed.
    assert log.versions[0].test == other.versions[0].test
    inputs = np.random.default_rng(0).normal(size=(60, 6))
    tags = (inputs > 0.5).astype(np.float32)
    data = pr.federate(pr.data.arrays(inputs, tags, task="multilabel", name="tags"), pr.data.Iid(), 4, 0)
    summary, _ = logged(federation=data, task=pr.task("multilabel", k=2))
    assert summary["headline"] == "recall_at_2"
    # The sum over labels at a sixth of the rate is the mean, to rounding.
    recipe = pr.fedavg(cohort=2, epochs=1, batch=5, lr=0.06)
    _, mean = logged(federation=data, recipe=recipe)
    rate = pr.fedavg(cohort=2, epochs=1, batch=5, lr=0.01)
    _, total = logged(federation=data, recipe=rate, task=pr.task("multilabel", labels="sum"))
    for name, tensor in mean.states[-1].items():
        torch.testing.assert_close(total.states[-1][name], tensor)


def test_a_replaced_part_and_too_large_a_cohort_are_said() -> None:
    notices = prepared(recipe=pr.fedavg(cohort=9) | pr.parts.sweep()).notices()
    assert any("sweep takes the place of uniform" in n for n in notices)
    assert any("cohort 9" in n and "4 clients" in n for n in notices)


def test_clients_too_small_for_batch_norm_are_counted_once_and_do_not_count() -> None:
    split = dealt(collection(), [20, 1, 1, 0])
    summary, log = logged(model=BATCH_NORM, federation=split, recipe=pr.fedavg(cohort=3, batch=5), rounds=4)
    said = [n for n in log.plans[0].notices if "BatchNorm" in n]
    assert len(said) == 1
    assert said[0].startswith("2 of 4 clients")
    assert summary["client_updates"] == 4
    assert not any("BatchNorm" in n for n in prepared(federation=split).notices())


def test_all_mistakes_of_an_experiment_are_said_together() -> None:
    with pytest.raises(UserError) as caught:
        experiment(rounds=0, seed=-1, recipe=pr.fedavg() | pr.parts.min_reports(count=99))
    found = [mistake.found for mistake in caught.value.mistakes]
    assert found == [
        "experiment: rounds = 0",
        "experiment: seed = -1",
        "min_reports(count=99) where a version invites 10",
        "fedavg | min_reports: a version needs 99 reports, and 4 clients hold data",
    ]
    with pytest.raises(UserError) as caught:
        pr.Execution(driver=3, engine=None, workers=0, gpus=0.00005)  # type: ignore[arg-type]
    found = [mistake.found for mistake in caught.value.mistakes]
    assert found == [
        "execution: driver = 3",
        "execution: workers = 0",
        "execution: gpus = 5e-05",
        "execution: engine = None",
    ]
    with pytest.raises(UserError) as caught:
        experiment(fleet="tiers", until=3)
    assert [mistake.found for mistake in caught.value.mistakes] == ["fleet is a str: 'tiers'", "until is a int: 3"]
    with pytest.raises(UserError) as caught:
        pr.parts.server_adam(lr=-1, beta1=3)
    assert len(caught.value.mistakes) == 2


def test_weights_that_balance_are_counted_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    counted: list[int] = []
    bincount = torch.bincount

    def counting(values: torch.Tensor, *given: Any, **named: Any) -> torch.Tensor:
        counted.append(len(values))
        return bincount(values, *given, **named)

    monkeypatch.setattr(torch, "bincount", counting)
    made = experiment(task=pr.task("classification", class_weights="balanced"))
    pr.run(made, out=tmp_path)
    assert counted.count(len(made.federation.train)) == 1
    assert made.aim is made.aim
