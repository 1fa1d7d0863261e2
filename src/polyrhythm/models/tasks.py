"""What a model is asked to do: the loss it trains on, and the metrics it is judged by, read from a `Tally`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from polyrhythm.base.errors import UserError, unknown
from polyrhythm.base.settings import Decay, Positive, Takes
from polyrhythm.models import metrics as by_name
from polyrhythm.models.metrics import ClassMetric, OwnMetric, name_of
from polyrhythm.models.multilabel import MultiLabel
from polyrhythm.models.next_token import NextToken
from polyrhythm.models.regression import Regression
from polyrhythm.models.survival import Survival
from polyrhythm.models.tally import Tally
from polyrhythm.models.task import Task
from polyrhythm.models.task_checks import (
    bad_outputs,
    check_class_numbers,
    check_own_loss,
    check_weights,
)
from polyrhythm.models.task_parts import Measured, OwnLoss, correct, full_precision, last_position, predicted


@final
@dataclass(frozen=True, kw_only=True)
class Classification(Measured):
    """One of C classes per sample: cross entropy, judged by accuracy.

    outputs: [B, C] logits; targets: [B] int64 in 0 … C − 1.

    Metrics: "accuracy"; "balanced_accuracy" and "recall", both the mean over classes of the accuracy on their samples;
    "precision", likewise of what is predicted to be of a class; "f1", the mean over classes of the harmonic mean of
    the two; "auc", the mean over classes of the area under the ROC curve of one class against all others;
    "class_accuracy", the accuracy on the samples of each class c, as `accuracy_of_c`. Classes without samples are left
    out of means; a metric that is defined for none is left out itself.

    Args:
        smoothing: label smoothing, the share s of a sample's label that is spread evenly over all classes in training,
            0 ≤ s < 1: it minimises (1 − s) · loss + s · mean over classes of −log p. 0 is exactly none. Every loss
            that is reported, or that scores samples or clients, is without.
        metrics: what else is measured, names as above or functions of all outputs and targets; the first is the
            headline, by which `until`, the best version and sweeps go. None is accuracy alone.
        class_weights: how much a sample counts in training, by its class: a positive number for each class, or
            "balanced", n / (C · samples of that class) over the training samples of all clients together. A batch
            minimises sum w · loss / sum w, as torch's cross entropy has it; likewise only in training. Not on the
            native engine, nor, with smoothing, on the stacked one.
        loss_function: a function of your own in place of the cross entropy, of outputs and targets, that gives the loss
            of each sample, [B]; it is what is reported, too. Not on the stacked and the native engine.

    Reference: Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", CVPR 2016, section 7.
    """

    name: ClassVar[str] = "classification"

    smoothing: Decay = 0.0
    metrics: tuple[ClassMetric | OwnMetric, ...] = ()
    class_weights: Annotated[
        Literal["balanced"] | tuple[Positive, ...] | None,
        Takes("'balanced', or a positive number for each class, such as [1.0, 2.5] (in Python a tuple)"),
    ] = None
    loss_function: OwnLoss | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loss_function is not None and (self.smoothing or self.class_weights is not None):
            raise UserError(
                "a loss_function of your own with smoothing or class_weights",
                expected="one or the other",
                why="both change the cross entropy, which is not used then",
                fix="leave them out, and weigh or smooth in your function",
            )

    @property
    def headline(self) -> str:
        return name_of(self.metrics[0]) if self.metrics else "accuracy"

    @property
    def metrics_read(self) -> tuple[str, ...]:
        return ("accuracy", *(name_of(metric) for metric in self.metrics if metric not in _SPREAD))

    @property
    def sums_over_samples(self) -> bool:
        return self.class_weights is None and self.loss_function is None

    @property
    def divisible(self) -> bool:
        return self.loss_function is None

    def amounts(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        once, _ = super().amounts(outputs, targets)
        if not isinstance(self.class_weights, tuple):
            return once, once
        return once, torch.tensor(self.class_weights, device=outputs.device).index_select(0, targets)

    def fitted(self, outputs: int, targets: Callable[[], Tensor]) -> Classification:
        if self.class_weights != "balanced":
            return self
        counts = torch.bincount(targets(), minlength=outputs).tolist()
        present = sum(count > 0 for count in counts)
        total = sum(counts)
        # A class without samples weighs nothing in any batch; with smoothing it counts as one of the others.
        return replace(self, class_weights=tuple(total / (present * count) if count else 1.0 for count in counts))

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if self.loss_function is not None:
            return self.loss_function(full_precision(outputs), targets)
        return functional.cross_entropy(full_precision(outputs), targets, reduction="none")

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if self.loss_function is not None:
            return self.losses(outputs, targets).mean()
        return functional.cross_entropy(full_precision(outputs), targets)

    def objective(self, loss: Tensor, outputs: Tensor, targets: Tensor) -> Tensor:
        if not isinstance(self.class_weights, tuple):
            return _smoothed(self.smoothing, loss, outputs)
        logits = full_precision(outputs)
        weights = torch.tensor(self.class_weights, dtype=logits.dtype, device=logits.device)
        return functional.cross_entropy(logits, targets, weight=weights, label_smoothing=self.smoothing)

    def draw(self, outputs: Tensor, generator: np.random.Generator) -> Tensor:
        return _drawn_classes(outputs, generator)

    def _predicted(self, outputs: Tensor) -> Tensor:
        return predicted(outputs)

    def _metric_sums(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        counts = by_name.COUNTED & {metric for metric in self.metrics if isinstance(metric, str)}
        return correct(outputs, targets) | (by_name.counts_of_classes(outputs, targets) if counts else {})

    def _metrics(self, tally: Tally) -> dict[str, float]:
        found = {"accuracy": tally.mean("correct")}
        for metric in self.metrics:
            if metric in by_name.COUNTED:
                found |= by_name.counted(str(metric), tally)
        return found | by_name.of_rows(self.metrics, by_name.auc_of_classes, tally)

    def check(self, outputs_shape: tuple[int, ...], targets: Tensor) -> None:
        if len(outputs_shape) != 2:
            raise bad_outputs(self.name, outputs_shape, "[batch, classes]")
        check_class_numbers(self.name, outputs_shape[-1], targets)
        check_weights(self.class_weights, outputs_shape[-1])
        check_own_loss(self.loss_function, outputs_shape, targets)


@final
@dataclass(frozen=True, kw_only=True)
class NextCharacter(Task):
    """The character that follows a text: cross entropy of the last position, judged by accuracy.

    outputs: [B, V] logits, or [B, T, V], of which only the last of the T positions counts; targets: [B] int64 in
    0 … V − 1.

    Args:
        smoothing: as in `Classification`.
    """

    name: ClassVar[str] = "next_character"

    smoothing: Decay = 0.0

    @property
    def headline(self) -> str:
        return "accuracy"

    @property
    def metrics_read(self) -> tuple[str, ...]:
        return ("accuracy",)

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(full_precision(last_position(outputs)), targets, reduction="none")

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(full_precision(last_position(outputs)), targets)

    def objective(self, loss: Tensor, outputs: Tensor, targets: Tensor) -> Tensor:
        return _smoothed(self.smoothing, loss, last_position(outputs))

    def draw(self, outputs: Tensor, generator: np.random.Generator) -> Tensor:
        return _drawn_classes(last_position(outputs), generator)

    def _predicted(self, outputs: Tensor) -> Tensor:
        return predicted(last_position(outputs))

    def _metric_sums(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        return correct(last_position(outputs), targets)

    def _metrics(self, tally: Tally) -> dict[str, float]:
        return {"accuracy": tally.mean("correct")}

    def check(self, outputs_shape: tuple[int, ...], targets: Tensor) -> None:
        if len(outputs_shape) not in (2, 3):
            raise bad_outputs(self.name, outputs_shape, "[batch, characters] or [batch, positions, characters]")
        check_class_numbers(self.name, outputs_shape[-1], targets)


_SPREAD = {"accuracy", "class_accuracy"}  # there in any case, or under several names

TASKS: dict[str, type[Task]] = {
    cls.name: cls for cls in (Classification, MultiLabel, NextCharacter, NextToken, Regression, Survival)
}


def task(name: str, /, **settings: Any) -> Task:
    """The task of that name: a loss to train on, and the metrics by which a model is judged.

    Args:
        name: classification, multilabel, next_character, next_token, regression or survival; the one that the data's
            targets are for.
        settings: of that task.

    Raises:
        UserError: no such task, or a setting that it does not have or that has no meaning.
    """
    if not isinstance(name, str) or name not in TASKS:
        raise unknown("task", str(name), TASKS)
    known = {field.name: field for field in dataclasses.fields(TASKS[name])}
    for key in settings:
        if key not in known:
            raise unknown("setting", key, known, where=f"the task {name}")
    return TASKS[name](**settings)


def _smoothed(share: float, loss: Tensor, outputs: Tensor) -> Tensor:
    """A mean cross entropy of logits [B, C] with label smoothing. Scalar."""
    return (1 - share) * loss - share * full_precision(outputs).log_softmax(dim=1).mean() if share else loss


def _drawn_classes(outputs: Tensor, generator: np.random.Generator) -> Tensor:
    """One class per row of logits [B, C], by the softmax: where a uniform draw falls among the classes' shares."""
    edges = outputs.double().softmax(dim=1).cumsum(dim=1)
    points = edges[:, -1:] * torch.from_numpy(generator.random((len(outputs), 1)))
    # Rounding may put a point on the last edge; a NaN has no place at all, and gives a loss that says so.
    return torch.searchsorted(edges, points, right=True).squeeze(1).clamp(max=outputs.shape[1] - 1)
