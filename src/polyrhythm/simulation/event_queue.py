"""What is yet to happen in a run, in order."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final

from polyrhythm.base.messages import Arrived, Assignment, Event, Lost, Report, Timer
from polyrhythm.core.client_state import Memory
from polyrhythm.core.server_state import ServerState
from polyrhythm.fleet import Load, Remembered, VisitOutcome


@final
@dataclass(frozen=True, kw_only=True)
class Underway:
    """A visit on its way, as the simulation knows it already: what it will have been at its end.

    Args:
        started: when, in virtual seconds since the run began.
        assignment: what was to be done.
        report: the client's.
        load: the work in it.
        outcome: when and how it ends, and what it costs.
        heard: what has become of the report on its way to the server; None if nothing has.
        foreseen: whether the report says only how much work it is, since somebody is still at it.
    """

    started: float
    assignment: Assignment
    report: Report
    load: Load
    outcome: VisitOutcome
    heard: Report | None = None
    foreseen: bool = False

    @property
    def end(self) -> Event:
        """What the server hears of it."""
        if not self.outcome.lost:
            return self.report if self.heard is None else self.heard
        outcome = self.outcome
        return Lost(dispatch=self.assignment.dispatch, reason=outcome.lost, time=outcome.time, fault=outcome.fault)


Expected = Underway | Report | Arrived | Timer
Entry = tuple[float, int, int, Expected]
"""Time, kind and number of an event. Of events at one time, visits come first, then what comes beside them, then
arrivals, then timers: a report that is there when the deadline passes is in time."""
VISIT, BESIDE, ARRIVAL, TIMER = range(4)


@final
@dataclass
class Agenda:
    """What is yet to happen.

    Args:
        heap: the events, the next one first.
        made: arrivals, timers and what came beside visits so far: their next number.
        visits: how many visits are in it.
        expected: when the server will be told of the next client that comes, since it wants some.
        timer: when it is woken next.
    """

    heap: list[Entry] = field(default_factory=list)
    made: int = 0
    visits: int = 0
    expected: float = math.inf
    timer: float | None = None

    def add(self, time: float, kind: int, number: int, what: Expected) -> None:
        """Puts an event in its place."""
        self.visits += kind == VISIT
        heapq.heappush(self.heap, (time, kind, number, what))

    def pop(self) -> tuple[float, Expected]:
        """Takes the next event out."""
        time, kind, _, what = heapq.heappop(self.heap)
        self.visits -= kind == VISIT
        return time, what

    def under_way(self) -> list[Underway]:
        """The visits in it, by dispatch number."""
        visits = [what for *_, what in self.heap if isinstance(what, Underway)]
        return sorted(visits, key=lambda visit: visit.assignment.dispatch)


@final
@dataclass(frozen=True, kw_only=True)
class DriverState:
    """All that a driver knows between two events: with the experiment, all it needs to go on.

    Args:
        server: the server's state.
        agenda: what is yet to happen, visits under way included.
        now: virtual seconds since the run began.
        clients: what clients remember.
        world: what the fleet remembers.
    """

    server: ServerState
    agenda: Agenda
    now: float
    clients: Mapping[int, Memory]
    world: Remembered
