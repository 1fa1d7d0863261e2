"""Metrics by name: what is counted of a batch for each, and how it is read from the sum. Undefined is no number.

Means over classes or labels ("macro") are over those for which the metric is defined on the samples that were tallied.
An output of NaN is never right: it predicts no class and no label, and ranks last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor

from polyrhythm.base.errors import UserError
from polyrhythm.models.tally import Tally

OwnMetric = Callable[[Tensor, Tensor], Any]
"""A metric of the user's own, of all outputs [n, C] and targets [n, ...]; higher is better, NaN is undefined."""
ClassMetric = Literal["accuracy", "balanced_accuracy", "precision", "recall", "f1", "auc", "class_accuracy"]
LabelMetric = Literal["precision", "recall", "f1", "auc"]
NumberMetric = Literal["r2", "rmse", "mae"]

Counts = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Of each class or label: how many samples have it, are predicted to have it, and both. Each [C]."""
COUNTED = frozenset({"balanced_accuracy", "precision", "recall", "f1", "class_accuracy"})
ONE_OF = "accuracy_of_"
"""Before a class number: the name of the accuracy on the samples of that class."""


def name_of(metric: str | OwnMetric) -> str:
    """A metric's name in records; of one's own that of its function."""
    return metric if isinstance(metric, str) else getattr(metric, "__name__", type(metric).__name__)


def nan_rows(outputs: Tensor) -> Tensor:
    """Which samples have an output that is NaN. [B]"""
    return outputs.isnan().reshape(len(outputs), -1).any(dim=1)


def counts_of_classes(outputs: Tensor, targets: Tensor) -> dict[str, float]:
    """The counts of a batch of logits [B, C] and class numbers [B], by name."""
    good, classes = ~nan_rows(outputs), outputs.shape[1]
    predicted = outputs.argmax(dim=1)
    pairs = {
        "present": targets,
        "predicted": predicted[good],
        "both": targets[good & (predicted == targets)],
    }
    return dict(_named({what: torch.bincount(where, minlength=classes) for what, where in pairs.items()}))


def counts_of_labels(outputs: Tensor, targets: Tensor) -> dict[str, float]:
    """The counts of a batch of logits [B, C] and tags [B, C], by name; a label above 0 is predicted."""
    predicted, present = outputs > 0, targets > 0
    found = {"present": present, "predicted": predicted, "both": predicted & present}
    return dict(_named({what: where.sum(dim=0) for what, where in found.items()}))


def _named(counts: dict[str, Tensor]) -> Iterator[tuple[str, float]]:
    for what, of_each in counts.items():
        for place, count in enumerate(of_each.tolist()):
            yield f"{what}_{place}", float(count)


def counted(metric: str, tally: Tally) -> dict[str, float]:
    """A metric that is read from counts, by name; nothing where it is undefined."""
    present, predicted, both = _counts(tally)
    if metric == "class_accuracy":
        return {f"{ONE_OF}{c}": float(both[c] / present[c]) for c in np.flatnonzero(present).tolist()}
    there = present > 0
    if metric in ("precision", "f1"):
        there = there | (predicted > 0)
    # A class that occurs and is never predicted has precision 0: the model is to blame, and not the data.
    below = {"precision": np.maximum(predicted, 1), "f1": (present + predicted) / 2}.get(metric, present)[there]
    return {metric: float((both[there] / below).mean())} if there.any() else {}


def _counts(tally: Tally) -> Counts:
    size = sum(name.startswith("present_") for name in tally.sums)
    found = [np.array([tally.sums[f"{w}_{c}"] for c in range(size)]) for w in ("present", "predicted", "both")]
    return cast(Counts, tuple(found))


def auc_of_classes(outputs: Tensor, targets: Tensor) -> float | None:
    """The area under the ROC curve of each class against all others, by its probability; the mean over classes.

    Ranks are those of log(p / (1 - p)), which tells apart what is as good as certain: probabilities of such samples are
    all 1, which would be ties.
    """
    scores, numbers = _log_odds(outputs.double()).numpy(), targets.numpy()
    return _mean(_auc(scores[:, c], numbers == c) for c in range(scores.shape[1]))


def _log_odds(logits: Tensor) -> Tensor:
    """log(p / (1 - p)) of each class by the softmax: its logit less the logarithm of the sum over all others. [n, C]"""
    largest = logits.max(dim=1, keepdim=True)
    first = torch.zeros_like(logits, dtype=torch.bool).scatter_(1, largest.indices, True)
    terms = (logits - largest.values).exp()
    # Beside any other class the largest one stays, which is 1; beside the largest, nothing may be rounded away.
    beside = largest.values + (terms.sum(dim=1, keepdim=True) - terms).clamp(min=1.0).log()
    others = torch.where(first, logits.masked_fill(first, -math.inf).logsumexp(dim=1, keepdim=True), beside)
    return logits - others


def auc_of_labels(outputs: Tensor, targets: Tensor) -> float | None:
    """The area under the ROC curve of each label; the mean over labels."""
    scores, present = outputs.double().numpy(), targets.numpy() > 0
    return _mean(_auc(scores[:, c], present[:, c]) for c in range(scores.shape[1]))


def _auc(scores: np.ndarray, positive: np.ndarray) -> float | None:
    """How often a positive sample scores above a negative one, ties counting half; None without one of either."""
    ones = int(positive.sum())
    zeros = len(positive) - ones
    if not ones or not zeros:
        return None
    scores = np.where(np.isnan(scores), np.where(positive, -math.inf, math.inf), scores)
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    return float((ranks[positive].sum() - ones * (ones + 1) / 2) / (ones * zeros))


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None


def of_rows(
    metrics: Sequence[str | OwnMetric], auc: Callable[[Tensor, Tensor], float | None], tally: Tally
) -> dict[str, float]:
    """The metrics that need all outputs and targets at once, as far as they are defined.

    Raises:
        UserError: a metric of one's own that gives no number.
    """
    wanted = [metric for metric in metrics if metric == "auc" or not isinstance(metric, str)]
    if not wanted or not tally.rows:
        return {}
    outputs, targets = (torch.cat(parts) for parts in zip(*tally.rows, strict=True))
    found: dict[str, float] = {}
    for metric in wanted:
        value = auc(outputs, targets) if isinstance(metric, str) else _own(metric, outputs, targets)
        if value is not None:
            found[name_of(metric)] = value
    return found


def _own(metric: OwnMetric, outputs: Tensor, targets: Tensor) -> float | None:
    found = "raises"
    try:
        value = metric(outputs, targets)
        found = f"gives {value!r:.60}"
        number = float(value)
    except Exception as error:  # whatever the user's function does
        raise UserError(
            f"the metric {name_of(metric)} {found}" + (f" {type(error).__name__}: {error}" * (found == "raises")),
            expected="one number, over all outputs and targets that it is given",
            why="it is recorded of each version, and versions are compared by it",
            fix="return a float, or a tensor of one element; NaN where it is undefined",
        ) from error
    return None if math.isnan(number) else number


def rows_for(metrics: Sequence[str | OwnMetric], outputs: Tensor, targets: Tensor) -> tuple[tuple[Tensor, Tensor], ...]:
    """What `of_rows` needs of a batch; nothing where no metric does."""
    needed = any(metric == "auc" or not isinstance(metric, str) for metric in metrics)
    return ((outputs.detach().cpu().float(), targets.detach().cpu()),) if needed else ()
