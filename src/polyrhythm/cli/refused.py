"""The observer that can say whose work a run could not use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, final

from polyrhythm.runs.records import ModelView, Plan, RunStatus, VersionRecord, VisitRecord

_NAMED = 3


@final
class Refused:
    """Counts the visits that a run dropped, and remembers the first clients by name and reason."""

    def __init__(self) -> None:
        self._all = self._dropped = 0
        self._first: dict[tuple[int, str], int] = {}

    def begin(self, plan: Plan) -> None:
        """Nothing is dropped yet."""

    def visit(self, record: VisitRecord) -> None:
        """Takes a visit into account."""
        self._all += 1
        if record.status in ("dropped", "late", "lost"):
            self._dropped += 1
            self._first.setdefault((record.client, record.reason), record.version)

    def version(self, record: VersionRecord, model: ModelView) -> None:
        """A version drops nobody."""

    def end(self, status: RunStatus, reason: str, summary: Mapping[str, Any]) -> None:
        """What was counted stays."""

    def notices(self) -> Iterator[str]:
        """One line, if anybody was dropped; a client is named once for each reason."""
        if not self._dropped:
            return
        named = [f"client {c} on version {v}: {reason}" for (c, reason), v in list(self._first.items())[:_NAMED]]
        more = len(self._first) - _NAMED
        rest = f"; and {more} more" if more > 0 else ""
        yield f"{self._dropped:,} of {self._all:,} client visits were dropped ({'; '.join(named)}{rest})"
