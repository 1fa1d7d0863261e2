"""Texts are judged by their answer tokens, whatever is put behind their end and however they are cut into batches."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from polyrhythm.models.next_token import LEFT_OUT, NextToken
from polyrhythm.models.tally import Tally
from polyrhythm.models.task import Task

from .law import law, swap

VOCABULARY = 7
Text = tuple[Tensor, Tensor]


def texts(seed: int, lengths: list[int]) -> list[Text]:
    """Logits [T, V] of each text and its targets [T], of which the first are not asked about."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for length in lengths:
        targets = torch.randint(VOCABULARY, (length,), generator=generator)
        targets[: length // 3] = LEFT_OUT
        found.append((torch.randn(length, VOCABULARY, generator=generator), targets))
    return found


def batch(some: list[Text], more: int, least: int = 0) -> Text:
    """Texts as a batch, with so much behind the end of the longest that nobody asks about; targets longer still."""
    longest = max(len(targets) for _, targets in some) + more
    outputs = torch.stack([functional.pad(o, (0, 0, 0, longest - len(o)), value=9.0) for o, _ in some])
    size = max(longest, least)
    return outputs, torch.stack([functional.pad(t, (0, size - len(t)), value=LEFT_OUT) for _, t in some])


def of_means(self: NextToken, outputs: Tensor, targets: Tensor) -> Tensor:
    return self.losses(outputs, targets).mean()


def over_all_places(self: NextToken, outputs: Tensor, targets: Tensor) -> Tensor:
    asked = targets[:, 1 : outputs.shape[1]]
    return functional.cross_entropy(outputs[:, :-1].transpose(1, 2), asked, reduction="none").mean()


def of_samples(self: NextToken, tally: Tally) -> dict[str, float]:
    return {**Task.read(self, tally), "loss": tally.mean("loss")}


def unshifted(self: NextToken, outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs.transpose(1, 2), targets[:, : outputs.shape[1]], ignore_index=LEFT_OUT)


LENGTHS = st.lists(st.integers(2, 9), min_size=1, max_size=6)


@law(
    seed=st.integers(0, 9),
    lengths=LENGTHS,
    more=st.integers(0, 4),
    examples=20,
    broken_by={
        "padding counts": swap(NextToken, "loss", over_all_places),
        "means of texts": swap(NextToken, "loss", of_means),
        "not shifted": swap(NextToken, "loss", unshifted),
    },
)
def test_a_batch_is_the_mean_over_its_answer_tokens(seed: int, lengths: list[int], more: int) -> None:
    some = texts(seed, lengths)
    pairs = [(o[t], a[t + 1]) for o, a in some for t in range(len(a) - 1) if a[t + 1] != LEFT_OUT]
    by_hand = sum(float(-o.double().log_softmax(0)[a]) for o, a in pairs) / len(pairs)
    assert NextToken().loss(*batch(some, more, least=12)).item() == pytest.approx(by_hand, abs=1e-6)


@law(
    seed=st.integers(0, 9),
    lengths=st.lists(st.integers(2, 9), min_size=2, max_size=6),
    cut=st.integers(1, 5),
    examples=20,
    broken_by={"means of texts": swap(NextToken, "read", of_samples)},
)
def test_metrics_are_pooled_over_tokens_however_texts_are_cut(seed: int, lengths: list[int], cut: int) -> None:
    some, aim = texts(seed, lengths), NextToken()
    whole = aim.read(aim.tally(*batch(some, 3)))
    parts = [some[i : i + cut] for i in range(0, len(some), cut)]
    found = aim.read(sum((aim.tally(*batch(part, 0, least=20)) for part in parts), Tally()))
    assert found == pytest.approx(whole, abs=1e-6)
    assert whole["loss"] == pytest.approx(aim.loss(*batch(some, 0)).item(), abs=1e-6)
    assert whole["perplexity"] == pytest.approx(math.exp(whole["loss"]), rel=1e-6)
