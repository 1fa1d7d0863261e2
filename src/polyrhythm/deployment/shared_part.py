"""What travels of vectors where a part of the model stays at clients: the shared coordinates, one after the other.

Before a client's first visit that counts it has no part of its own, so it is sent all of the model once. From then on
neither way carries a personal coordinate, or a personal buffer. An update carries what clients train, and no more.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, final

import torch
from torch import Tensor

from polyrhythm.base.messages import Assignment, Report, State
from polyrhythm.base.vectors import Buffers, Layout, Spans, spans_of
from polyrhythm.core.returned import returned
from polyrhythm.methods.personal.scope import Part
from polyrhythm.methods.recipe import Recipe


@final
class SharedPart:
    """Makes vectors shorter before they travel, and as long as they were when they have arrived.

    Args:
        recipe: what is shared, and what of it comes back.
        layout: of the vectors.
    """

    def __init__(self, recipe: Recipe, layout: Layout) -> None:
        self._recipe, self._own, self._layout = recipe, recipe.scope.own(layout), layout
        self.layout = recipe.scope.shared(layout)
        """Names what travels."""
        self.spans: Spans = spans_of(self.layout)
        """(offset, size) of each parameter in what is coded."""
        self.index: Tensor | None = None
        """Which coordinates travel, where that has to be said."""
        self._part = Part(segments=self.layout.segments)
        self._last: tuple[Tensor, Tensor] | None = None

    def sent(self, assignment: Assignment) -> Assignment:
        """An assignment as it travels."""
        if not self._own or assignment.accepted < 0:
            return assignment
        if self._last is None or self._last[0] is not assignment.weights:
            self._last = assignment.weights, self._part.of(assignment.weights)  # the same goes to many
        return dataclasses.replace(
            assignment,
            weights=self._last[1],
            buffers=self._few(assignment.buffers),
            briefs=self._each(assignment.briefs, self._short),
        )

    def received(self, assignment: Assignment) -> Assignment:
        """The assignment again: zero on the personal part, which the client puts its own in place of."""
        if not self._own or assignment.accepted < 0:
            return assignment
        return dataclasses.replace(
            assignment,
            weights=self._long(assignment.weights),
            buffers=self._all(assignment.buffers),
            briefs=self._each(assignment.briefs, self._long),
        )

    def answered(self, report: Report) -> Report:
        """A report as it travels. A compressed update is coded as it is: what is zero in it costs nothing."""
        back = self._back(report.version)
        if not self._own and back is self.layout:
            return report
        plain = report.update is not None and report.packed is None
        update = self._short(report.update, Part(segments=back.segments)) if plain else report.update
        extras = self._each(report.extras, self._short)
        return dataclasses.replace(report, update=update, buffers=self._few(report.buffers), extras=extras)

    def heard(self, report: Report) -> Report:
        """The report again; what does not have the length that it should have stays as it is, to be found out."""
        back = self._back(report.version)
        if not self._own and back is self.layout:
            return report
        plain = report.update is not None and report.packed is None
        update = self._long(report.update, Part(segments=back.segments)) if plain else report.update
        extras = self._each(report.extras, self._long)
        return dataclasses.replace(report, update=update, buffers=self._all(report.buffers), extras=extras)

    def _back(self, version: int) -> Layout:
        """Names what an update of a visit to a version carries."""
        return returned(self._recipe, self.layout, version)

    def _short(self, value: Any, part: Part | None = None) -> Any:
        vector = isinstance(value, Tensor) and value.shape == (self._layout.size,)
        return (part or self._part).of(value) if vector else value

    def _long(self, value: Any, part: Part | None = None) -> Any:
        part = part or self._part
        if not isinstance(value, Tensor) or value.shape != (part.size,):
            return value
        return part.put(torch.zeros(self._layout.size, dtype=value.dtype), value)

    def _each(self, states: Mapping[str, State], change: Any) -> dict[str, State]:
        return {key: {name: change(value) for name, value in state.items()} for key, state in states.items()}

    def _few(self, buffers: Buffers) -> Buffers:
        return tuple(buffer for place, buffer in enumerate(buffers) if place not in self._own.buffers)

    def _all(self, buffers: Buffers) -> Buffers:
        if not self._own.buffers or len(buffers) != len(self.layout.buffers):
            return buffers
        shared = iter(buffers)
        return tuple(
            torch.zeros(slot.shape, dtype=slot.dtype) if place in self._own.buffers else next(shared)
            for place, slot in enumerate(self._layout.buffers)
        )
