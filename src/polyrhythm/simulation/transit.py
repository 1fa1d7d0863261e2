"""What becomes of reports between clients and the server, where a fleet's faults say that something does."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import final

import numpy as np
import torch
from torch import Tensor

from polyrhythm.base.frozen import replace_unchecked
from polyrhythm.base.messages import Fault, Report
from polyrhythm.base.streams import stream
from polyrhythm.base.vectors import Layout
from polyrhythm.core.sealing import refusing
from polyrhythm.core.validation import checksum
from polyrhythm.fleet import Faults

_BITS = 4
"""How many bits of a corrupt report are flipped."""


@final
class Transit:
    """Reports on their way.

    Args:
        faults: how often what goes wrong.
        seed: the experiment's; every draw is named by the fault and the report.
        layout: of updates.
        largest: the largest whole number that a client adds to a sum, where updates are such.
    """

    def __init__(self, faults: Faults, seed: int, layout: Layout, largest: float = math.inf) -> None:
        self._faults, self._seed, self._layout, self._largest = faults, seed, layout, largest

    def arrives(self, report: Report) -> Report:
        """What the server hears: the report, or what has become of it. Only what trained can be spoiled."""
        faults = self._faults
        if not report.fresh or report.update is None:
            return report
        if draws := self.happens("nan", faults.nan, report):
            report = self._with_nan(report, report.update, draws)
        if self.happens("inflate", faults.inflate, report):
            report = self._longer(report)
        if report.update is None:
            return report
        if draws := self.happens("malformed", faults.malformed, report):
            report = _MALFORMED[int(draws.integers(len(_MALFORMED)))](report)
        if faults.corrupt and faults.checksum:
            report = replace_unchecked(report, checksum=checksum(report))
        if (draws := self.happens("corrupt", faults.corrupt, report)) and report.update is not None:
            report = replace(report, update=_flipped(report.update, draws))
        return report

    def beside(self, report: Report) -> Iterator[Report]:
        """What else arrives: what nobody asked for while the visit is under way, and the report again after it."""
        if draws := self.happens("stray", self._faults.stray, report):
            spoiler = _STRAY[int(draws.integers(len(_STRAY)))]
            yield _moved(spoiler(report), -float(draws.random()))
        if draws := self.happens("duplicate", self._faults.duplicate, report):
            yield _moved(report, float(draws.random()))

    def happens(self, what: str, share: float, report: Report) -> np.random.Generator | None:
        """The stream for what is to be drawn about a fault; None if it does not happen."""
        if not share:
            return None
        draws = stream(self._seed, "fault", what, report.dispatch)
        return draws if draws.random() < share else None

    def _with_nan(self, report: Report, update: Tensor, draws: np.random.Generator) -> Report:
        if not update.is_floating_point():
            return refusing(report, Fault("not_finite", "not a finite number in the update, as the client says"))
        segment = self._layout.segments[int(draws.integers(len(self._layout.segments)))]
        spoiled = update.clone()
        if segment.size:
            spoiled[segment.offset + int(draws.integers(segment.size))] = torch.nan
        return replace(report, update=spoiled)

    def _longer(self, report: Report) -> Report:
        update, factor = report.update, self._faults.inflation
        if update is None or update.is_floating_point():
            return report if update is None else replace(report, update=update * factor)
        longer = update.double() * factor
        if update.numel() and float(longer.abs().max()) > self._largest:
            return refusing(report, Fault("too_far", "an entry beyond the limit, as the client says"))
        return replace(report, update=longer.round().to(update.dtype))


def _moved(report: Report, share: float) -> Report:
    """The report, heard later by a share of its duration."""
    return report.heard(after=report.duration * (1 + share), at=report.time + share * report.duration)


def _flipped(update: Tensor, draws: np.random.Generator) -> Tensor:
    """The update with some bits flipped, all of them others."""
    spoiled = update.contiguous().clone()
    raw = spoiled.view(torch.uint8).numpy()
    for place in draws.choice(8 * len(raw), size=min(_BITS, 8 * len(raw)), replace=False):
        raw[place // 8] ^= np.uint8(1 << (place % 8))
    return spoiled


def _of_another_dtype(report: Report) -> Report:
    update = report.update
    assert update is not None
    return replace(report, update=update.to(torch.float32 if update.dtype == torch.float64 else torch.float64))


_Spoiler = Callable[[Report], Report]
_MALFORMED: tuple[_Spoiler, ...] = (
    lambda report: replace(report, update=None if report.update is None else report.update[1:]),
    _of_another_dtype,
    lambda report: replace(report, recipe="0" * 64),
    lambda report: replace(report, num_samples=-1),
    lambda report: replace(report, update=None, extras={}),
)
_STRAY: tuple[_Spoiler, ...] = (
    lambda report: replace(report, client=report.client + 1),
    lambda report: replace(report, version=report.version - 1),
    lambda report: replace(report, dispatch=report.dispatch + 10**9),
)
