"""The base of tasks: the loss that a model trains on, and the metrics it is judged by, read from a `Tally`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from polyrhythm.base.errors import UserError
from polyrhythm.base.metric_names import NAN_OUTPUTS
from polyrhythm.base.settings import Settings
from polyrhythm.models.tally import Tally


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

    @property
    def metrics_read(self) -> tuple[str, ...]:
        """The metrics that `read` gives beside the loss, as far as each has a value; the headline alone by default."""
        return (self.headline,)

    @property
    def sums_over_samples(self) -> bool:
        """Whether the objective of a batch is the mean over its samples of what each of them gives alone."""
        return True

    @property
    def samples_have_losses(self) -> bool:
        """Whether what `losses` gives of a sample does not depend on the other samples of a batch."""
        return True

    @property
    def divisible(self) -> bool:
        """Whether loss and objective of a batch are means over its samples, weighed as `amounts` says."""
        return self.sums_over_samples

    def amounts(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Weights of the samples in the mean that `loss` is, and in that of `objective`. [B], [B]

        So a batch may be computed in pieces. Each counts once by default; only of tasks that are `divisible`.
        """
        once = torch.ones(len(targets), device=outputs.device)
        return once, once

    @abstractmethod
    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of every sample. [B]"""

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean loss over a batch, which is what is reported of it. Scalar."""
        return self.losses(outputs, targets).mean()

    def objective(self, loss: Tensor, outputs: Tensor, targets: Tensor) -> Tensor:
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

    def fitted(self, outputs: int, targets: Callable[[], Tensor]) -> Self:
        """The task with the settings that follow from the data.

        Args:
            outputs: how many numbers a model gives for a sample.
            targets: gives all targets that are trained on.
        """
        return self

    @torch.no_grad()
    def tally(self, outputs: Tensor, targets: Tensor, *, by_class: bool = False) -> Tally:
        """Everything `read` needs to know about a batch.

        Args:
            outputs: of the model.
            targets: of the batch.
            by_class: whether it says which class each sample was put into, too, where samples have one class each.
        """
        sums = {"loss": float(self.losses(outputs, targets).double().sum()), **self._metric_sums(outputs, targets)}
        put = self._predicted(outputs) if by_class else None
        classes = () if put is None else ((targets.cpu(), put.cpu()),)
        return Tally(len(targets), sums, self._rows(outputs, targets), classes)

    def read(self, tally: Tally) -> dict[str, float]:
        """The metrics over all samples of a tally, the mean loss under "loss"; one that is undefined is left out.

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
        broken = {NAN_OUTPUTS: count} if (count := tally.sums.get(NAN_OUTPUTS)) else {}
        return {"loss": tally.mean("loss"), **self._metrics(tally), **broken}

    def over_clients(self, tallies: Iterable[Tally]) -> dict[str, float]:
        """What is measured over clients beside means and pooled metrics: none by default.

        Args:
            tallies: of each client's own test.
        """
        return {}

    def undefined(self, targets: Tensor, outputs: int) -> tuple[str, ...]:
        """The metrics, but the user's own, that have no value over these targets, whatever a model gives for them."""
        known = self.without_own()
        if not len(targets):
            return known.metrics_read
        blank = torch.zeros(1, 1).expand(len(targets), outputs)
        found = known.read(known.tally(blank, targets))
        return tuple(name for name in known.metrics_read if name not in found)

    def constant(self, outputs: int) -> tuple[str, ...]:
        """The metrics that have one value whatever a model of so many outputs gives."""
        return ()

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

    def without_own(self) -> Self:
        """The task without what the user has written."""
        return self

    def _predicted(self, outputs: Tensor) -> Tensor | None:
        """The class that each sample is put into, int64 [B], C where none is; None where samples have no one class."""
        return None

    def _rows(self, outputs: Tensor, targets: Tensor) -> tuple[tuple[Tensor, Tensor], ...]:
        """Outputs and targets themselves, where a metric is no sum over samples."""
        return ()
