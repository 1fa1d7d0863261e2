"""Numbers to predict."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import torch
from torch import Tensor

from polyrhythm.base.errors import UserError
from polyrhythm.models import metrics as by_name
from polyrhythm.models.metrics import NumberMetric, OwnMetric, name_of, nan_rows
from polyrhythm.models.tally import Tally
from polyrhythm.models.task_checks import bad_outputs, bad_targets, check_own_loss, size_mismatch
from polyrhythm.models.task_parts import Measured, OwnLoss, as_rows, broken, full_precision, total


@final
@dataclass(frozen=True, kw_only=True)
class Regression(Measured):
    """One or more numbers per sample: mean squared error, judged by R² (and the root mean squared error).

    outputs: [B, d], or [B] where d = 1; targets: the same, float.

    R² = 1 − Σ (y − ŷ)² / Σ (y − ȳ)², each sum over all samples and numbers, ȳ the mean of each of the d numbers over
    the samples that were tallied. If those do not vary at all, as of one sample, R² is undefined and left out.

    Args:
        metrics: what else is measured: "mae", the mean absolute error, or functions of all outputs and targets; the
            first is the headline, unless less of it is better. None is "r2" and "rmse", which are there in any case.
        loss_function: in place of the squared error, as in `Classification`.
    """

    name: ClassVar[str] = "regression"

    metrics: tuple[NumberMetric | OwnMetric, ...] = ()
    loss_function: OwnLoss | None = None

    @property
    def headline(self) -> str:
        return name_of(self.metrics[0]) if self.metrics else "r2"

    @property
    def metrics_read(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(("r2", "rmse", *map(name_of, self.metrics))))

    @property
    def sums_over_samples(self) -> bool:
        return self.loss_function is None

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if self.loss_function is not None:
            return self.loss_function(full_precision(outputs), targets)
        outputs = as_rows(full_precision(outputs))
        return (outputs - as_rows(targets).to(outputs.dtype)).square().mean(dim=1)

    def draw(self, outputs: Tensor, generator: np.random.Generator) -> Tensor:
        """Each of d numbers from a normal distribution around its output, of variance d / 2.

        Its part of the mean, (y − ŷ)² / d, is then the negative log-likelihood (y − ŷ)² / (2 · d / 2) but a constant.
        """
        outputs = full_precision(outputs)
        noise = torch.from_numpy(generator.standard_normal(tuple(outputs.shape))).to(outputs.dtype)
        return outputs + noise * math.sqrt(as_rows(outputs).shape[1] / 2)

    def _metric_sums(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        goals, found = as_rows(targets).double(), as_rows(outputs).double()
        columns = {f"target_{j}": total for j, total in enumerate(goals.sum(dim=0).tolist())}
        absolute = {"absolute_error": total((found - goals).abs())} if "mae" in self.metrics else {}
        return {
            "squared_error": total((found - goals).square()),
            "squared_target": total(goals.square()),
            **columns,
            **absolute,
            **broken(nan_rows(outputs)),
        }

    def _metrics(self, tally: Tally) -> dict[str, float]:
        totals = [value for name, value in tally.sums.items() if name.startswith("target_")]
        error, raw = tally.sums["squared_error"], tally.sums["squared_target"]
        spread = raw - sum(total * total for total in totals) / tally.count
        rounding = 1e-12 * raw  # what the difference above may be off by; with no more spread, the targets are constant
        numbers = tally.count * len(totals)
        return {
            **({"r2": 1.0 - error / spread} if spread > rounding else {}),
            "rmse": (error / numbers) ** 0.5,
            **({"mae": tally.sums["absolute_error"] / numbers} if "mae" in self.metrics else {}),
            **by_name.of_rows(self.metrics, lambda _outputs, _targets: None, tally),
        }

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
        check_own_loss(self.loss_function, outputs_shape, targets)
