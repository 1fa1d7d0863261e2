"""The virtual clock, and the run on it.

Events wait in a heap ordered by (virtual time, kind, number), so equal times cause no tie. When a visit ends is known
when it is dispatched; its report is heard when the clock gets there (`visits`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import final

from polyrhythm.base.errors import RunFailed
from polyrhythm.base.frozen import new_unchecked, replace_unchecked
from polyrhythm.base.messages import Arrived, Assignment, Event, Report, Timer
from polyrhythm.core.client_state import ClientState
from polyrhythm.core.protocols import ClientData, Engine
from polyrhythm.core.server import Server
from polyrhythm.core.server_state import ServerDecision, ServerState, Verdict
from polyrhythm.core.sums import cohort_of
from polyrhythm.fleet import FleetState, Load, Spent
from polyrhythm.methods.mechanism import Model, Release, Setup
from polyrhythm.methods.recipe import Recipe
from polyrhythm.simulation.client_store.store import ClientStore, InMemory
from polyrhythm.simulation.cost_meter import Meter
from polyrhythm.simulation.event_queue import ARRIVAL, BESIDE, TIMER, VISIT, Agenda, DriverState, Underway
from polyrhythm.simulation.roster import Answer, WorldRoster
from polyrhythm.simulation.sums import SimulatedSums
from polyrhythm.simulation.visits import Visits
from polyrhythm.simulation.workers.executors import Clients, Executor

Work = Callable[[Assignment], Report]
"""Stands in for a visit."""

Arrivals = Callable[[], tuple[float, int]]
"""Gives the next client that comes, (time, client), each time it is called."""


@final
@dataclass(frozen=True, kw_only=True)
class SimulationStep:
    """One event and what the server made of it.

    Args:
        time: virtual seconds since the start.
        turn: the server's answer.
        event: what the server heard, which is not the client's report if something happened to that on its way; in the
            first moment, which starts the run, a timer.
        assignment: what a report answers, or what was lost.
        report: what the client made of it, even if the server never hears it.
        load: the work in the visit.
        spent: what the visit has cost its device.
        done: the share of its work that was done, if it was lost.
        late: whether nobody waited for it any more.
        answers: what the server asked of the roster, and was told.
    """

    time: float
    turn: ServerDecision
    event: Event = Timer(time=0.0)
    assignment: Assignment | None = None
    report: Report | None = None
    load: Load = Load()
    spent: Spent = Spent()
    done: float = 1.0
    late: bool = False
    answers: tuple[Answer, ...] = ()


@final
class InlineDriver:
    """Runs a recipe over simulated clients, on a virtual clock in this process.

    Args:
        recipe: the method.
        setup: what is fixed for the run.
        engine: computes gradients.
        data: gives a client's samples.
        world: the clients on their devices.
        meter: measures visits; one that counts no floating-point operations if None.
        visit: carries out visits in place of real training; for measurements of the simulator itself.
        executor: carries out the visits of a turn; one by one in this process if None.
        store: keeps what clients remember, and the server of each of them; in memory if None.
        tells_updates: whether a moment tells with which updates a version was made. By default they are let go before
            the next visits begin, so that a run holds the updates of one turn, and not of two.
    """

    def __init__(
        self,
        recipe: Recipe,
        setup: Setup,
        engine: Engine,
        data: Callable[[int], ClientData],
        world: FleetState,
        meter: Meter | None = None,
        visit: Work | None = None,
        executor: Executor | None = None,
        store: ClientStore | None = None,
        tells_updates: bool = False,
    ) -> None:
        self.tells_updates = tells_updates
        self.store: ClientStore = InMemory() if store is None else store
        self.server = Server(
            recipe=recipe, setup=replace_unchecked(setup, table=self.store.table), layout=engine.layout
        )
        self.engine, self.world, self.roster = engine, world, WorldRoster(world)
        self._agenda = Agenda()
        self._state: ServerState | None = None
        clients = Clients(recipe=recipe, setup=setup, engine=engine, data=data)
        self.visits = Visits(clients, world, meter or Meter(engine.layout), self.store, executor)
        self._stand_in = visit
        self._sums: SimulatedSums | None = None
        if recipe.sums_only:
            self.roster.sums = self._sums = SimulatedSums(recipe, setup, world.leaves)
        # Where nobody is ever away, nobody comes; and who comes by itself, or only answers, is on the agenda anyway.
        self._looks_out = not (world.everybody_is_there or world.fleet.arrivals) and recipe.participation.invites

    def state_of(self, client: int, accepted: int) -> ClientState:
        """A client's state after the given accepted visit."""
        return self.store.get(client).at(accepted)

    def under_way(self) -> list[Underway]:
        """Visits whose end was not heard yet, by dispatch number."""
        return self._agenda.under_way()

    def state(self) -> DriverState:
        """All that there is to know of the run between two moments; to be read before the next one is asked for."""
        assert self._state is not None, "a run that has not begun"
        return DriverState(
            server=replace_unchecked(self._state, parts=self.store.written(self._state.parts)),
            agenda=self._agenda,
            now=self.roster.now,
            clients=self.store.snapshot(self._state.version),
            world=self.world.remembered(),
        )

    def moments(self, start: Model | DriverState) -> Iterator[SimulationStep]:
        """The run, event by event, until its total_rounds; stop asking to stop it.

        Args:
            start: the initial model; or where an earlier run of the same experiment stood, from which this one goes on.

        Raises:
            RunFailed: nobody can be invited, or the server could not go on.
        """
        if isinstance(start, DriverState):
            self._agenda, self.roster.now = start.agenda, start.now
            self.store.restore(start.clients)
            self._state = replace_unchecked(start.server, parts=self.store.taken_up(start.server.parts))
            self.world.restore(start.world)
            self.visits.take_up(self.under_way())
            self._begin_sum(self._state)
        arrivals = self.world.arrivals()
        if arrivals is None and not self.server.recipe.participation.invites:
            arrivals = self.world.comings()
        if isinstance(start, Model):
            yield self._begun(start, arrivals)
        yield from self._events(arrivals)

    def _begun(self, initial: Model, arrivals: Arrivals | None) -> SimulationStep:
        if arrivals is not None:
            self._expect(*arrivals())
        turn = self.server.begin(initial.weights, initial.buffers, self.roster)
        self._state = turn.state
        self._send(turn, 0.0)
        return SimulationStep(time=0.0, turn=turn, answers=self.roster.answers())

    def _events(self, arrivals: Arrivals | None) -> Iterator[SimulationStep]:
        agenda, server, state = self._agenda, self.server, self._state
        assert state is not None
        while agenda.heap:
            over = server.over(state)
            if over and not agenda.visits:
                break
            time, what = agenda.pop()
            if isinstance(what, Underway):
                what = self.visits.told(what)
            self.roster.now = time
            if isinstance(what, Arrived):
                agenda.expected = math.inf if time >= agenda.expected else agenda.expected
                if arrivals is not None:
                    self._expect(*arrivals())
            elif isinstance(what, Timer) and time == agenda.timer:
                agenda.timer = None
            visit = what if isinstance(what, Underway) else None
            if over and visit is None:
                continue
            event: Event = what.end if isinstance(what, Underway) else what
            event = event if self._sums is None else self._sums.heard(event)
            late = visit is not None and bool(state.flights[visit.assignment.dispatch].given_up)
            try:
                turn = server.receive(state, event, self.roster)
            except RunFailed as failure:
                # The report that settled it belongs in the record too.
                dispatch = -1 if visit is None else visit.assignment.dispatch
                verdict = Verdict(dispatch=dispatch, accepted=False, reason=str(failure))
                yield self._moment(time, event, visit, ServerDecision(state=state, verdict=verdict), late)
                raise
            if turn.released is not None and turn.released.release is not None and not self.tells_updates:
                turn = replace_unchecked(
                    turn, released=replace_unchecked(turn.released, release=_lean(turn.released.release))
                )
            if visit is not None:
                self._settle(visit.assignment, turn.state)
            self._state = state = turn.state  # the last holder of the updates that were waiting
            self._send(turn, time, None if visit is None else visit.assignment.client)
            yield self._moment(time, event, visit, turn, late)
        if not server.over(state):
            raise RunFailed(
                f"version {state.version}: no client is left to invite. "
                f"{self.roster.eligible} of {self.roster.population} clients hold data"
                + ("" if self.world.everybody_is_there else ", and none of them will come again")
            )

    def _settle(self, assignment: Assignment, state: ServerState) -> None:
        """Lets a client forget a state that it will not go on from."""
        record = state.clients.get(assignment.client)
        if record is not None and assignment.kind == "train" and record.visits > assignment.visit:
            self.store.settle(assignment.client, record.accepted)

    def _expect(self, time: float, client: int) -> None:
        if time < math.inf:
            self._agenda.made += 1
            self._agenda.add(time, ARRIVAL, self._agenda.made, Arrived(client=client, time=time))

    def _moment(
        self, time: float, event: Event, visit: Underway | None, turn: ServerDecision, late: bool
    ) -> SimulationStep:
        answers = self.roster.answers()
        if visit is None:
            return SimulationStep(time=time, turn=turn, event=event, answers=answers)
        return new_unchecked(
            SimulationStep,
            time=time,
            turn=turn,
            event=event,
            assignment=visit.assignment,
            report=visit.report,
            load=visit.load,
            spent=visit.outcome.spent,
            done=visit.outcome.done,
            late=late,
            answers=answers,
        )

    def _begin_sum(self, state: ServerState) -> None:
        """Lets those who are invited exchange what they need to hide single updates."""
        if self._sums is not None and (cohort := cohort_of(self.server.recipe, state.parts)):
            self._sums.begin(state.version, cohort)

    def _send(self, turn: ServerDecision, now: float, ended: int | None = None) -> None:
        agenda, transit = self._agenda, self.visits.transit
        if turn.assignments:
            self._begin_sum(turn.state)
        if self._stand_in is None:
            under_way = self.visits.set_out(turn.assignments, now)
        else:
            under_way = [self.visits.underway(a, self._stand_in(a), now) for a in turn.assignments]
        for visit in under_way:
            for other in transit.beside(visit.report) if transit is not None and not visit.outcome.lost else ():
                agenda.made += 1
                agenda.add(other.time, BESIDE, agenda.made, other)
            agenda.add(visit.outcome.time, VISIT, visit.assignment.dispatch, visit)
        if turn.wake_up is not None and (agenda.timer is None or turn.wake_up < agenda.timer):
            agenda.timer = turn.wake_up
            agenda.made += 1
            agenda.add(turn.wake_up, TIMER, agenda.made, Timer(time=turn.wake_up))
        if self._looks_out:
            self._look_out(turn, now, ended)

    def _look_out(self, turn: ServerDecision, now: float, ended: int | None) -> None:
        """Sees to it that the server is told of the next client that comes, if it wants any."""
        agenda = self._agenda
        if not turn.wanting or turn.released is not None:
            agenda.expected = math.inf  # who comes first may be another one by the time it matters
        if not turn.wanting:
            return
        if agenda.expected == math.inf:
            time, client = self.world.next_arrival(now, turn.state.busy) or (math.inf, -1)
        elif ended is not None and ended not in turn.state.busy:
            # Everybody else was looked at; this one was at work then, and may have gone away since.
            time, client = self.world.returns(ended, now), ended
        else:
            return
        if now < time < agenda.expected:
            agenda.expected = time
            self._expect(time, client)


def _lean(release: Release) -> Release:
    """A release without what is as large as the model; an update's length stays."""
    return replace_unchecked(
        release, reports=tuple(replace_unchecked(r, update=None, extras={}) for r in release.reports)
    )
