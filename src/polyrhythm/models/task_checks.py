"""Errors of data and models that do not belong to a task."""

from __future__ import annotations

import torch
from torch import Tensor

from polyrhythm.base.errors import UserError


def check_class_numbers(name: str, classes: int, targets: Tensor) -> None:
    """Refuses targets that are no class numbers, or of more classes than the model has."""
    if targets.dtype != torch.int64 or targets.dim() != 1:
        raise bad_targets(
            name,
            targets,
            "int64 class numbers, one per sample: [samples]",
            "number the classes from 0, or choose the task multilabel (several labels) or regression (real numbers)",
        )
    if not len(targets):
        return
    low, high = (int(edge) for edge in torch.aminmax(targets))
    if low < 0 or high >= classes:
        odd = low if low < 0 else high
        raise UserError(
            f"label {odd} in the targets",
            expected=f"labels 0 to {classes - 1}, as the model has {classes} outputs",
            why="no output of the model stands for that label",
            fix="number the labels from 0" if low < 0 else f"give the model {high + 1} outputs, or drop that label",
        )


def bad_targets(name: str, targets: Tensor, expected: str, fix: str) -> UserError:
    """The error for targets of another type or shape than the task's."""
    dtype = str(targets.dtype).removeprefix("torch.")
    return UserError(
        f"{dtype} targets of shape {tuple(targets.shape)} for the task {name}",
        expected=expected,
        why=f"the loss of {name} is not defined for other targets",
        fix=fix,
    )


def bad_outputs(name: str, shape: tuple[int, ...], expected: str) -> UserError:
    """The error for outputs of another shape than the task's."""
    return UserError(
        f"the model's outputs for a batch have shape {shape}",
        expected=f"{expected} for the task {name}",
        why="loss and metrics read that shape",
        fix="change the model's last layer, or choose another task",
    )


def size_mismatch(outputs: int, targets: int, what: str) -> UserError:
    """The error for a model with more or fewer outputs than targets."""
    return UserError(
        f"the model has {outputs} outputs, the targets have {targets} {what}",
        expected="as many outputs as targets",
        why="each output is compared with one target",
        fix=f"build the model with outputs={targets}",
    )
