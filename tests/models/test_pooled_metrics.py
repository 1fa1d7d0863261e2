"""Metrics over clients of unequal sizes, batches of one, classes that a client lacks, ties, and certain outputs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from polyrhythm.models.metrics import auc_of_classes
from polyrhythm.models.next_token import LEFT_OUT, NextToken
from polyrhythm.models.regression import Regression
from polyrhythm.models.survival import Survival
from polyrhythm.models.tally import Tally
from polyrhythm.models.task import Task
from polyrhythm.models.tasks import Classification

SIZES = (1, 40, 2, 7)
CUTS = ((1,), (50,), (1, 3, 1), (7, 2))
"""Sizes of batches, one after the other and from the start again."""


def pieces(sizes: tuple[int, ...], cut: tuple[int, ...]) -> Iterator[slice]:
    """Batches of each client."""
    start = 0
    for size in sizes:
        at = 0
        for width in itertools.cycle(cut):
            yield slice(start + at, start + min(at + width, size))
            if (at := at + width) >= size:
                break
        start += size


def read(task: Task, outputs: Tensor, targets: Tensor, cut: tuple[int, ...]) -> dict[str, float]:
    total = Tally()
    for piece in pieces(SIZES, cut):
        total += task.tally(outputs[piece], targets[piece])
    assert total.count == len(targets)
    return task.read(total)


def by_pairs(scores: Tensor, positive: Tensor) -> float:
    """How often a positive sample is above a negative one, written out."""
    ones, zeros = scores[positive], scores[~positive]
    above = (ones[:, None] > zeros[None]).double() + 0.5 * (ones[:, None] == zeros[None]).double()
    return float(above.mean())


@pytest.mark.parametrize("cut", CUTS)
def test_classes(cut: tuple[int, ...]) -> None:
    """The first client has one sample, the second all but one of class 0; outputs have ties."""
    generator = torch.Generator().manual_seed(0)
    targets = torch.randint(3, (sum(SIZES),), generator=generator)
    targets[1:40] = 0
    outputs = torch.randint(-2, 3, (len(targets), 3), generator=generator).float()
    task = Classification(metrics=("auc", "balanced_accuracy", "f1"))
    found = read(task, outputs, targets, cut)
    predicted, present = outputs.argmax(1), [targets == c for c in range(3)]
    hits = [float((predicted[there] == c).double().mean()) for c, there in enumerate(present)]
    odds = [outputs[:, c] - outputs.double()[:, [o for o in range(3) if o != c]].logsumexp(1) for c in range(3)]
    f1 = [
        2 * float((there & (predicted == c)).sum()) / float(there.sum() + (predicted == c).sum())
        for c, there in enumerate(present)
    ]
    assert found["accuracy"] == pytest.approx(float((predicted == targets).double().mean()), abs=1e-12)
    assert found["balanced_accuracy"] == pytest.approx(np.mean(hits), abs=1e-12)
    assert found["f1"] == pytest.approx(np.mean(f1), abs=1e-12)
    ranked = [by_pairs(score.round(decimals=9), there) for score, there in zip(odds, present, strict=True)]
    assert found["auc"] == pytest.approx(np.mean(ranked), abs=1e-12)


def test_what_is_as_good_as_certain_is_still_ranked() -> None:
    """Margins of 40 to 900, of which the probabilities are 1 or 0: in order, and the same for either class."""
    margins = torch.tensor([40.0, 60.0, 80.0, 900.0, -40.0, -800.0, -900.0])
    outputs = torch.stack([margins, torch.zeros(7)], dim=1)
    targets = torch.tensor([1, 0, 0, 0, 0, 1, 1])  # of class 0 are margins 60, 80, 900 and -40
    right = by_pairs(margins, targets == 0)
    assert right == pytest.approx(11 / 12)
    assert auc_of_classes(outputs, targets) == pytest.approx(right, abs=1e-12)
    three = torch.cat([outputs, torch.full((7, 1), -2000.0)], dim=1)
    assert auc_of_classes(three, targets) == pytest.approx(right, abs=1e-12)  # nobody is of the third class


@pytest.mark.parametrize("cut", CUTS)
def test_tokens(cut: tuple[int, ...]) -> None:
    """A client of one text, and texts without an answer: sums over tokens, and no mean of means."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(5, (sum(SIZES), 6), generator=generator)
    tokens[torch.rand(tokens.shape, generator=generator) < 0.4] = LEFT_OUT
    tokens[0], tokens[7, 2:] = LEFT_OUT, LEFT_OUT
    logits = torch.randn(len(tokens), 6, 5, generator=generator)
    found = read(NextToken(), logits, tokens, cut)
    losses, right = [], []
    for text, scores in zip(tokens.tolist(), logits.double().log_softmax(2), strict=True):
        for place, token in enumerate(text[1:]):
            if token != LEFT_OUT:
                losses.append(-float(scores[place, token]))
                right.append(int(scores[place].argmax()) == token)
    assert found["loss"] == pytest.approx(np.mean(losses), abs=1e-6)
    assert found["perplexity"] == pytest.approx(np.exp(np.mean(losses)), rel=1e-6)
    assert found["accuracy"] == pytest.approx(np.mean(right), abs=1e-12)


@pytest.mark.parametrize("cut", CUTS)
def test_numbers(cut: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(2)
    targets = 100 + torch.randn(sum(SIZES), 2, generator=generator)
    outputs = targets + torch.randn(targets.shape, generator=generator)
    found = read(Regression(metrics=("r2", "mae")), outputs, targets, cut)
    error, spread = (outputs - targets).double(), targets.double() - targets.double().mean(0)
    assert found["rmse"] == pytest.approx(float(error.square().mean().sqrt()), rel=1e-9)
    assert found["mae"] == pytest.approx(float(error.abs().mean()), rel=1e-9)
    assert found["r2"] == pytest.approx(1 - float(error.square().sum() / spread.square().sum()), rel=1e-6)


@pytest.mark.parametrize("cut", CUTS)
def test_times(cut: tuple[int, ...]) -> None:
    """Equal times, equal risks, and a client whose only sample is censored."""
    generator = torch.Generator().manual_seed(3)
    times = torch.randint(1, 6, (sum(SIZES),), generator=generator).float()
    events = torch.rand(len(times), generator=generator) < 0.5
    events[0] = False
    risks = torch.randint(-2, 3, (len(times), 1), generator=generator).float()
    found = read(Survival(), risks, torch.stack([times, events.float()], dim=1), cut)
    agreeing = known = 0.0
    for i, j in itertools.permutations(range(len(times)), 2):
        if events[i] and (times[i] < times[j] or (times[i] == times[j] and not events[j])):
            known += 1
            agreeing += float(risks[i] > risks[j]) + 0.5 * float(risks[i] == risks[j])
    assert found["concordance"] == pytest.approx(agreeing / known, abs=1e-12)
