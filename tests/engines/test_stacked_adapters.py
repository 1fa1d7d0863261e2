"""What the stacked engine leaves to torch of models with adapters, and what it counts for each visit."""

from __future__ import annotations

from typing import Any

import torch

import polyrhythm as pr
from adapters import Encoder, decoder, padded, walks
from laws.test_engines import experiment
from polyrhythm.models.tasks import Classification
from small import dealt

FEDPROX = pr.fedprox(cohort=3, batch=4, steps=3, mu=0.1, lr=0.05)


def test_the_base_counts_for_nobody() -> None:
    """What a visit needs is what is its own: neither the frozen weights nor a share of them."""
    federation = dealt(walks(24), [9, 4, 11])
    kept = []
    for wide in (1, 400):
        model = decoder((), 0)
        model.tokens = torch.nn.Embedding(11 * wide, 8).requires_grad_(False)
        engine: Any = experiment("perceptron", (4,), FEDPROX, "stacked", federation=federation, model=model)
        kept.append(engine.chosen.engine._step.kept)
    assert kept[0] == kept[1]
    assert kept[0] < 11 * 8 * 400 * 4 / 3


def test_dropout_by_place_is_left_to_torch_where_places_differ() -> None:
    model = Encoder()
    model.hidden = torch.nn.Sequential(torch.nn.Dropout(0.5), model.hidden)  # type: ignore[assignment]
    recipe = pr.fedavg(cohort=2, batch=3, epochs=1)
    chosen = experiment("perceptron", (4,), recipe, "stacked", federation=padded(17), model=model).chosen
    assert (chosen.kind, chosen.refused) == ("torch", "stacked")
    assert 'to="longest"' in chosen.why_not


def test_who_weighs_in_own_ways_cannot_be_cut() -> None:
    assert not Classification(loss_function=lambda outputs, targets: outputs.sum(dim=1)).divisible
