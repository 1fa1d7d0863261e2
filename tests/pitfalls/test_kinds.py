"""Kinds of faults that no other test is named after."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

import polyrhythm as pr
from polyrhythm.base.messages import Assignment, Report
from polyrhythm.core.server import Server
from polyrhythm.simulation.simulator import InlineDriver
from small import federation, logged, prepared


class Adapted(nn.Module):
    """A frozen base, a small part that is trained, and a parameter that nothing uses."""

    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.base, self.head = nn.Linear(shape[0], 500), nn.Linear(500, outputs)
        self.unused = nn.Parameter(torch.ones(7))
        for parameter in self.base.parameters():
            parameter.requires_grad_(False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(self.base(inputs).relu())


@pytest.mark.parametrize(
    "recipe",
    [
        pr.fedavg(cohort=2, weight_decay=0.1),
        pr.scaffold(cohort=2),
        pr.feddyn(cohort=2),
        pr.fednova(cohort=2) | pr.parts.prox(mu=0.1),
        pr.fedadam(cohort=2, optimiser="adam"),
        pr.moon(cohort=2, layer="logits"),
    ],
    ids=lambda recipe: recipe.title,
)
def test_what_is_frozen_stays_and_does_not_travel(recipe: pr.Recipe) -> None:
    torch.manual_seed(0)
    model = Adapted((4,), 3)
    summary, log = logged(model=model, recipe=recipe, rounds=2)
    for name, value in model.state_dict().items():
        if name.startswith(("base", "unused")):
            assert torch.equal(log.states[-1][name], value)
    assert not torch.equal(log.states[-1]["head.weight"], model.head.weight)
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    extra = sum(part.extra_vectors for part in recipe.parts())
    assert summary["bytes_up"] == 4 * trainable * (1 + extra) * summary["visits"]


def test_the_runs_seed_does_not_touch_the_partition() -> None:
    """A partition is named by its own seed: models and cohorts of other seeds have the same clients."""
    held = federation(7)
    before = [held.indices(client).tolist() for client in range(7)]
    digests = {logged(federation=held, seed=seed, rounds=1)[0]["digest"] for seed in (0, 1, 2)}
    assert len(digests) == 3
    assert [held.indices(client).tolist() for client in range(7)] == before
    again = federation(7)
    assert [again.indices(client).tolist() for client in range(7)] == before


def drive(held_by: Callable[[int], int]) -> tuple[list[str], list[torch.Tensor]]:
    """One version in which each client claims to hold so many samples: why reports were refused, and weights."""
    some = prepared(rounds=1, recipe=pr.fedavg(cohort=4))
    engine = some.chosen.engine
    update = torch.ones(engine.layout.size)

    def claims(assignment: Assignment) -> Report:
        return Report(
            **{f: getattr(assignment, f) for f in ("dispatch", "client", "visit", "version", "kind", "recipe")},
            num_samples=held_by(assignment.client),
            update=update * (1 + assignment.client),
            steps=1,
            samples=1,
            rate=0.1,
            travel=0.1,
        )

    driver = InlineDriver(some.recipe, some.setup, engine, some.data_of, some.world(), visit=claims)
    reasons, weights = [], []
    for moment in driver.moments(engine.initial()):
        if moment.turn.verdict is not None:
            reasons.append(moment.turn.verdict.reason)
        weights.append(moment.turn.state.weights)
    return reasons, weights


def test_clients_that_claim_no_samples_or_fewer() -> None:
    """Who claims none has no weight; who claims fewer is refused; if nobody holds any, the model stays."""
    reasons, weights = drive(lambda client: [0, 3, 0, 0][client])
    assert reasons == [""] * 4
    torch.testing.assert_close(weights[-1] - weights[0], torch.full_like(weights[0], 2.0))
    reasons, weights = drive(lambda client: [-5, 3, 0, 0][client])
    assert sorted(reasons) == ["", "", "", "the client reports -5 samples"]
    torch.testing.assert_close(weights[-1] - weights[0], torch.full_like(weights[0], 2.0))
    _, weights = drive(lambda client: 0)
    assert torch.equal(weights[-1], weights[0])


def test_a_sum_in_the_order_of_arrival_would_not_be_exact() -> None:
    """Why updates are summed in the order of dispatch: with six numbers there are several sums."""
    numbers = np.array([1e8, 1.0, -1e8, 1.0, 1e-3, 3.0], dtype=np.float32)
    orders = [np.random.default_rng(i).permutation(6) for i in range(50)]
    sums = {float(np.add.reduce(numbers[order], dtype=np.float32)) for order in orders}
    assert len(sums) > 1


def test_a_report_for_a_version_long_gone_changes_nothing() -> None:
    some = prepared(rounds=5, recipe=pr.fedavg(cohort=2))
    engine = some.chosen.engine
    driver = InlineDriver(some.recipe, some.setup, engine, some.data_of, some.world())
    moments = list(driver.moments(engine.initial()))
    first = next(moment.report for moment in moments if moment.report is not None)
    last = moments[-1].turn.state
    for late in (first, dataclasses.replace(first, dispatch=10_000), dataclasses.replace(first, client=3)):
        turn = Server(recipe=some.recipe, setup=some.setup, layout=engine.layout).receive(last, late, driver.roster)
        assert turn.verdict is not None
        assert not turn.verdict.accepted
        assert torch.equal(turn.state.weights, last.weights)
