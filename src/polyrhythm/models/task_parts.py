"""What several tasks are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

import torch
from torch import Tensor

from polyrhythm.base.metric_names import NAN_OUTPUTS
from polyrhythm.models.metrics import nan_rows, rows_for
from polyrhythm.models.task import Task
from polyrhythm.models.task_checks import check_headline

OwnLoss = Callable[[Tensor, Tensor], Tensor]
"""A loss of the user's own: of outputs [B, ...] and targets [B, ...] the loss of each sample, [B]."""


class Measured(Task):
    """Task whose metrics and loss may be the user's own.

    Args:
        metrics: what else is measured; the first is the headline.
        loss_function: in place of the task's own.
    """

    metrics: tuple[Any, ...]
    loss_function: OwnLoss | None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_headline(self.metrics)

    def without_own(self) -> Self:
        named = tuple(metric for metric in self.metrics if isinstance(metric, str))
        known: dict[str, Any] = {"metrics": named, "loss_function": None}
        return replace(self, **known)

    def _rows(self, outputs: Tensor, targets: Tensor) -> tuple[tuple[Tensor, Tensor], ...]:
        return rows_for(self.metrics, outputs, targets)


def total(values: Tensor) -> float:
    """Their sum, in double precision."""
    return float(values.double().sum())


def predicted(outputs: Tensor) -> Tensor:
    """The class with the largest of some logits [B, C]; C where one of them is NaN, which would win. int64 [B]"""
    return outputs.argmax(dim=1).masked_fill(nan_rows(outputs), outputs.shape[1])


def correct(outputs: Tensor, targets: Tensor) -> dict[str, float]:
    """How many of a batch are right, and how many have no answer: NaN would win every argmax."""
    without = nan_rows(outputs)
    right = (outputs.argmax(dim=1) == targets) & ~without
    return {"correct": float(right.sum()), **broken(without)}


def broken(rows: Tensor) -> dict[str, float]:
    """How many of these samples have no answer, by name; nothing where all have one."""
    count = int(rows.sum())
    return {NAN_OUTPUTS: float(count)} if count else {}


def last_position(outputs: Tensor) -> Tensor:
    """Logits [B, C] of [B, T, C], or as they are."""
    return outputs[:, -1] if outputs.dim() == 3 else outputs


def as_rows(values: Tensor) -> Tensor:
    """[B] as [B, 1], so that [B] against [B, 1] never broadcasts to [B, B]."""
    return values.unsqueeze(1) if values.dim() == 1 else values


def left_out(outputs: Tensor, classes: Tensor) -> Tensor:
    """Logits [B, C] with 0 for some classes, int64: not less than any, so they still add 1 to a sum of exponentials."""
    return outputs.index_fill(1, classes, 0.0)


def full_precision(outputs: Tensor) -> Tensor:
    """Outputs in float32 at least."""
    return outputs.float() if outputs.dtype in (torch.bfloat16, torch.float16) else outputs
