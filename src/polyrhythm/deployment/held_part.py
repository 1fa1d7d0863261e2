"""What travels of vectors where a client holds a part of the model: the coordinates that it holds, one after the other.

Both ends derive them from the same facts: the experiment's seed, the client, its visit and the version. Where they
follow from the weights, as the largest of them do, an index goes along: a bit for each coordinate that might be one.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import final

import torch
from torch import Tensor

from polyrhythm.base.messages import Assignment, Report
from polyrhythm.base.portions import Portion, mapped
from polyrhythm.base.vectors import Buffers, Layout, Spans
from polyrhythm.core.portions import outline_of, portion_of
from polyrhythm.core.returned import returned
from polyrhythm.core.validation import misshapen_buffers
from polyrhythm.deployment.messages import Malformed, Order
from polyrhythm.methods.mechanism import Setup
from polyrhythm.methods.recipe import Recipe


@final
class HeldPart:
    """Makes the vectors of one visit shorter before they travel, and as long as they were when they have arrived.

    Args:
        recipe: the method, which says what of an update comes back.
        layout: of the whole model.
        portion: what the client holds.
        sent: the assignment of the visit, whose buffers a report's are put into.
    """

    def __init__(self, recipe: Recipe, layout: Layout, portion: Portion, sent: Assignment) -> None:
        self._recipe, self._layout, self._portion, self._sent = recipe, layout, portion, sent
        self._there = portion.places[0]
        back = returned(recipe, portion.layout, sent.version)
        sizes = [segment.size for segment in back.segments]
        self.spans: Spans = tuple(zip(itertools.accumulate([0, *sizes]), sizes, strict=False))
        """(offset, size) of each parameter in an update as it travels."""
        self._back = self._there
        if back is not portion.layout:
            carried = torch.zeros(layout.size, dtype=torch.bool)
            for segment in returned(recipe, layout, sent.version).segments:
                carried.narrow(0, segment.offset, segment.size).fill_(True)
            self._back = self._there[carried[self._there]]

    @property
    def index(self) -> Tensor | None:
        """Which coordinates travel, where that has to be said."""
        return self._portion.index

    def sent(self, assignment: Assignment) -> Assignment:
        """An assignment as it travels."""
        return dataclasses.replace(
            assignment,
            weights=self._short(assignment.weights),
            buffers=self._portion.taken_buffers(assignment.buffers),
            briefs=mapped(assignment.briefs, self._short),
        )

    def received(self, assignment: Assignment) -> Assignment:
        """The assignment again: zero wherever the client holds nothing, which nobody reads.

        What does not have its length stays as it is, to be found out.
        """
        buffers = assignment.buffers
        if misshapen_buffers(self._portion.layout.buffers, buffers) is None:
            buffers = self._portion.put_buffers(buffers, _zeros(self._layout))
        return dataclasses.replace(
            assignment,
            weights=self._long(assignment.weights),
            buffers=buffers,
            briefs=mapped(assignment.briefs, self._long),
        )

    def answered(self, report: Report) -> Report:
        """A report as it travels."""
        update = None if report.update is None else report.update[self._back]
        buffers = self._portion.taken_buffers(report.buffers) if report.buffers else ()
        extras = mapped(report.extras, self._short)
        return dataclasses.replace(report, update=update, buffers=buffers, extras=extras)

    def heard(self, report: Report) -> Report:
        """The report again.

        Raises:
            Malformed: it carries anything else than what its client holds.
        """
        update, buffers = report.update, report.buffers
        if update is not None:
            if update.shape != self._back.shape:
                raise Malformed(
                    f"what does not fit: an update of shape {tuple(update.shape)}, where its client holds "
                    f"{len(self._back):,} numbers of it",
                    "shape",
                )
            update = _put(self._back, update, self._layout.size)
        if buffers:
            if (fault := misshapen_buffers(self._portion.layout.buffers, buffers)) is not None:
                raise Malformed(f"what does not fit: {fault.words}", fault.kind)
            buffers = self._portion.put_buffers(buffers, self._sent.buffers)
        extras = mapped(report.extras, self._heard)
        return dataclasses.replace(report, update=update, buffers=buffers, extras=extras)

    def _heard(self, tensor: Tensor) -> Tensor:
        if tensor.shape == (self._layout.size,):
            raise Malformed("what does not fit: a vector of the whole model, of which its client holds a part", "shape")
        return self._long(tensor)

    def _short(self, tensor: Tensor) -> Tensor:
        return tensor[self._there] if tensor.shape == (self._layout.size,) else tensor

    def _long(self, tensor: Tensor) -> Tensor:
        return _put(self._there, tensor, self._layout.size) if tensor.shape == self._there.shape else tensor


def held_part(recipe: Recipe, setup: Setup, layout: Layout, sent: Assignment) -> HeldPart | None:
    """What travels of a visit, for the server; None if its client holds all of the model."""
    portion = portion_of(recipe, setup, sent, sent.weights)
    return None if portion is None else HeldPart(recipe, layout, portion, sent)


def part_of_order(recipe: Recipe, setup: Setup, layout: Layout, order: Order) -> HeldPart | None:
    """What travels of a visit, for its node, which does not have all weights; None if that is all of them, or unclear.

    Args:
        recipe: the method.
        setup: what is fixed for the run, with the numbers of the order.
        layout: of the whole model.
        order: as it came.
    """
    if recipe.capacity.whole:
        return None
    portion = outline_of(recipe, setup, order.assignment)
    if portion is not None and portion.index_bytes:
        portion = None if order.held is None else portion.indexed(order.held)
    return None if portion is None else HeldPart(recipe, layout, portion, order.assignment)


def _put(places: Tensor, values: Tensor, size: int) -> Tensor:
    whole = torch.zeros(size, dtype=values.dtype)
    whole[places] = values
    return whole


def _zeros(layout: Layout) -> Buffers:
    return tuple(torch.zeros(slot.shape, dtype=slot.dtype) for slot in layout.buffers)
