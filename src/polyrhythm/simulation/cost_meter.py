"""What visits ask of devices: samples, floating-point operations, and bytes on the wire."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from polyrhythm.base.frozen import new_unchecked
from polyrhythm.base.messages import Assignment, Report
from polyrhythm.base.vectors import Buffers, Layout, bytes_of
from polyrhythm.core.visit_plan import VisitPlan
from polyrhythm.fleet import Load
from polyrhythm.methods.personal.scope import Scope
from polyrhythm.methods.recipe import Recipe
from polyrhythm.models.flops import Cost

_NOTHING = Cost(forward=0, training=0)


@final
class Meter:
    """Measures visits.

    Args:
        layout: of the vectors.
        cost: floating-point operations per sample; asked for once, at the first visit.
        scope: what of them travels; all, if None. What stays at a client is sent to it once, at the beginning.
    """

    def __init__(self, layout: Layout, cost: Callable[[], Cost] = lambda: _NOTHING, scope: Scope | None = None) -> None:
        self._whole, self._ask = layout, cost
        self._layout = layout if scope is None else scope.shared(layout)
        self._shared: frozenset[str] | None = None
        if len(self._layout.buffers) < len(layout.buffers):
            self._shared = frozenset(slot.name for slot in self._layout.buffers)
        self._cost: Cost | None = None

    def load(self, assignment: Assignment, report: Report) -> Load:
        """The work in one visit."""
        samples = report.samples + report.gradient_samples
        return self._load(assignment, samples, report.forward_samples, self._sent_up(report))

    def planned(self, assignment: Assignment, plan: VisitPlan) -> Load:
        """The work in a visit of which the plan is sure."""
        samples = plan.samples + plan.gradient_samples
        buffers = () if plan.work.substitute else assignment.buffers
        up = self._update(plan.packed, buffers, plan.vectors) if plan.sends else 1
        return self._load(assignment, samples, plan.forward_samples, up)

    def ahead(self, recipe: Recipe, assignment: Assignment, samples: int, forward_samples: int) -> Load:
        """The work in a training visit to come, on so many samples: no report of it is larger."""
        up = self._update(recipe.compression.size(self._layout), assignment.buffers, recipe.extra_vectors)
        return self._load(assignment, samples, forward_samples, up)

    def _update(self, packed: int | None, buffers: Buffers, vectors: int) -> int:
        """What an update costs on the wire, with what is beside it."""
        update = self._layout.vector_bytes if packed is None else packed
        return update + self._size(buffers) + self._layout.vector_bytes * vectors

    def _load(self, assignment: Assignment, samples: int, forward_samples: int, up: int) -> Load:
        if self._cost is None:
            self._cost = self._ask()
        forward = (samples + forward_samples) * self._cost.forward
        return new_unchecked(
            Load,
            samples=samples,
            forward_samples=forward_samples,
            flops=forward + samples * self._cost.backward,
            forward_flops=forward,
            bytes_down=self._sent_down(assignment),
            bytes_up=up,
        )

    def _sent_down(self, assignment: Assignment) -> int:
        new = assignment.accepted < 0
        model = self._whole.vector_bytes if new else self._layout.vector_bytes
        beside = _size(assignment.buffers) if new else self._size(assignment.buffers)
        return model + beside + (bytes_of(assignment.briefs, self._layout) if assignment.briefs else 0)

    def _sent_up(self, report: Report) -> int:
        """What a report costs on the wire; a bare word that a client skips is one byte."""
        if report.kind != "train":
            return bytes_of(report.measures, self._layout)
        if report.update is None:
            return 1
        extras = bytes_of(report.extras, self._layout) if report.extras else 0
        return self._update(report.packed, report.buffers, 0) + extras

    def _size(self, buffers: Buffers) -> int:
        """Bytes of those buffers that are shared."""
        if self._shared is None or not buffers:
            return _size(buffers)
        named = zip(self._whole.buffers, buffers, strict=True)
        return _size(tuple(buffer for slot, buffer in named if slot.name in self._shared))


def _size(buffers: Buffers) -> int:
    return sum(b.numel() * b.element_size() for b in buffers) if buffers else 0
