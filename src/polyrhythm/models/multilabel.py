"""Any number of labels a sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from polyrhythm.base.errors import UserError
from polyrhythm.base.settings import Count
from polyrhythm.models import metrics as by_name
from polyrhythm.models.metrics import LabelMetric, OwnMetric, name_of, nan_rows
from polyrhythm.models.tally import Tally
from polyrhythm.models.task_checks import bad_outputs, bad_targets, check_own_loss, size_mismatch
from polyrhythm.models.task_parts import Measured, OwnLoss, broken, full_precision, total


@final
@dataclass(frozen=True, kw_only=True)
class MultiLabel(Measured):
    """Any number of C labels per sample: binary cross entropy of each label, judged by recall at k.

    outputs: [B, C] logits; targets: [B, C] float, 1 where the sample has the label and else 0.

    Recall at k is pooled: over all samples, the share of the labels present that are among the k highest outputs of
    their sample. A sample without labels adds nothing; with C ≤ k the recall is 1 by definition, which is said before a
    run; with no label anywhere it is undefined and left out.

    Metrics beside it: "precision", "recall" and "f1", the mean over labels, where a label with an output above 0 is
    predicted; "auc", the mean over labels of the area under the ROC curve. Labels for which one is undefined are left
    out of its mean.

    Args:
        labels: how a sample's C label losses become one loss, "mean" or "sum". "sum" is C times "mean", so a learning
            rate belongs to one of the two. The federated tag prediction of Reddi et al. takes the mean over labels and
            the *sum* over the batch: its rate of 100 for batches of 100 would be 10,000 here.
        k: how many of a sample's highest outputs count as predicted, ≥ 1.
        metrics: what else is measured, as in `Classification`; None is recall at k alone.
        loss_function: in place of the binary cross entropy, as in `Classification`.

    Reference: Reddi et al., "Adaptive Federated Optimization", ICLR 2021, Stack Overflow tag prediction.
    """

    name: ClassVar[str] = "multilabel"

    labels: Literal["mean", "sum"] = "mean"
    k: Count = 5
    metrics: tuple[LabelMetric | OwnMetric, ...] = ()
    loss_function: OwnLoss | None = None

    @property
    def headline(self) -> str:
        return name_of(self.metrics[0]) if self.metrics else self._recall

    @property
    def _recall(self) -> str:
        return f"recall_at_{self.k}"

    @property
    def metrics_read(self) -> tuple[str, ...]:
        return (self._recall, *map(name_of, self.metrics))

    @property
    def sums_over_samples(self) -> bool:
        return self.loss_function is None

    def constant(self, outputs: int) -> tuple[str, ...]:
        return (self._recall,) if self.k >= outputs else ()

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        outputs = full_precision(outputs)
        if self.loss_function is not None:
            return self.loss_function(outputs, targets)
        losses = functional.binary_cross_entropy_with_logits(outputs, targets.to(outputs.dtype), reduction="none")
        return losses.mean(dim=1) if self.labels == "mean" else losses.sum(dim=1)

    def draw(self, outputs: Tensor, generator: np.random.Generator) -> Tensor:
        """Each label on its own, with the probability that the sigmoid gives it; whatever `labels` is."""
        points = torch.from_numpy(generator.random(tuple(outputs.shape)))
        return (points < outputs.double().sigmoid()).float()

    def _metric_sums(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        highest = outputs.topk(min(self.k, outputs.shape[1]), dim=1).indices  # [B, k]
        without = nan_rows(outputs)
        found = targets.gather(1, highest)[~without] if without.any() else targets.gather(1, highest)
        counts = by_name.COUNTED & {metric for metric in self.metrics if isinstance(metric, str)}
        return {
            **{"found": total(found), "present": total(targets), **broken(without)},
            **(by_name.counts_of_labels(outputs, targets) if counts else {}),
        }

    def _metrics(self, tally: Tally) -> dict[str, float]:
        present = tally.sums["present"]
        found = {self._recall: tally.sums["found"] / present} if present else {}
        for metric in self.metrics:
            if metric in by_name.COUNTED:
                found |= by_name.counted(str(metric), tally)
        return found | by_name.of_rows(self.metrics, by_name.auc_of_labels, tally)

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
        check_own_loss(self.loss_function, outputs_shape, targets)
