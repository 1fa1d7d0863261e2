"""Whether anything comes of a run: one in which no version was made of any report has failed, and must not end as if it
had succeeded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import final

from polyrhythm.base.messages import Lost, Report
from polyrhythm.core.server_state import ServerDecision
from polyrhythm.deployment.outstanding import Heard

PATIENCE = 2
"""Visits in which each client may fail before it is plain that all of them do."""


@final
class Efforts:
    """Counts visits that came to nothing, until a version is made of reports."""

    def __init__(self) -> None:
        self.moved = False
        """Whether a version was made of reports."""
        self._accepted = False
        self._said = self._seen = ""  # the first reason that a node gave itself, and the first one of all
        self._lost = 0
        self._failures: Counter[int] = Counter()
        self._note = ""

    def note(self, heard: Heard, turn: ServerDecision) -> None:
        """Notes what became of an event."""
        if turn.released is not None:
            self.moved |= turn.released.release is not None
            self._note = turn.released.note
        if self.moved or heard.visit is None or turn.verdict is None:
            return
        if turn.verdict.accepted:
            self._accepted |= isinstance(heard.event, Report) and heard.event.kind == "train"
            return
        reason = heard.event.reason if isinstance(heard.event, Lost) else turn.verdict.reason
        words = f"client {heard.visit.assignment.client}: {reason}"
        self._seen, self._said = self._seen or words, self._said or (words if heard.failed else "")
        self._lost += 1
        self._failures[heard.visit.assignment.client] += heard.failed

    def in_vain(self, eligible: Collection[int], *, over: bool) -> str:
        """Why a run of which nothing comes must end; empty while something may.

        Args:
            eligible: the clients that may be invited.
            over: whether the run has all its versions.
        """
        if self.moved:
            return ""
        if self._lost and not self._accepted:
            if over or all(self._failures[client] >= PATIENCE for client in eligible):
                first = self._said or self._seen
                return f"no report was accepted in {self._lost} visits, so nothing was learnt. {first}"
        elif over:
            return f"no version was made of any report, so nothing was learnt. The last one: {self._note}"
        return ""
