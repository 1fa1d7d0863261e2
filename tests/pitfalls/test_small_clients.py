"""Clients with next to nothing: nobody crashes, hangs, or counts for more than it did."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import polyrhythm as pr
from polyrhythm.base.errors import UserError
from small import collection, dealt, experiment, logged


class Normalised(nn.Module):
    """A linear model behind BatchNorm."""

    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.norm, self.linear = nn.BatchNorm1d(shape[0]), nn.Linear(shape[0], outputs)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.linear(self.norm(inputs))


def test_a_last_batch_of_one_sample_under_batch_norm() -> None:
    """It joins the batch before it; who holds a single sample takes no step, and is named."""
    federation = dealt(collection(120), [1, 2, 33, 65])
    summary, log = logged(
        federation=federation, model=Normalised, recipe=pr.fedavg(cohort=4, epochs=1, batch=32), rounds=1
    )
    assert {visit.client: (visit.status, visit.steps, visit.samples) for visit in log.visits} == {
        0: ("dropped", 0, 0),
        1: ("trained", 1, 2),
        2: ("trained", 1, 33),
        3: ("trained", 2, 65),
    }
    assert "no step was possible" in next(v for v in log.visits if v.client == 0).reason
    assert any("1 of 4 clients hold a single sample" in notice for notice in log.plans[0].notices)
    assert summary["status"] == "finished"


@pytest.mark.parametrize("recipe", [pr.fedavg, pr.scaffold, pr.fednova, pr.moon])
def test_fewer_samples_than_a_batch_or_none_at_all(recipe: object) -> None:
    """The empty are never invited, the small train on what they have, and a loop over steps ends."""
    made = recipe(cohort=4, steps=50, batch=16, drop_last=True)  # type: ignore[operator]
    if recipe is pr.moon:
        made = pr.moon(layer="logits", cohort=4, steps=50, batch=16, drop_last=True)
    federation = dealt(collection(60), [0, 1, 7, 9])
    summary, log = logged(federation=federation, recipe=made, rounds=2)
    assert {visit.client for visit in log.visits} == {1, 2, 3}
    assert {visit.steps for visit in log.visits} == {50}
    assert all(torch.isfinite(value).all() for state in log.states for value in state.values())
    assert summary["client_updates"] == 6


def test_more_clients_are_asked_for_than_there_are() -> None:
    summary, log = logged(recipe=pr.fedavg(cohort=10, epochs=1), rounds=2)
    assert [version.cohort for version in log.versions] == [0, 4, 4]
    assert any("cohort 10, but 4 clients hold data" in notice for notice in log.plans[0].notices)
    assert summary["client_updates"] == 8
    for cohort in (0, -1, 2.5, True):
        with pytest.raises(UserError, match="cohort"):
            pr.fedavg(cohort=cohort)  # type: ignore[arg-type]
    with pytest.raises(UserError):
        experiment(federation=dealt(collection(60), [0, 0]))
