"""What a model is asked to do: the loss it trains on, and the metrics it is judged by, read from a `Tally`."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from polyrhythm.base.errors import UserError, unknown
from polyrhythm.base.settings import Count, Decay, Settings
from polyrhythm.models.tally import Tally
from polyrhythm.models.task_checks import bad_outputs, bad_targets, check_class_numbers, size_mismatch


@dataclass(frozen=True, kw_only=True)
class Task(Settings, ABC):
    """Base of the tasks: a loss for training, a tally for evaluation, and a check of the data before a run.

    Losses of reduced-precision outputs (bfloat16, float16) are computed in float32.
    """

    name: ClassVar[str]

    @property
    @abstractmethod
    def headline(self) -> str:
        """The metric a run is judged by, one of the keys of `read`; higher is better."""

    @abstractmethod
    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of every sample. [B]"""

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean loss over a batch, which is what is reported of it. Scalar."""
        return self.losses(outputs, targets).mean()

    def objective(self, loss: Tensor, outputs: Tensor) -> Tensor:
        """What training minimises: the mean loss of a batch, if need be with what only training has. Scalar."""
        return loss

    @abstractmethod
    def draw(self, outputs: Tensor, generator: np.random.Generator) -> Tensor:
        """Targets drawn from what a model predicts: the distribution whose negative log-likelihood the loss is.

        Sample after sample, so the draws do not depend on how samples are cut into batches.

        Args:
            outputs: of a batch.
            generator: draws.

        Returns:
            Targets of the batch, as `losses` takes them.
        """

    @torch.no_grad()
    def tally(self, outputs: Tensor, targets: Tensor) -> Tally:
        """Everything `read` needs to know about a batch."""
        return Tally(
            len(targets), {"loss": _total(self.losses(outputs, targets)), **self._metric_sums(outputs, targets)}
        )

    def read(self, tally: Tally) -> dict[str, float]:
        """The metrics over all samples of a tally, the mean loss under "loss".

        Raises:
            UserError: no sample was tallied, so there is nothing to average.
        """
        if tally.count == 0:
            raise UserError(
                "a model was to be judged on no sample at all",
                expected="at least 1 sample",
                why="a mean over nothing has no value",
                fix="leave this evaluation out, or give it a set that is not empty",
            )
        return {"loss": tally.mean("loss"), **self._metrics(tally)}

    @abstractmethod
    def check(self, outputs_shape: tuple[int, ...], targets: Tensor) -> None:
        """Refuses targets or a model that do not belong to this task.

        Args:
            outputs_shape: shape of what the model gives for a batch, e.g. (2, 10).
            targets: all targets the task will see.

        Raises:
            UserError: wrong type, shape or value of the targets, or outputs that do not match them.
        """

    @abstractmethod
    def _metric_sums(self, outputs: Tensor, targets: Tensor) -> dict[str, float]: ...

    @abstractmethod
    def _metrics(self, tally: Tally) -> dict[str, float]: ...


@final
@dataclass(frozen=True, kw_only=True)
class Classification(Task):
    """One of C classes per sample: cross entropy, judged by accuracy.

    outputs: [B, C] logits; targets: [B] int64 in 0 … C − 1.

    Args:
        smoothing: label smoothing, the share s of a sample's label that is spread evenly over all classes in training,
            0 ≤ s < 1: it minimises (1 − s) · loss + s · mean over classes of −log p. 0 is exactly none. Every loss
            that is reported, or that scores samples or clients, is without.

    Reference: Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", CVPR 2016, section 7.
    """

    name: ClassVar[str] = "classification"

    smoothing: Decay = 0.0

    @property
    def headline(self) -> str:
        return "accuracy"

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(_full_precision(outputs), targets, reduction="none")

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(_full_precision(outputs), targets)

    def objective(self, loss: Tensor, outputs: Tensor) -> Tensor:
        return _smoothed(self.smoothing, loss, outputs)

    def draw(self, outputs: Tensor, generator: np.random.Generator) -> Tensor:
        return _drawn_classes(outputs, generator)

    def _metric_sums(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        return {"correct": _correct(outputs, targets)}

    def _metrics(self, tally: Tally) -> dict[str, float]:
        return {"accuracy": tally.mean("correct")}

    def check(self, outputs_shape: tuple[int, ...], targets: Tensor) -> None:
        if len(outputs_shape) != 2:
            raise bad_outputs(self.name, outputs_shape, "[batch, classes]")
        check_class_numbers(self.name, outputs_shape[-1], targets)


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

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(_full_precision(_last_position(outputs)), targets, reduction="none")

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(_full_precision(_last_position(outputs)), targets)

    def objective(self, loss: Tensor, outputs: Tensor) -> Tensor:
        return _smoothed(self.smoothing, loss, _last_position(outputs))

    def draw(self, outputs: Tensor, generator: np.random.Generator) -> Tensor:
        return _drawn_classes(_last_position(outputs), generator)

    def _metric_sums(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        return {"correct": _correct(_last_position(outputs), targets)}

    def _metrics(self, tally: Tally) -> dict[str, float]:
        return {"accuracy": tally.mean("correct")}

    def check(self, outputs_shape: tuple[int, ...], targets: Tensor) -> None:
        if len(outputs_shape) not in (2, 3):
            raise bad_outputs(self.name, outputs_shape, "[batch, characters] or [batch, positions, characters]")
        check_class_numbers(self.name, outputs_shape[-1], targets)


@final
@dataclass(frozen=True, kw_only=True)
class MultiLabel(Task):
    """Any number of C labels per sample: binary cross entropy of each label, judged by recall at k.

    outputs: [B, C] logits; targets: [B, C] float, 1 where the sample has the label and else 0.

    Recall at k is pooled: over all samples, the share of the labels present that are among the k highest outputs of
    their sample. A sample without labels adds nothing; with C ≤ k the recall is 1 by definition; with no label
    anywhere it is 0.

    Args:
        labels: how a sample's C label losses become one loss, "mean" or "sum". "sum" is C times "mean", so a learning
            rate belongs to one of the two. The federated tag prediction of Reddi et al. takes the mean over labels and
            the *sum* over the batch: its rate of 100 for batches of 100 would be 10,000 here.
        k: how many of a sample's highest outputs count as predicted, ≥ 1.

    Reference: Reddi et al., "Adaptive Federated Optimization", ICLR 2021, Stack Overflow tag prediction.
    """

    name: ClassVar[str] = "multilabel"

    labels: Literal["mean", "sum"] = "mean"
    k: Count = 5

    @property
    def headline(self) -> str:
        return f"recall_at_{self.k}"

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        outputs = _full_precision(outputs)
        losses = functional.binary_cross_entropy_with_logits(outputs, targets.to(outputs.dtype), reduction="none")
        return losses.mean(dim=1) if self.labels == "mean" else losses.sum(dim=1)

    def draw(self, outputs: Tensor, generator: np.random.Generator) -> Tensor:
        """Each label on its own, with the probability that the sigmoid gives it; whatever `labels` is."""
        points = torch.from_numpy(generator.random(tuple(outputs.shape)))
        return (points < outputs.double().sigmoid()).float()

    def _metric_sums(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        highest = outputs.topk(min(self.k, outputs.shape[1]), dim=1).indices  # [B, k]
        return {"found": _total(targets.gather(1, highest)), "present": _total(targets)}

    def _metrics(self, tally: Tally) -> dict[str, float]:
        present = tally.sums.get("present", 0.0)
        return {self.headline: tally.sums.get("found", 0.0) / present if present else 0.0}

    def check(self, outputs_shape: tuple[int, ...], targets: Tensor) -> None:
        if len(outputs_shape) != 2:
            raise bad_outputs(self.name, outputs_shape, "[batch, labels]")
        if not targets.is_floating_point() or targets.dim() != 2:
            raise bad_targets(
                self.name,
                targets,
                "float targets [samples, labels], 1 for a label that is present and else 0",
                "turn the labels into such a multi-hot matrix, or choose the task classification",
            )
        if targets.shape[1] != outputs_shape[1]:
            raise size_mismatch(outputs_shape[1], targets.shape[1], "labels")
        odd = targets[(targets != 0) & (targets != 1)]
        if len(odd):
            raise UserError(
                f"a multilabel target has the value {odd[0].item():g}",
                expected="0 or 1 for every sample and label",
                why="recall counts labels, and a label is there or not",
                fix="make the targets multi-hot, or choose the task regression",
            )


@final
@dataclass(frozen=True, kw_only=True)
class Regression(Task):
    """One or more numbers per sample: mean squared error, judged by R² (and the root mean squared error).

    outputs: [B, d], or [B] where d = 1; targets: the same, float.

    R² = 1 − Σ (y − ŷ)² / Σ (y − ȳ)², each sum over all samples and numbers, ȳ the mean of each of the d numbers over
    the samples that were tallied. If those do not vary at all, R² is 1 for exact predictions and else 0.
    """

    name: ClassVar[str] = "regression"

    @property
    def headline(self) -> str:
        return "r2"

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        outputs = _rows(_full_precision(outputs))
        return (outputs - _rows(targets).to(outputs.dtype)).square().mean(dim=1)

    def draw(self, outputs: Tensor, generator: np.random.Generator) -> Tensor:
        """Each of d numbers from a normal distribution around its output, of variance d / 2.

        Its part of the mean, (y − ŷ)² / d, is then the negative log-likelihood (y − ŷ)² / (2 · d / 2) but a constant.
        """
        outputs = _full_precision(outputs)
        noise = torch.from_numpy(generator.standard_normal(tuple(outputs.shape))).to(outputs.dtype)
        return outputs + noise * math.sqrt(_rows(outputs).shape[1] / 2)

    def _metric_sums(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        goals = _rows(targets).double()
        columns = {f"target_{j}": total for j, total in enumerate(goals.sum(dim=0).tolist())}
        return {
            "squared_error": _total((_rows(outputs).double() - goals).square()),
            "squared_target": _total(goals.square()),
            **columns,
        }

    def _metrics(self, tally: Tally) -> dict[str, float]:
        totals = [value for name, value in tally.sums.items() if name.startswith("target_")]
        error, raw = tally.sums["squared_error"], tally.sums["squared_target"]
        spread = raw - sum(total * total for total in totals) / tally.count
        rounding = 1e-12 * raw  # what the difference above may be off by; with no more spread, the targets are constant
        exact = error <= rounding
        r2 = 1.0 - error / spread if spread > rounding else float(exact)
        return {"r2": r2, "rmse": (error / (tally.count * len(totals))) ** 0.5}

    def check(self, outputs_shape: tuple[int, ...], targets: Tensor) -> None:
        if len(outputs_shape) not in (1, 2):
            raise bad_outputs(self.name, outputs_shape, "[batch] or [batch, numbers]")
        if not targets.is_floating_point() or targets.dim() not in (1, 2):
            raise bad_targets(
                self.name,
                targets,
                "float targets [samples] or [samples, numbers]",
                "convert the targets to float32, or choose the task classification",
            )
        numbers = 1 if targets.dim() == 1 else targets.shape[1]
        outputs = 1 if len(outputs_shape) == 1 else outputs_shape[1]
        if outputs != numbers:
            raise size_mismatch(outputs, numbers, "numbers")
        if not bool(torch.isfinite(targets).all()):
            raise UserError(
                "a regression target is NaN or infinite",
                expected="finite numbers",
                why="one such target turns every model that meets it into NaN",
                fix="remove or fill in the missing targets before you split the data",
            )


TASKS: dict[str, type[Task]] = {cls.name: cls for cls in (Classification, MultiLabel, NextCharacter, Regression)}


def task(name: str, /, **settings: Any) -> Task:
    """The task of that name: a loss to train on, and the metrics by which a model is judged.

    Args:
        name: classification, multilabel, next_character or regression; the one that the data's targets are for.
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
    return (1 - share) * loss - share * _full_precision(outputs).log_softmax(dim=1).mean() if share else loss


def _drawn_classes(outputs: Tensor, generator: np.random.Generator) -> Tensor:
    """One class per row of logits [B, C], by the softmax: where a uniform draw falls among the classes' shares."""
    edges = outputs.double().softmax(dim=1).cumsum(dim=1)
    points = edges[:, -1:] * torch.from_numpy(generator.random((len(outputs), 1)))
    # Rounding may put a point on the last edge; a NaN has no place at all, and gives a loss that says so.
    return torch.searchsorted(edges, points, right=True).squeeze(1).clamp(max=outputs.shape[1] - 1)


def _total(values: Tensor) -> float:
    return float(values.double().sum())


def _correct(outputs: Tensor, targets: Tensor) -> float:
    return float((outputs.argmax(dim=1) == targets).sum())


def _last_position(outputs: Tensor) -> Tensor:
    return outputs[:, -1] if outputs.dim() == 3 else outputs


def _rows(values: Tensor) -> Tensor:
    """[B] as [B, 1], so that [B] against [B, 1] never broadcasts to [B, B]."""
    return values.unsqueeze(1) if values.dim() == 1 else values


def _full_precision(outputs: Tensor) -> Tensor:
    return outputs.float() if outputs.dtype in (torch.bfloat16, torch.float16) else outputs
