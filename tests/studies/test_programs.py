"""What is measured without training: the cost of detectors, and the layers of networks."""

from __future__ import annotations

import types
from pathlib import Path

import pandas as pd
import pytest
import torch
from torch import nn

from polyrhythm.base.streams import seeded_torch
from polyrhythm.data.holding import Holding
from polyrhythm.data.samples import ArraySamples
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.methods.mechanism import Model
from polyrhythm.models.building import build
from polyrhythm.models.tasks import task
from polyrhythm.studies.programs import detection_cost, estimation, models, normalisation, pacing

KINDS = ("error", "cosine")


def test_what_was_freed_does_not_count() -> None:
    numbers = torch.zeros(1000)

    def one_after_the_other() -> None:
        for _ in range(3):
            numbers.exp()

    def all_at_once() -> None:
        _ = [numbers.exp() for _ in range(3)]

    assert detection_cost.most_held(one_after_the_other) == 4000
    assert detection_cost.most_held(all_at_once) == 12000


def test_a_view_takes_no_memory() -> None:
    assert detection_cost.most_held(lambda: torch.zeros(1000).view(10, 100)[3].sum()) == 4000 + 4


def test_whole_gradients_give_the_trace_that_the_engine_gives() -> None:
    with seeded_torch(0, "init"):
        module = build("mlp", (1, 4, 4), 3, hidden=(5,))
    inputs, targets = torch.rand(6, 1, 4, 4), torch.tensor([0, 1, 2, 0, 1, 2])
    engine = TorchEngine(module, task("classification"))
    start = engine.initial()
    model = Model(weights=start.weights, buffers=start.buffers)
    wanted = engine.fisher(model, Holding(ArraySamples(inputs, targets)))
    assert detection_cost.fisher_trace(module.eval(), inputs, targets) == pytest.approx(wanted, rel=1e-5)


def test_whole_gradients_take_memory_for_every_sample() -> None:
    few, many = (
        detection_cost.costs(detection_cost.Case(name="", model="mlp", shape=(1, 4, 4), samples=n), repeats=1)
        for n in (16, 64)
    )
    whole, norm = detection_cost.WHOLE, detection_cost.FGN
    assert many[whole].bytes > 3 * few[whole].bytes
    assert many[norm].bytes < 1.5 * few[norm].bytes


@pytest.mark.parametrize(
    ("lr", "plain", "divided"),
    [(0.2, 0.67232 / (0.36 + 0.67232), 0.134464 / (0.18 + 0.134464)), (1e-6, 5 / 7, 0.5)],
)
def test_where_two_clients_rest_by_hand(lr: float, plain: float, divided: float) -> None:
    """1 - 0.8^2 = 0.36 and 1 - 0.8^5 = 0.67232 of the way; at small rates steps alone count."""
    ways = list(normalisation.WAYS.values())
    assert [way.rests(lr) for way in ways] == pytest.approx([plain, divided], abs=1e-5)
    for way in ways:  # where it rests it stays
        x, _ = way.path(lr, 1)[1]
        one, other = way.counts(lr)
        assert x == pytest.approx(1.0 + one * (0 - 1.0) + other * (4 - 1.0))


def test_all_samples_are_in_use_when_the_formula_says_so() -> None:
    """Linear: 100 + 400 s / 400 reaches 500 at s = 400 of 500; as printed, 100 + 499.8 s / 400 at s = 321."""
    linear, a = pacing.FORMULAS["linear"], pacing.SHARES[-1]
    assert pacing._full(linear.corrected, a) == 0.8
    assert pacing._full(linear.printed, a) == 321 / 500
    assert pacing._count(linear.corrected, a, 200) == 300


def test_thirds_are_of_rounds_and_not_of_visits() -> None:
    rows = [(version, version * 1.0) for version in range(6)] + [(5, 7.0)]
    columns = {f"measures_{key}_{kind}": [v for _, v in rows] for key in estimation.KEYS.values() for kind in KINDS}
    visits = pd.DataFrame({"version": [version for version, _ in rows], **columns})
    found = estimation.thirds(types.SimpleNamespace(visits=visits))  # type: ignore[arg-type]
    of_error = [found[estimation.MODEL, part, "error"] for part in estimation.PARTS]
    assert of_error == [0.5, 2.5, (4 + 5 + 7) / 3]


def test_tables_of_layers_name_what_cannot_be_built() -> None:
    told = {outcome.says.split(" (")[0]: outcome for outcome in models.findings("smoke", Path(), Path()).claims}
    assert told["Table 1"].evidence == "fc9 has a weight of 4096×512 in the table, and can only have 512×512"
    assert told["Table 2"].evidence.count("has a bias of") == 6
    assert told["Table 3"].verdict == "holds"


def test_layers_come_from_the_input_on() -> None:
    network = nn.Sequential(nn.Conv2d(2, 3, (5, 4)), nn.Flatten(), nn.Linear(6, 7, bias=False))
    assert [own for _, own in models.layers_of(network)] == [
        models.Listed(weight="2×3×5×4", bias="3"),
        models.Listed(weight="6×7"),
    ]
