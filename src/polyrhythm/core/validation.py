"""What the server takes from a client, and what it does not.

Three rules, in this order:

- An answer that nobody waits for is **ignored**: it changes nothing, and whoever was asked is still waited for.
- An answer that is wrong is **refused**: the visit is over as if it had been lost, and the client goes on from the
  state of its last accepted visit.
- All others are accepted, however long the update is, as long as its length is a number: how much one client may do is
  the release's business.

Each has a kind, under which a run counts it.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from torch import Tensor

from polyrhythm.base.frozen import replace_unchecked
from polyrhythm.base.messages import Fault, Kind, Report, State
from polyrhythm.base.vectors import Buffers, Layout, Slot, all_finite, content_of, first_non_finite, has_length
from polyrhythm.core.sealing import misfit, refused
from polyrhythm.methods.mechanism import Setup
from polyrhythm.methods.recipe import Recipe

NOT_FINITE = "not a finite number"
_NO_LENGTH = "whose length is no number in"
READ = ("not_finite", "missing", "too_far")
"""For what a report is refused whose update was of the model's layout, and was read."""
_UNUSABLE = ("not_finite", "too_far", "no_step", "samples")


def of_no_use(kind: str) -> bool:
    """Whether a report is refused, as of this kind, because of what its client's data made of it."""
    return kind in _UNUSABLE


class Asked(Protocol):
    """What the server remembers of an assignment that is out."""

    @property
    def client(self) -> int: ...
    @property
    def kind(self) -> Kind: ...
    @property
    def visit(self) -> int: ...
    @property
    def version(self) -> int: ...
    @property
    def given_up(self) -> str: ...


def unasked(asked: Asked | None, report: Report, dispatched: int) -> Fault | None:
    """Why nobody waits for a report, if nobody does.

    Args:
        asked: the assignment of that number that is out, if one is.
        report: the answer.
        dispatched: how many assignments there were.
    """
    if asked is None:
        if 0 <= report.dispatch < dispatched:
            return Fault("duplicate", "this visit was answered before, or lost")
        return Fault("not_asked", "nobody was asked for this report")
    if report.client != asked.client or report.kind != asked.kind:
        return Fault("not_asked", f"client {report.client} was not asked for this report, client {asked.client} was")
    if report.version != asked.version or report.visit != asked.visit:
        return Fault(
            "other_version",
            f"the report is of version {report.version}, visit {report.visit}; "
            f"the client was sent version {asked.version}, visit {asked.visit}",
        )
    return None


def on_arrival(recipe: Recipe, asked: Asked, report: Report) -> Fault | None:
    """What is wrong with an answer as it comes, before anything is added to it."""
    if asked.given_up:
        return Fault("late", f"too late: {asked.given_up}")
    if report.recipe != recipe.digest:
        return Fault("recipe", "the report comes from another recipe")
    if report.checksum is not None and report.checksum != checksum(report):
        return Fault("damaged", "the report was damaged on the way: its checksum does not fit")
    return None


def before_use(
    recipe: Recipe, setup: Setup, layout: Layout, parts: Mapping[str, State], report: Report, before: Buffers
) -> Fault | None:
    """What is wrong with a complete report that is to go into a version.

    Args:
        recipe: the method.
        setup: of the run.
        layout: of the model.
        parts: the mechanisms' states.
        report: the answer.
        before: the server's buffers: what is not finite there, as in a mask of attention, may stay so.
    """
    if recipe.sums_only:
        return refused(report) or misfit(recipe, layout, report) or _miscounted(report) or _endless_facts(report)
    found = misshapen(layout, report) or _miscounted(report) or _not_finite(layout, report, before)
    if found is None:
        for key, mechanism in recipe.overriding("refuses"):
            if (found := mechanism.refuses(setup, parts[key], report)) is not None:
                break
    return found


def nothing_of(report: Report, layout: Layout) -> Report:
    """A report in the place of one of which nothing can be used: an update of zero."""
    return replace_unchecked(
        report, update=layout.zeros(), buffers=(), extras={}, measures={}, loss=None, travel=0.0, pull=0.0, rate=0.0
    )


def checksum(report: Report) -> int:
    """CRC-32 of the tensors in a report: its update, its buffers, and what mechanisms sent up."""
    total = 0
    for tensor in _tensors((report.update, report.buffers, report.extras)):
        total = zlib.crc32(content_of(tensor), total)
    return total


def misshapen(layout: Layout, report: Report) -> Fault | None:
    """What is wrong with the shapes and dtypes of a report's update and buffers."""
    update = report.update
    if update is None or update.shape != (layout.size,):
        return Fault("shape", "the update does not have the model's layout")
    if update.dtype != layout.dtype:
        return Fault("dtype", f"the update is {update.dtype}, not the model's layout in {layout.dtype}")
    # A client that did not train has no buffers to offer.
    return misshapen_buffers(layout.buffers if report.fresh else (), report.buffers)


def misshapen_buffers(expected: tuple[Slot, ...], buffers: Buffers) -> Fault | None:
    """What is wrong with the shapes and dtypes of buffers."""
    if len(buffers) != len(expected):
        return Fault("shape", "the buffers do not have the model's layout")
    for buffer, slot in zip(buffers, expected, strict=True):
        if tuple(buffer.shape) != slot.shape:
            return Fault("shape", f"the buffer {slot.name} does not have the model's layout")
        if buffer.dtype != slot.dtype:
            return Fault("dtype", f"the buffer {slot.name} is {buffer.dtype}, not the model's layout in {slot.dtype}")
    return None


def _miscounted(report: Report) -> Fault | None:
    if report.num_samples < 0:
        return Fault("samples", f"the client reports {report.num_samples} samples")
    if report.steps <= 0:
        return Fault("no_step", "no step was possible with the samples it holds")
    return None


def _not_finite(layout: Layout, report: Report, before: Buffers) -> Fault | None:
    """What is no finite number in a report; or has no finite length, and would leave none in the model after it."""
    assert report.update is not None
    if not math.isfinite(report.norm or 0.0):
        if name := first_non_finite(layout, report.update):
            return Fault("not_finite", f"{NOT_FINITE} in the update of {name}")
        return Fault("too_far", f"an update {_NO_LENGTH} {layout.dtype}")
    if (fault := _endless_facts(report)) is not None:
        return fault
    for slot, buffer, known in zip(layout.buffers, report.buffers, before, strict=False):
        if not _has_length(buffer):
            new = buffer[~((buffer == known) | (buffer.isnan() & known.isnan()))]
            if fault := _endless(new, f"the buffer {slot.name}"):
                return fault
    for key, extra in report.extras.items():
        for what, value in extra.items():
            for tensor in _tensors(value):
                if fault := _endless(tensor, f"{key}'s {what}"):
                    return fault
    return None


def diverged(reason: str) -> bool:
    """Whether a report was refused since training has left all numbers, which it seldom comes back from."""
    return reason.startswith(NOT_FINITE) or _NO_LENGTH in reason


def _endless_facts(report: Report) -> Fault | None:
    if math.isfinite(report.travel + report.rate + report.pull):
        return None
    return Fault("not_finite", f"{NOT_FINITE} in travel, rate or pull")


def _endless(tensor: Tensor, what: str) -> Fault | None:
    if _has_length(tensor):
        return None
    if all_finite(tensor):
        return Fault("too_far", f"numbers in {what} {_NO_LENGTH} {tensor.dtype}")
    return Fault("not_finite", f"{NOT_FINITE} in {what}")


def _has_length(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() or has_length(tensor.flatten())


def _tensors(value: Any) -> Iterator[Tensor]:
    """All tensors in a value, in a fixed order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for key in sorted(value):
            yield from _tensors(value[key])
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _tensors(inner)
