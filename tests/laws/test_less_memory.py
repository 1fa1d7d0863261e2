"""Steps in less memory are the same: pieces of a batch come to its gradient, recomputed blocks to the same bits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

import polyrhythm as pr
from adapters import LENGTH, VOCABULARY, Adapted, Encoder, padded, walks
from polyrhythm.base.threads import one_thread
from polyrhythm.core.local_step import Computed
from polyrhythm.engines import frugal
from polyrhythm.models.next_token import NextToken
from polyrhythm.models.task import Task
from polyrhythm.models.tasks import Classification
from small import dealt, ready

from .law import law, swap
from .test_engines import story
from .world import near

SIZES = [9, 4, 11]


class Block(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.inner, self.dropout = Adapted(8, 8), dropout

    def forward(self, values: Tensor, *, scale: float = 1.0) -> Tensor:
        dropped = functional.dropout(torch.tanh(self.inner(values)), self.dropout, self.training)
        return values + scale * dropped


class Deep(nn.Module):
    """Two blocks between frozen embeddings and an adapted output."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, 8).requires_grad_(False)
        self.blocks = nn.ModuleList([Block(dropout), Block(dropout)])
        self.out = Adapted(8, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        values = self.tokens(tokens).cumsum(dim=1) / LENGTH
        for block in self.blocks:
            values = block(values, scale=0.5)
        outputs: Tensor = self.out(values)
        return outputs


def deep(dropout: float) -> nn.Module:
    """One whose weights are always the same."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return Deep(dropout)


def ends(recipe: pr.Recipe, model: nn.Module, federation: pr.data.Federation, **how: Any) -> list[Any]:
    """Weights and losses of every step of a run."""
    given = {"federation": federation, "model": model, "recipe": recipe, "rounds": 2, "engine": "torch"} | how
    with one_thread():
        return [(s.turn.state.weights, s.report and s.report.loss) for s in story(ready(pr.Experiment, **given))]


def once(task: Task, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Each sample counts as much as any other."""
    ones = torch.ones(len(targets))
    return ones, ones


def last(pieces: frugal.Pieces) -> Computed:
    """What the last piece gave."""
    return Computed(torch.zeros(()), ())


def off(run: Any, *values: Any, use_reentrant: bool, **named: Any) -> Any:
    """A block whose outputs are a little off."""
    return run(*values, **named) * 1.001


RECIPES = {
    "scaffold": pr.scaffold(cohort=3, batch=4, epochs=1, momentum=0.9, lr=0.05),
    "clipped": pr.fedavg(cohort=3, batch=4, epochs=1, clip=0.5, lr=0.05),
}


@law(
    cases=[{"recipe": "scaffold", "micro": 3}, {"recipe": "clipped", "micro": 1}],
    recipe=st.sampled_from(tuple(RECIPES)),
    micro=st.integers(1, 3),
    broken_by={
        "means of texts": swap(NextToken, "amounts", once),
        "the last piece alone": swap(frugal.Pieces, "whole", last),
    },
)
def test_pieces_of_a_batch_come_to_its_gradient(recipe: str, micro: int) -> None:
    """Some texts have more answers than others, and one has none."""
    federation = dealt(walks(24), SIZES)
    whole = ends(RECIPES[recipe], deep(0.0), federation)
    cut = ends(RECIPES[recipe], deep(0.0), federation, micro_batch=micro)
    for (mine, loss), (wanted, expected) in zip(cut, whole, strict=True):
        assert near(mine, wanted, 1e-6)
        assert (loss or 0.0) == pytest.approx(expected or 0.0, rel=1e-5)


@law(
    cases=[{"smoothing": 0.1}],
    smoothing=st.floats(0.0, 0.3),
    broken_by={"classes count the same": swap(Classification, "amounts", once)},
)
def test_so_do_pieces_of_padded_texts_whose_classes_have_weights(smoothing: float) -> None:
    recipe = pr.fedavg(cohort=5, batch=None, epochs=2, lr=0.1)
    task = pr.task("classification", class_weights=(0.2, 4.0, 1.0), smoothing=smoothing)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        model = Encoder()
    ways: tuple[dict[str, Any], ...] = ({}, {"micro_batch": 2})
    whole, cut = (ends(recipe, model, padded(17), task=task, **how) for how in ways)
    assert all(near(mine, wanted, 1e-6) for (mine, _), (wanted, _) in zip(cut, whole, strict=True))


@law(
    cases=[{"dropout": 0.3}],
    dropout=st.floats(0.2, 0.5),
    broken_by={"blocks are a little off": swap(frugal, "checkpoint", off)},
)
def test_recomputed_blocks_come_to_the_same_bits(dropout: float) -> None:
    federation, recipe = dealt(walks(24), SIZES), RECIPES["scaffold"]
    ways: tuple[dict[str, Any], ...] = ({}, {"recompute": True})
    plain, again = (ends(recipe, deep(dropout), federation, **how) for how in ways)
    assert all(torch.equal(mine, wanted) for (mine, _), (wanted, _) in zip(again, plain, strict=True))
