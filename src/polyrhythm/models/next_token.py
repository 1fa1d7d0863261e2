"""The token that follows, at every place of a text."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from polyrhythm.base.errors import UserError
from polyrhythm.models.tally import Tally
from polyrhythm.models.task import Task
from polyrhythm.models.task_checks import bad_outputs, bad_targets
from polyrhythm.models.task_parts import broken, full_precision

LEFT_OUT = -100
"""The target of a place that is not asked about: padding, or what a text begins with and a model need not say."""


@final
@dataclass(frozen=True, kw_only=True)
class NextToken(Task):
    """The token that follows at every place of a text: cross entropy pooled over tokens, judged by their accuracy.

    outputs: [B, T, V] logits; targets: [B, L] int64, the tokens themselves where they are to be said and −100
    elsewhere, as models of the Hugging Face ecosystem take labels. The outputs at place t are compared with the target
    at t + 1: that shift is made here, once. L and T may differ: what there is of one alone is
    padding.

    The loss of a batch is the sum over its answer tokens by their number, loss = Σ −log p / Σ 1, and so are metrics
    over all samples: "loss"; "perplexity", exp(loss), left out where that is no finite number; "accuracy", the share of
    answer tokens that are the most likely ones. None of them depends on padding or on how samples are cut into batches;
    the mean of the texts' own means would be another number. A text without an answer token adds nothing. Clients are
    weighed by samples, not by tokens. Not on the native engine, which wants a mean over samples.
    """

    name: ClassVar[str] = "next_token"

    @property
    def headline(self) -> str:
        return "accuracy"

    @property
    def metrics_read(self) -> tuple[str, ...]:
        return ("accuracy", "perplexity")

    @property
    def sums_over_samples(self) -> bool:
        return False

    @property
    def divisible(self) -> bool:
        return True

    def amounts(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The number of its answer tokens for each text, twice. [B], [B]"""
        asked = (_answers(outputs, targets) != LEFT_OUT).sum(dim=1)
        return asked, asked

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean over its answer tokens for each text, 0 for one without. [B]"""
        of_tokens, asked = _of_tokens(outputs, targets), _answers(outputs, targets) != LEFT_OUT
        return of_tokens.sum(dim=1) / asked.sum(dim=1).clamp(min=1)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        asked = _answers(outputs, targets) != LEFT_OUT
        return _of_tokens(outputs, targets).sum() / asked.sum().clamp(min=1)

    def draw(self, outputs: Tensor, generator: np.random.Generator) -> Tensor:
        """A token for each place but the first, by the softmax of the place before; padding is not known here."""
        edges = outputs[:, :-1].double().softmax(dim=2).cumsum(dim=2)
        points = edges[..., -1:] * torch.from_numpy(generator.random((*edges.shape[:2], 1)))
        drawn = torch.searchsorted(edges, points, right=True).squeeze(2).clamp(max=outputs.shape[2] - 1)
        return functional.pad(drawn, (1, 0), value=LEFT_OUT)

    @torch.no_grad()
    def tally(self, outputs: Tensor, targets: Tensor, *, by_class: bool = False) -> Tally:
        sums = {"loss": float(_of_tokens(outputs, targets).double().sum()), **self._metric_sums(outputs, targets)}
        return Tally(len(targets), sums)

    def _metric_sums(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        answers, without = _answers(outputs, targets), outputs.isnan().any(dim=2)
        asked = answers != LEFT_OUT
        right = (outputs[:, :-1].argmax(dim=2) == answers) & asked & ~without[:, :-1]
        return {
            **{"correct": float(right.sum()), "tokens": float(asked.sum())},
            **broken((without[:, :-1] & asked).any(dim=1)),
        }

    def read(self, tally: Tally) -> dict[str, float]:
        found = super().read(tally)
        tokens = tally.sums.get("tokens", 0.0)
        return {**found, "loss": tally.sums["loss"] / tokens if tokens else 0.0}

    def _metrics(self, tally: Tally) -> dict[str, float]:
        tokens = tally.sums.get("tokens", 0.0)
        if not tokens:
            return {}
        loss = tally.sums["loss"] / tokens
        perplexity = {"perplexity": math.exp(loss)} if loss < _LARGEST else {}
        return {"accuracy": tally.sums["correct"] / tokens, **perplexity}

    def undefined(self, targets: Tensor, outputs: int) -> tuple[str, ...]:
        asked = targets[:, 1:] != LEFT_OUT if targets.dim() == 2 else torch.zeros(0)
        return () if bool(asked.any()) else self.metrics_read

    def check(self, outputs_shape: tuple[int, ...], targets: Tensor) -> None:
        if len(outputs_shape) != 3:
            raise bad_outputs(self.name, outputs_shape, "[batch, places, tokens]")
        if targets.dtype != torch.int64 or targets.dim() != 2:
            form = f"int64 tokens [samples, places], {LEFT_OUT} where nothing is asked"
            raise bad_targets(self.name, targets, form, "give the texts' tokens as targets")
        odd = targets[(targets != LEFT_OUT) & ((targets < 0) | (targets >= outputs_shape[2]))]
        if len(odd):
            raise UserError(
                f"token {int(odd[0])} in the targets",
                expected=f"tokens 0 to {outputs_shape[2] - 1}, as the model has {outputs_shape[2]} outputs a place, "
                f"or {LEFT_OUT} where nothing is asked",
                why="no output of the model stands for that token",
                fix="make the tokens with the model's own tokenizer",
            )


_LARGEST = 700.0  # exp of which is a number


def _answers(outputs: Tensor, targets: Tensor) -> Tensor:
    """What is to be said at each place but the last. int64 [B, T − 1]"""
    answers = targets[:, 1 : outputs.shape[1]]
    return functional.pad(answers, (0, outputs.shape[1] - 1 - answers.shape[1]), value=LEFT_OUT)


def _of_tokens(outputs: Tensor, targets: Tensor) -> Tensor:
    """The loss of each answer token, 0 where nothing is asked. [B, T − 1]"""
    # Of the last place as well, of which nothing is asked: logits without it would have to be copied.
    answers = functional.pad(_answers(outputs, targets), (0, 1), value=LEFT_OUT)  # [B, T]
    logits = full_precision(outputs).flatten(0, 1)
    losses = functional.cross_entropy(logits, answers.flatten(), ignore_index=LEFT_OUT, reduction="none")
    return losses.view(answers.shape)[:, :-1]
