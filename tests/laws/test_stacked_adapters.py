"""Clients with adapters of one frozen base lie side by side: the stacked engine is torch to rounding, by tokens too."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

import polyrhythm as pr
from adapters import Encoder, decoder, padded, walks
from polyrhythm.engines import stacked
from polyrhythm.models.next_token import LEFT_OUT, NextToken
from polyrhythm.models.task import Task
from polyrhythm.models.tasks import Classification
from small import dealt

from .law import law, swap
from .test_engines import compare

RECIPES = {
    "scaffold": pr.scaffold(cohort=3, batch=3, epochs=1, clip=0.5, momentum=0.9),
    "fedprox": pr.fedprox(cohort=3, batch=4, steps=3, mu=0.1, lr=0.05),
}


def once(task: Task, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Each sample counts as much as any other."""
    ones = torch.ones(len(targets))
    return ones, ones


def all_there(sizes: Any, width: int) -> Any:
    """What only fills a batch up counts, too."""
    return stacked.np.ones((*sizes.shape, width)) / width


@law(
    cases=[{"recipe": name} for name in RECIPES],
    recipe=st.sampled_from(tuple(RECIPES)),
    broken_by={
        "means of texts": swap(NextToken, "amounts", once),
        "what fills up counts": swap(stacked, "shares_of", all_there),
    },
)
def test_adapters_side_by_side_are_one_after_the_other(recipe: str) -> None:
    federation = dealt(walks(24), [9, 4, 11])
    compare("perceptron", RECIPES[recipe], (4,), federation=federation, model=decoder)


@law(
    cases=[{"batch": 3}],
    batch=st.integers(2, 5),
    broken_by={"what fills up counts": swap(stacked, "shares_of", all_there)},
)
def test_padded_texts_side_by_side_are_one_after_the_other(batch: int) -> None:
    recipe = pr.fedavg(cohort=2, batch=batch, epochs=1, lr=0.1)
    torch.manual_seed(0)
    model = Encoder()
    weighed = pr.task("classification", class_weights=(0.5, 2.0, 1.0))
    compare("perceptron", recipe, (4,), federation=padded(17), model=model, task=weighed)


def pieces(task: Task, outputs: Tensor, targets: Tensor, cut: int, of: int) -> Tensor:
    """The mean of the losses (0) or objectives (1) of parts of a batch, by how much is in them."""
    total, amount = torch.zeros(()), torch.zeros(())
    for some, asked in zip(outputs.split(cut), targets.split(cut), strict=True):
        loss = task.loss(some, asked)
        found = task.objective(loss, some, asked) if of else loss
        size = task.amounts(some, asked)[of].sum()
        total, amount = total + found * size, amount + size
    return total / amount


@law(
    cut=st.integers(1, 6),
    seed=st.integers(0, 9),
    examples=20,
    broken_by={
        "means of texts": swap(NextToken, "amounts", once),
        "classes count the same": swap(Classification, "amounts", once),
    },
)
def test_a_batch_is_the_mean_of_its_pieces_by_how_much_is_in_them(cut: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits, tokens = (torch.randn(6, 5, 4, generator=generator), torch.randint(4, (6, 5), generator=generator))
    tokens[torch.rand(6, 5, generator=generator) < 0.5] = LEFT_OUT
    tokens[0, 1] = 2
    classes = Classification(class_weights=(0.1, 1.0, 2.0, 5.0), smoothing=0.2)
    tasks: list[tuple[Task, Tensor, Tensor]] = [
        (NextToken(), logits, tokens),
        (classes, logits[:, 0], torch.arange(6) % 4),
        (Classification(smoothing=0.1), logits[:, 0], torch.arange(6) % 4),
    ]
    for task, outputs, targets in tasks:
        assert task.divisible
        loss = task.loss(outputs, targets)
        assert pieces(task, outputs, targets, cut, 0).item() == pytest.approx(loss.item(), abs=1e-6)
        whole = task.objective(loss, outputs, targets).item()
        assert pieces(task, outputs, targets, cut, 1).item() == pytest.approx(whole, abs=1e-6)
