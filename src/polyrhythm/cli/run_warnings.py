"""The observer that can say what a run could not use, or should be looked at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import final

from polyrhythm.base.faults import IGNORED, told
from polyrhythm.runs.ledger import OUTLIER
from polyrhythm.runs.observer import Observer
from polyrhythm.runs.records import ModelView, Plan, VersionRecord, VisitRecord, about_loss

_NAMED = 3
_LIMITS = ("clip_updates", "median", "trimmed_mean")


@final
class Refused(Observer):
    """Counts what a run could not use, and remembers the first clients that were dropped by name and reason."""

    def __init__(self) -> None:
        self._all = self._dropped = 0
        self._first: dict[tuple[int, str], int] = {}
        self._faults: Mapping[str, int] = {}
        self._recipe = self._loss = ""

    def begin(self, plan: Plan) -> None:
        """Nothing is dropped yet."""
        self._recipe = plan.recipe

    def visit(self, record: VisitRecord) -> None:
        """Takes a visit into account."""
        self._all += 1
        if record.status in ("dropped", "late", "lost"):
            self._dropped += 1
            self._first.setdefault((record.client, record.reason), record.version)

    def version(self, record: VersionRecord, model: ModelView) -> None:
        """Keeps what else went wrong."""
        self._faults = record.faults
        self._loss = self._loss or about_loss(record)

    def notices(self) -> Iterator[str]:
        """One line if anybody was dropped, in which a client is named once for each reason, and one for all else."""
        if self._loss:
            yield self._loss
        if ignored := told({kind: self._faults.get(kind, 0) for kind in IGNORED}):
            yield f"reports that nobody waited for were ignored: {ignored}"
        if many := self._faults.get("outlier"):
            they = "update was" if many == 1 else "updates were"
            known = any(part in self._recipe for part in _LIMITS)
            advice = "" if known else f"; {', '.join(_LIMITS)} limit what one client can do"
            yield f"{many:,} accepted {they} more than {OUTLIER:g} times as long as the median of those before{advice}"
        if not self._dropped:
            return
        named = [f"client {c} on version {v}: {reason}" for (c, reason), v in list(self._first.items())[:_NAMED]]
        more = len(self._first) - _NAMED
        rest = f"; and {more} more" if more > 0 else ""
        yield f"{self._dropped:,} of {self._all:,} client visits were dropped ({'; '.join(named)}{rest})"
