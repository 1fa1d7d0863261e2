"""Errors of data and models that do not belong to a task."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from polyrhythm.base.errors import UserError
from polyrhythm.base.metric_names import FALLING, NAN_OUTPUTS
from polyrhythm.models.metrics import OwnMetric, name_of


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


def check_headline(metrics: Sequence[str | OwnMetric]) -> None:
    """Refuses metrics of which the first cannot judge a run, or that share a name."""
    names = [name_of(metric) for metric in metrics]
    if names and (names[0] in FALLING or names[0] == "class_accuracy"):
        less = names[0] in FALLING
        raise UserError(
            f"metrics that begin with {names[0]}",
            expected="a first metric that is one number, and better where it is higher",
            why="the first is the headline: the best version, sweeps and comparisons take the highest",
            fix=f"put {'r2' if less else 'balanced_accuracy'} first" + ("; r2 and rmse order models alike" * less),
        )
    odd = next((n for n in names if names.count(n) > 1 or (n in {*FALLING, NAN_OUTPUTS} and n not in _OF_NUMBERS)), "")
    if odd:
        raise UserError(
            f"the metric {odd} twice, or with a name that is taken",
            expected="metrics with names of their own",
            why="they are recorded by their names",
            fix="leave one of them out, or call your function something else",
        )


_OF_NUMBERS = {"rmse", "mae"}


def check_weights(weights: str | Sequence[float] | None, classes: int) -> None:
    """Refuses class weights that are not one for each class."""
    if isinstance(weights, tuple) and len(weights) != classes:
        raise UserError(
            f"{len(weights)} class weights for {classes} classes",
            expected="a weight for each class, in the order of class numbers",
            why="the weight of a sample is that of its class",
            fix='class_weights="balanced", or one number for each class',
        )


def check_own_loss(
    loss: Callable[[Tensor, Tensor], Tensor] | None, outputs_shape: tuple[int, ...], targets: Tensor
) -> None:
    """Refuses a loss of one's own that gives no loss for each sample."""
    if loss is None or not len(targets):
        return
    few = targets[: outputs_shape[0]]
    outputs = torch.zeros(len(few), *outputs_shape[1:], requires_grad=True)
    name = getattr(loss, "__name__", type(loss).__name__)
    try:
        found = loss(outputs, few)
    except Exception as error:  # whatever the user's function does
        given = f"given a tensor of outputs, {list(outputs.shape)}, and targets, {list(few.shape)},"
        raise _bad_loss(f"the loss {name}, {given} raises {type(error).__name__}: {error}") from error
    if not isinstance(found, Tensor) or found.shape != (len(few),):
        what = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else f"type {type(found).__name__}"
        raise _bad_loss(f"the loss {name} gives something of {what} for {len(few)} samples")
    if not found.requires_grad:
        raise _bad_loss(f"the loss {name} has no gradient")


def check_first_loss(loss: Callable[[Tensor, Tensor], Tensor], outputs: Tensor, targets: Tensor) -> None:
    """Refuses a loss of one's own that has no finite value or gradient where training begins.

    Args:
        loss: the function.
        outputs: of the initial model for the first batch. [B, ...]
        targets: of that batch.
    """
    outputs = outputs.detach().requires_grad_()
    if not bool(outputs.isfinite().all()):
        return  # what the loss makes of them is not its fault
    name = getattr(loss, "__name__", type(loss).__name__)
    found = loss(outputs, targets)
    (gradient,) = torch.autograd.grad(found.sum(), outputs, allow_unused=True)
    slopes = torch.zeros_like(outputs) if gradient is None else gradient
    for what, values in ((f"the loss {name}", found.detach()), (f"the gradient of the loss {name}", slopes)):
        odd = torch.nonzero(~values.isfinite().reshape(len(values), -1).all(dim=1)).flatten()
        if len(odd):
            first, row = odd[0], values[odd[0]].flatten()
            given = (of[first].flatten()[:5].tolist() for of in (outputs.detach(), targets))
            raise UserError(
                f"{what} is {row[~row.isfinite()][0].item():g} for {len(odd):,} of the first {len(values):,} samples, "
                "where outputs begin with {} and the target with {}".format(*given),
                expected="a finite loss for each sample, with a finite gradient",
                why="one that is not makes every weight NaN in the first step, at any learning rate",
                fix="keep logarithms, roots and divisions away from 0, such as torch.log(x.clamp_min(1e-6))",
            )


def _bad_loss(found: str) -> UserError:
    return UserError(
        found,
        expected="a loss for each sample, [B], that torch can differentiate",
        why="losses are averaged over batches, and over the samples of clients and tests",
        fix='compute with torch and without averaging, as reduction="none" does',
    )
