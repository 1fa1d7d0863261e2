"""What visits ask of devices: samples, floating-point operations, and bytes on the wire."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import final

from polyrhythm.base.frozen import new_unchecked
from polyrhythm.base.messages import Assignment, Report, State
from polyrhythm.base.portions import Portion
from polyrhythm.base.vectors import Buffers, Layout, bytes_of
from polyrhythm.core.visit_plan import VisitPlan
from polyrhythm.fleet import Load
from polyrhythm.methods.personal.scope import Scope
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.secure_sum.secagg import Ceremony
from polyrhythm.models.flops import Cost

_NOTHING = Cost(forward=0, training=0)


@final
class Meter:
    """Measures visits.

    Args:
        layout: of the vectors.
        cost: floating-point operations per sample; asked for once, at the first visit.
        scope: what of them travels; all, if None. What stays at a client is sent to it once, at the beginning.
        portion: what a client holds of the model on a visit, None for all of it.
        cost_of: floating-point operations per sample of such a part; asked for once for parts of the same sizes.
        packed: bytes of a compressed update of a part, where its visit was planned without knowing the part.
        ceremony: what travels around a visit that trains where single updates are hidden in a sum.
        apart: names of buffers that do not travel.
        returned: what an update of a visit to a version carries, of what is shared; all of it, as it stands.
    """

    def __init__(
        self,
        layout: Layout,
        cost: Callable[[], Cost] = lambda: _NOTHING,
        scope: Scope | None = None,
        portion: Callable[[Assignment], Portion | None] = lambda assignment: None,
        cost_of: Callable[[Portion], Cost] = lambda portion: _NOTHING,
        packed: Callable[[Layout], int | None] | None = None,
        ceremony: Ceremony | None = None,
        apart: frozenset[str] = frozenset(),
        returned: Callable[[Layout, int], Layout] = lambda shared, version: shared,
    ) -> None:
        self._ceremony, self._apart, self._returned = ceremony, apart, returned
        self._whole, self._ask, self._portion, self._ask_of, self._packed = layout, cost, portion, cost_of, packed
        self._layout = layout if scope is None else scope.shared(layout)
        self._shared: frozenset[str] | None = None
        if apart or len(self._layout.buffers) < len(layout.buffers):
            self._shared = frozenset(slot.name for slot in self._layout.buffers) - apart
        self._cost: Cost | None = None
        self._costs: dict[Hashable, Cost] = {}

    def load(self, assignment: Assignment, report: Report) -> Load:
        """The work in one visit."""
        part = self._portion(assignment)
        samples = report.samples + report.gradient_samples
        return self._load(assignment, part, samples, report.forward_samples, self._sent_up(report, part))

    def planned(self, assignment: Assignment, plan: VisitPlan) -> Load:
        """The work in a visit of which the plan is sure."""
        part = self._portion(assignment)
        samples = plan.samples + plan.gradient_samples
        buffers = () if plan.work.substitute else assignment.buffers
        up = self._update(part, plan.packed, buffers, plan.vectors, assignment.version) if plan.sends else 1
        return self._load(assignment, part, samples, plan.forward_samples, up)

    def ahead(self, recipe: Recipe, assignment: Assignment, samples: int, forward_samples: int) -> Load:
        """The work in a training visit to come, on so many samples: no report of it is larger."""
        part = self._portion(assignment)
        packed = recipe.compression.size(self._back(part, assignment.version))
        up = self._update(part, packed, assignment.buffers, recipe.extra_vectors, assignment.version)
        return self._load(assignment, part, samples, forward_samples, up)

    def _update(self, part: Portion | None, packed: int | None, buffers: Buffers, vectors: int, version: int) -> int:
        """What an update costs on the wire, with what is beside it."""
        back = self._back(part, version)
        if part is not None and packed is not None and self._packed is not None:
            packed = self._packed(back)
        beside = self._size(buffers, part) + (self._vector(part) * vectors if vectors else 0)
        return (back.vector_bytes if packed is None else packed) + beside

    def _back(self, part: Portion | None, version: int) -> Layout:
        """What an update carries of what was sent."""
        return self._returned(self._layout if part is None else part.layout, version)

    def _vector(self, part: Portion | None) -> int:
        """What one vector costs on the wire."""
        return (self._layout if part is None else part.layout).vector_bytes

    def _load(self, assignment: Assignment, part: Portion | None, samples: int, forward_samples: int, up: int) -> Load:
        cost = self._cost_of(part)
        forward = (samples + forward_samples) * cost.forward
        around = self._ceremony if assignment.kind == "train" else None
        return new_unchecked(
            Load,
            samples=samples,
            forward_samples=forward_samples,
            flops=forward + samples * cost.backward,
            forward_flops=forward,
            bytes_down=self._sent_down(assignment, part) + (0 if around is None else around.down),
            bytes_up=up + (0 if around is None else around.up),
            effort=1.0 if part is None else self._effort(cost),
            turns=0 if around is None else around.turns,
        )

    def _effort(self, cost: Cost) -> float:
        """Operations for a sample of a part, over those of the whole model; 1 where nobody counts."""
        whole = self._cost_of(None).training
        return cost.training / whole if whole else 1.0

    def _cost_of(self, part: Portion | None) -> Cost:
        """Floating-point operations per sample, of all of the model or of a part."""
        if part is not None:
            if part.key not in self._costs:
                self._costs[part.key] = self._ask_of(part)
            return self._costs[part.key]
        if self._cost is None:
            self._cost = self._ask()
        return self._cost

    def _sent_down(self, assignment: Assignment, part: Portion | None) -> int:
        if part is None and assignment.accepted < 0:  # a new client has what will be its own as well
            model = self._whole.vector_bytes
            beside = self._size(assignment.buffers, None) if self._apart else _size(assignment.buffers)
        else:
            model, beside = self._vector(part), self._size(assignment.buffers, part)
        indices = 0 if part is None else part.index_bytes
        return model + beside + indices + self._beside(assignment.briefs, part)

    def _sent_up(self, report: Report, part: Portion | None) -> int:
        """What a report costs on the wire; a bare word that a client skips is one byte."""
        if report.kind != "train":
            return bytes_of(report.measures, self._layout)
        if report.update is None:
            return 1
        update = self._update(part, report.packed, report.buffers, 0, report.version)
        return update + self._beside(report.extras, part)

    def _beside(self, states: Mapping[str, State], part: Portion | None) -> int:
        """What mechanisms send, of which a vector is as long as the part."""
        if not states:
            return 0
        return bytes_of(states, self._layout, None if part is None else part.layout.vector_bytes)

    def _size(self, buffers: Buffers, part: Portion | None) -> int:
        """Bytes of those buffers that are shared, or of the part of them."""
        if part is not None and buffers:
            return part.buffer_bytes(self._apart)
        if self._shared is None or not buffers:
            return _size(buffers)
        named = zip(self._whole.buffers, buffers, strict=True)
        return _size(tuple(buffer for slot, buffer in named if slot.name in self._shared))


def _size(buffers: Buffers) -> int:
    return sum(b.numel() * b.element_size() for b in buffers) if buffers else 0
