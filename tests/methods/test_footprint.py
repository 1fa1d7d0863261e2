"""The least memory that a visit needs, and clients whose devices have less."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import polyrhythm as pr
from polyrhythm.base.flat_model import FlatModel
from polyrhythm.fleet import Device, ListedDevices, Tiers
from polyrhythm.methods.footprint import least_memory
from polyrhythm.methods.recipe import Recipe
from small import federation, logged, prepared

VECTOR = 15 * 4  # bytes of nn.Linear(4, 3)
PLAIN = pr.fedavg(cohort=2, epochs=1, batch=5)


@pytest.mark.parametrize(
    ("recipe", "vectors"),
    [
        (PLAIN, 4),  # received, weights, gradient, update
        (PLAIN | pr.parts.local_sgd(momentum=0.9), 5),
        (PLAIN | pr.parts.prox(mu=0.1), 4),
        (PLAIN | pr.parts.control_variates(), 5),
        (PLAIN | pr.parts.variance_reduction() | pr.parts.local_sgd(momentum=0.9), 5),  # whose drift lies at the server
        (PLAIN | pr.parts.dynamic_regularisation(alpha=0.1), 5),
        (PLAIN | pr.parts.model_contrast(layer="logits"), 5),  # the last local model
    ],
)
def test_vectors_by_hand(recipe: Recipe, vectors: int) -> None:
    assert least_memory(recipe, FlatModel(nn.Linear(4, 3)).layout) == vectors * VECTOR


def test_adam_and_half_precision() -> None:
    layout = FlatModel(nn.Linear(4, 3).to(torch.bfloat16)).layout
    assert least_memory(PLAIN | pr.parts.local_adam(epsilon=1e-4), layout) == 6 * 30 + 8  # and the count of its steps


def test_who_has_too_little_is_never_invited() -> None:
    """Clients 1 and 3 lack a byte for momentum; without it they have enough."""
    devices = (Device(seconds_per_sample=0.001), Device(seconds_per_sample=0.001, memory=5 * VECTOR - 1))
    fleet = pr.Fleet(devices=ListedDevices(devices=devices))
    _, log = logged(recipe=PLAIN | pr.parts.local_sgd(momentum=0.9), fleet=fleet, rounds=6)
    assert {visit.client for visit in log.visits} == {0, 2}
    left_out = "2 clients are never invited: their devices have less memory than the 300 bytes"
    assert any(notice.startswith(left_out) for notice in log.plans[0].notices)
    _, log = logged(recipe=PLAIN, fleet=fleet, rounds=6)
    assert {visit.client for visit in log.visits} == {0, 1, 2, 3}
    assert log.plans[0].notices == ()


def test_a_cohort_that_memory_cuts_is_told_as_such() -> None:
    devices = (Device(seconds_per_sample=0.001), Device(seconds_per_sample=0.001, memory=1.0))
    made = prepared(fleet=pr.Fleet(devices=ListedDevices(devices=devices)), recipe=pr.fedavg(cohort=3))
    assert any(notice.startswith("cohort 3, but 2 clients can be invited") for notice in made.notices())
    assert any(notice.startswith("2 clients are never invited") for notice in made.notices())
    alone = (*[devices[0]] * 3, devices[1])
    made = prepared(fleet=pr.Fleet(devices=ListedDevices(devices=alone)), recipe=pr.fedavg(cohort=3), engine="torch")
    assert [notice[:40] for notice in made.notices()] == ["1 client is never invited: its device has"[:40]]


def test_memory_of_clients_without_data_does_not_matter() -> None:
    made = prepared(fleet=pr.Fleet(devices=Tiers(memory=(1e9, 1.0, 1.0))), federation=federation(clients=30))
    assert 0 < len(made.eligible) < 30
    assert len(prepared().eligible) == 4
