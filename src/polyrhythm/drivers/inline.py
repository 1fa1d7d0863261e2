"""The in-line driver: everything in this process, on a virtual clock.

Events wait in a heap ordered by (virtual time, dispatch number), so equal times cause no tie. A visit is carried out
when it is dispatched, because how long it takes follows from what really happened in it; its report is heard when the
clock gets there.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import final

from polyrhythm.core.client import work
from polyrhythm.core.interfaces import ClientData, Engine
from polyrhythm.core.memory import ClientState, Memory
from polyrhythm.core.server import Turn, Verdict, begin, receive
from polyrhythm.errors import RunFailed
from polyrhythm.fleet import Fleet
from polyrhythm.recipe import Recipe
from polyrhythm.slots.mechanism import Model, Setup
from polyrhythm.wires import Assignment, Report, Roster


@final
@dataclass(frozen=True, kw_only=True)
class Moment:
    """One event and what the server made of it.

    Args:
        time: virtual seconds since the start.
        turn: the server's answer.
        assignment: what the report answers; None in the first moment, which starts the run.
        report: what was heard.
    """

    time: float
    turn: Turn
    assignment: Assignment | None = None
    report: Report | None = None


@final
class InlineDriver:
    """Runs a recipe over simulated clients.

    Args:
        recipe: the method.
        setup: what is fixed for the run.
        engine: computes gradients.
        data: gives a client's samples.
        fleet: how long work takes.
        roster: who is there.
    """

    def __init__(
        self,
        recipe: Recipe,
        setup: Setup,
        engine: Engine,
        data: Callable[[int], ClientData],
        fleet: Fleet,
        roster: Roster,
    ) -> None:
        self.recipe, self.setup, self.engine = recipe, setup, engine
        self.data, self.fleet, self.roster = data, fleet, roster
        self.memories: dict[int, Memory] = {}

    def state_of(self, client: int, accepted: int) -> ClientState:
        """A client's state after the given accepted visit."""
        return self.memories.get(client, Memory()).at(accepted)

    def moments(self, initial: Model) -> Iterator[Moment]:
        """The run, event by event, from the initial model until its horizon; stop asking to stop it.

        Raises:
            RunFailed: nobody can be invited, or the server could not go on.
        """
        heap: list[tuple[float, int, Assignment, Report]] = []
        turn = begin(self.recipe, self.setup, initial.weights, initial.buffers, self.roster)
        self._send(turn, 0.0, heap)
        yield Moment(time=0.0, turn=turn)
        while heap:
            time, _, assignment, report = heapq.heappop(heap)
            try:
                turn = receive(self.recipe, self.setup, self.engine.layout, turn.state, report, self.roster)
            except RunFailed as failure:
                # The report that settled it belongs in the record too.
                verdict = Verdict(dispatch=report.dispatch, accepted=False, reason=str(failure))
                failed = Turn(state=turn.state, verdict=verdict)
                yield Moment(time=time, turn=failed, assignment=assignment, report=report)
                raise
            self._send(turn, time, heap)
            yield Moment(time=time, turn=turn, assignment=assignment, report=report)
        if self.setup.horizon is None or turn.state.version < self.setup.horizon:
            raise RunFailed(
                f"version {turn.state.version}: no client is left to invite. "
                f"{self.roster.eligible} of {self.roster.population} clients hold data"
            )

    def _send(self, turn: Turn, now: float, heap: list[tuple[float, int, Assignment, Report]]) -> None:
        for assignment in turn.assignments:
            report = self._visit(assignment)
            report = report.lasting(self.fleet.duration(report))
            heapq.heappush(heap, (now + report.duration, assignment.dispatch, assignment, report))

    def _visit(self, assignment: Assignment) -> Report:
        client = assignment.client
        memory = self.memories.get(client, Memory())
        start = memory.at(assignment.accepted)
        try:
            state, report = work(self.recipe, self.setup, start, assignment, self.data(client), self.engine)
        except Exception as error:
            error.add_note(
                f"this happened to client {client} in its visit {assignment.visit}, on version {assignment.version}"
            )
            raise
        if assignment.kind == "train":
            self.memories[client] = memory.then(start, state, assignment.visit)
        return report
