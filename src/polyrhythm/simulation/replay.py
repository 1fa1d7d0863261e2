"""A run once more, in the order in which the server heard things then: no clock, no fleet, no chance.

What clients were there and who answered when comes from the log. What they answered is computed again, or is in the log
as well; then nothing is needed but the server.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, final

import numpy as np

from polyrhythm.base.errors import RunFailed
from polyrhythm.base.faults import FaultKind
from polyrhythm.base.messages import Arrived, Assignment, Event, Lost, Report, Timer
from polyrhythm.base.streams import Integers
from polyrhythm.core.server import Server
from polyrhythm.core.server_state import ServerDecision
from polyrhythm.methods.mechanism import Model
from polyrhythm.simulation.roster import Answer


@final
@dataclass(frozen=True, kw_only=True)
class Logged:
    """One thing that the server heard.

    Args:
        number: of the event, from 1.
        kind: "visit", "arrival", "timer" or "beside", as in an `EventRecord`.
        about: the dispatch number of the visit, or the client that came.
        time: virtual seconds.
        lost: why no report came of the visit; empty if one did.
        fault: as what that counts.
    """

    number: int
    kind: Literal["visit", "arrival", "timer", "beside"]
    about: int
    time: float
    lost: str = ""
    fault: FaultKind = "lost"


Visits = Callable[[Sequence[Assignment], float], Iterable[Report | None]]
"""Carries out, at a time, the assignments of a turn; None for a report that is not known and was never heard."""


@final
class LoggedRoster:
    """Answers what was answered then.

    Args:
        population: clients that the federation declares.
        clients: those that may be invited, in order.
        answers: by number of the event.
    """

    def __init__(self, population: int, clients: Sequence[int], answers: Mapping[int, Sequence[Answer]]) -> None:
        self.population, self._clients, self._answers = population, tuple(clients), answers
        self.hears(0)

    @property
    def eligible(self) -> int:
        return len(self._clients)

    def hears(self, number: int) -> None:
        """The next questions are asked in this event."""
        self._number, self._next = number, iter(self._answers.get(number, ()))

    def draw(self, count: int, generator: Integers, exclude: Container[int]) -> tuple[int, ...]:
        return self._answer("draw").clients

    def draw_by_samples(self, count: int, generator: np.random.Generator, exclude: Container[int]) -> tuple[int, ...]:
        return self._answer("draw").clients

    def present(self, clients: tuple[int, ...]) -> tuple[int, ...]:
        return self._answer("present").clients

    def samples(self) -> tuple[int, ...]:
        return self._answer("samples").clients

    def all(self) -> tuple[int, ...]:
        self._answer("all")
        return self._clients

    def unmask(self, version: int, clients: tuple[int, ...], masked: np.ndarray) -> np.ndarray | None:
        # What is computed again bears no masks. Whether the sum could be read is in the log.
        return masked if self._answer("unmask").clients else None

    def _answer(self, question: str) -> Answer:
        answer = next(self._next, None)
        if answer is None or answer.question != question:
            raise RunFailed(
                f"event {self._number}: the server asks {question!r}, where the log has "
                f"{'nothing' if answer is None else repr(answer.question)}: it is not the server of that run"
            )
        return answer


def replay(
    server: Server,
    initial: Model,
    roster: LoggedRoster,
    log: Iterable[Logged],
    visits: Visits,
) -> Iterator[ServerDecision]:
    """The turns of the run, the first of them its start.

    Args:
        server: of the run.
        initial: version 0.
        roster: answers as it did then.
        log: what the server heard, in order.
        visits: carries out visits.

    Raises:
        RunFailed: the log is of another run, or that run failed here, too.
    """
    sent: dict[int, tuple[float, Report | None]] = {}
    turn, now = server.begin(initial.weights, initial.buffers, roster), 0.0
    for logged in itertools.chain((None,), log):
        if logged is not None:
            now = logged.time
            roster.hears(logged.number)
            if logged.kind == "beside":
                turn = ServerDecision(state=turn.state)
            else:
                turn = server.receive(turn.state, _event(logged, sent), roster)
        for assignment, report in zip(turn.assignments, visits(turn.assignments, now), strict=True):
            sent[assignment.dispatch] = now, report
        yield turn


def _event(logged: Logged, sent: dict[int, tuple[float, Report | None]]) -> Event:
    if logged.kind == "timer":
        return Timer(time=logged.time)
    if logged.kind == "arrival":
        return Arrived(client=logged.about, time=logged.time)
    if logged.about not in sent:
        raise RunFailed(f"event {logged.number}: the log has visit {logged.about}, which the server has not sent out")
    then, report = sent.pop(logged.about)
    if logged.lost:
        return Lost(dispatch=logged.about, reason=logged.lost, time=logged.time, fault=logged.fault)
    if report is None:
        raise RunFailed(f"event {logged.number}: the log does not have the report of visit {logged.about}")
    return report.heard(after=logged.time - then, at=logged.time)
