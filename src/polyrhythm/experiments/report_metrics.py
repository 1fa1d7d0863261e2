"""Measures of what clients send: they read each report's vectors, and change none of them.

A measure is chosen with `Evaluation(measure=...)`, or `evaluation.measure` in an experiment file; by default there is
none. What it finds is in the record: `measures_...` of a visit or of a version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import torch
from torch import Tensor

from polyrhythm.base.messages import Assignment, Report


class Gauge:
    """Base of a measure: hears of every visit that trained, and of every version."""

    def visit(self, assignment: Assignment, report: Report, *, counts: bool) -> Mapping[str, float]:
        """Named numbers for the record of a visit.

        Args:
            assignment: what the client was sent.
            report: what it sent back, with its update.
            counts: whether the server accepted it.
        """
        return {}

    def version(self) -> Mapping[str, float]:
        """Named numbers for the record of a version, of which all updates have been heard."""
        return {}


@final
class UpdateSimilarity(Gauge):
    """How far the updates of a version agree: the mean cosine over all pairs of them.

    With u_i = Delta_i / |Delta_i| for the n updates that are not zero, (|sum u_i|^2 - n) / (n (n - 1)); so one vector
    is kept, and none per client. Nothing with fewer than two. Estimated updates do not count: they were not made now.
    One read of each update.

    Recorded of a version: `update_similarity`.
    """

    def __init__(self) -> None:
        self._sum: Tensor | None = None
        self._count = 0

    def visit(self, assignment: Assignment, report: Report, *, counts: bool) -> Mapping[str, float]:
        update = report.update
        if update is None or not counts or not report.norm:
            return {}
        unit = update.double() / torch.linalg.vector_norm(update.double())
        self._sum = unit if self._sum is None else self._sum + unit
        self._count += 1
        return {}

    def version(self) -> Mapping[str, float]:
        total, n = self._sum, self._count
        self._sum, self._count = None, 0
        if total is None or n < 2:
            return {}
        return {"update_similarity": (total.square().sum().item() - n) / (n * (n - 1))}


@final
class EstimationError(Gauge):
    """How well a client's past foretells what it sends when it trains again: CCFL's figure 2.

    With w the model that client i was sent, Delta its update, and w', Delta' those of its last visit that trained:

        Strategy 2 (its last model)     error |w' + Delta' - (w + Delta)|^2    cosine of w' + Delta' - w and Delta
        Strategy 3 (its last movement)  error |Delta' - Delta|^2               cosine of Delta' and Delta

    Recorded of a visit: `estimate_model_error`, `estimate_model_cosine`, `estimate_movement_error` and
    `estimate_movement_cosine`; none of a client's first one. Two vectors per client that has trained, and a copy of
    each; a run that goes on after its process was killed remembers none of them.

    Departure: for the cosine of Strategy 2 the caption has <Delta', w' + Delta' - w>; the text compares the way to the
    estimate with the way to the true model, which is what is computed here.

    Reference: Zhang et al., "CCFL: Computationally Customized Federated Learning", figure 2.
    """

    def __init__(self) -> None:
        self._last: dict[int, tuple[Tensor, Tensor]] = {}

    def visit(self, assignment: Assignment, report: Report, *, counts: bool) -> Mapping[str, float]:
        if report.update is None or not counts:
            return {}
        update = report.update.double()
        model = assignment.weights.double() + update
        earlier = self._last.get(report.client)
        self._last[report.client] = (model.to(report.update.dtype), report.update.clone())
        if earlier is None:
            return {}
        last_model, last_update = (vector.double() for vector in earlier)
        way = last_model - assignment.weights.double()
        return {
            "estimate_model_error": (last_model - model).square().sum().item(),
            "estimate_model_cosine": _cosine(way, update),
            "estimate_movement_error": (last_update - update).square().sum().item(),
            "estimate_movement_cosine": _cosine(last_update, update),
        }


def _cosine(one: Tensor, other: Tensor) -> float:
    """Of two vectors [P]; 0 where one of them is zero."""
    lengths = torch.linalg.vector_norm(one) * torch.linalg.vector_norm(other)
    return (one @ other / lengths).item() if lengths else 0.0


GAUGES: Mapping[str, type[Gauge]] = {"update_similarity": UpdateSimilarity, "estimation_error": EstimationError}
"""Measures of reports, by name."""
