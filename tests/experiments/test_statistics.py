"""Statistics of norms that are counted apart from training, against what is computed by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import polyrhythm as pr
from methods.test_pairs import row
from polyrhythm.base.errors import UserError
from polyrhythm.config import names
from polyrhythm.deployment import federating
from polyrhythm.experiments.prepared import prepare
from polyrhythm.experiments.statistics import counted
from polyrhythm.methods.mechanism import Model
from polyrhythm.methods.recipe import Recipe
from small import collection, experiment, logged, run

STATIC = pr.heterofl(cohort=4, batch=8, epochs=1, ratio=(1.0, 0.5), scaler=False, static_norms=True)


def normalised(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, outputs))


def norms(recipe: Recipe = STATIC, **changes: Any) -> pr.Experiment:
    federation = pr.federate(collection(), pr.data.QuantitySkew(alpha=1.0), 4, 0)
    return experiment(**{"model": normalised, "federation": federation, "recipe": recipe, **changes})


def test_means_and_variances_are_cumulated_over_everybodys_batches() -> None:
    ready = prepare(norms())
    shown = counted(ready, ready.initial, 0)
    layout, federation = ready.chosen.engine.layout, ready.federation
    found = {slot.name: buffer for slot, buffer in zip(layout.buffers, shown.buffers, strict=True)}
    batches = []
    for client in range(federation.clients):
        inputs, _ = federation.train.batch(federation.indices(client))
        full, rest = divmod(len(inputs), 8)
        ends = [8 * n for n in range(1, full + 1)] + ([len(inputs)] if rest else [])
        if rest == 1 and full:
            ends.pop(-2)
        batches += [inputs[a:b] for a, b in zip([0, *ends], ends, strict=False)]
    total = sum(map(len, batches))
    mean = sum(len(b) * b.mean(0) for b in batches) / total
    variance = sum(len(b) * b.var(0) for b in batches) / total
    assert total == len(federation.train)
    torch.testing.assert_close(found["0.running_mean"], mean)
    torch.testing.assert_close(found["0.running_var"], variance)
    # The layer behind sees what the first norm gives in training mode: by the batch's own statistics.
    weights = layout.named(ready.initial.weights)
    inner = [((b - b.mean(0)) / (b.var(0, unbiased=False) + 1e-5).sqrt()) @ weights["1.weight"].T for b in batches]
    second = sum(len(b) * (h + weights["1.bias"]).mean(0) for b, h in zip(batches, inner, strict=True)) / total
    torch.testing.assert_close(found["2.running_mean"], second)
    assert torch.equal(shown.weights, ready.initial.weights)


def test_a_model_without_statistics_is_given_back() -> None:
    ready = prepare(experiment(recipe=STATIC, model="mlp"))
    model = Model(weights=ready.initial.weights, buffers=())
    assert counted(ready, model, 0) is model


@row("static BatchNorm × evaluation, the saved model")
def test_what_is_measured_and_saved_has_the_statistics_of_its_version() -> None:
    made = run(norms(rounds=2))
    ready = prepare(norms(rounds=2))
    layout, saved = ready.chosen.engine.layout, made.weights()
    weights = layout.zeros()
    for name, part in layout.named(weights).items():
        part.copy_(saved[name])
    shown = counted(ready, Model(weights=weights, buffers=ready.initial.buffers), 2)
    for slot, buffer in zip(layout.buffers, shown.buffers, strict=True):
        assert torch.equal(saved[slot.name], buffer)
    _, moving = logged(model=normalised, recipe=pr.heterofl(cohort=4, batch=8, epochs=1, ratio=1, scaler=False))
    assert not torch.equal(moving.states[-1]["0.running_mean"], saved["0.running_mean"])


@row("static BatchNorm × bytes")
def test_statistics_do_not_travel() -> None:
    """Twelve means and variances of four bytes, and two counters of eight."""
    _, still = logged(model=normalised, recipe=STATIC, rounds=1)
    moving = pr.heterofl(cohort=4, batch=8, epochs=1, ratio=(1.0, 0.5), scaler=False)
    _, sent = logged(model=normalised, recipe=moving, rounds=1)
    saved = {b.bytes_up - a.bytes_up for a, b in zip(still.visits, sent.visits, strict=True)}
    assert saved == {2 * 12 * 4 + 16, 2 * 8 * 4 + 16}
    assert saved == {b.bytes_down - a.bytes_down for a, b in zip(still.visits, sent.visits, strict=True)}


@row("static BatchNorm × whatever has clients look at a model, real federations")
@pytest.mark.parametrize(
    "other",
    [
        *("loss_sampling(d=20)", "tier_sampling(interval=2)", "stop_on_drift", "curriculum"),
        "critical_periods(detector=fisher_trace)",
    ],
)
def test_clients_look_at_no_model_whose_statistics_nobody_has_counted(other: str) -> None:
    with pytest.raises(UserError) as caught:
        names.recipe(f"fedavg | {other} | width_prefix(static_norms=true)")
    assert caught.value.found.startswith("width_prefix(static_norms=true) with ")
    assert names.recipe(f"fedavg | {other} | width_prefix")


def test_nodes_are_not_asked_for_statistics() -> None:
    with pytest.raises(UserError, match=r"static_norms=true\) in a real federation"):
        federating.check(norms())
