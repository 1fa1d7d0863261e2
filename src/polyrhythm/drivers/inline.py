"""The virtual clock, and the run on it.

Events wait in a heap ordered by (virtual time, kind, number), so equal times cause no tie. A visit is carried out when
it is dispatched, because how long it takes follows from what really happened in it; its report is heard when the clock
gets there. The visits of one turn are handed to an executor all at once: here one after the other, elsewhere in several
workers. What comes of them is the same.
"""

from __future__ import annotations

import heapq
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, final

from polyrhythm.core.interfaces import ClientData, Engine
from polyrhythm.core.memory import ClientState, Memory
from polyrhythm.core.server import Turn, Verdict, begin, receive
from polyrhythm.drivers.executors import Clients, Errand, Executor, OneByOne
from polyrhythm.drivers.meter import Meter
from polyrhythm.drivers.roster import Answer, WorldRoster
from polyrhythm.errors import RunFailed
from polyrhythm.fleet import Load, Spent, World
from polyrhythm.recipe import Recipe
from polyrhythm.slots.mechanism import Model, Setup
from polyrhythm.values import made
from polyrhythm.wires import Arrived, Assignment, Event, Lost, Report, Timer

Work = Callable[[Assignment], Report]
"""Stands in for a visit."""


@final
@dataclass(frozen=True, kw_only=True)
class Moment:
    """One event and what the server made of it.

    Args:
        time: virtual seconds since the start.
        turn: the server's answer.
        event: what the server heard; in the first moment, which starts the run, a timer.
        assignment: what a report answers, or what was lost.
        report: what the client made of it, even if the server never hears it.
        load: the work in the visit.
        spent: what the visit has cost its device.
        done: the share of its work that was done, if it was lost.
        answers: what the server asked of the roster, and was told.
    """

    time: float
    turn: Turn
    event: Event = Timer(time=0.0)
    assignment: Assignment | None = None
    report: Report | None = None
    load: Load = Load()
    spent: Spent = Spent()
    done: float = 1.0
    answers: tuple[Answer, ...] = ()


@final
class _Visit(NamedTuple):
    """A visit on its way: what it will have been when its end is heard."""

    assignment: Assignment
    report: Report
    load: Load
    spent: Spent
    done: float
    lost: Lost | None


_Entry = tuple[float, int, int, _Visit | Arrived | Timer]
"""Time, kind and number of an event. Of events at one time, visits come first, then arrivals, then timers: a report
that is there when the deadline passes is in time."""
_VISIT, _ARRIVAL, _TIMER = range(3)


@final
@dataclass
class _Agenda:
    """What is yet to happen."""

    heap: list[_Entry] = field(default_factory=list)
    made: int = 0
    visits: int = 0
    expected: float = math.inf  # when the server will be told of the next client that comes, since it wants some
    timer: float | None = None

    def add(self, time: float, kind: int, number: int, what: _Visit | Arrived | Timer) -> None:
        self.visits += kind == _VISIT
        heapq.heappush(self.heap, (time, kind, number, what))

    def pop(self) -> tuple[float, _Visit | Arrived | Timer]:
        time, kind, _, what = heapq.heappop(self.heap)
        self.visits -= kind == _VISIT
        return time, what


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
    """

    def __init__(
        self,
        recipe: Recipe,
        setup: Setup,
        engine: Engine,
        data: Callable[[int], ClientData],
        world: World,
        meter: Meter | None = None,
        visit: Work | None = None,
        executor: Executor | None = None,
    ) -> None:
        self.recipe, self.setup, self.engine = recipe, setup, engine
        self.data, self.world, self.roster = data, world, WorldRoster(world)
        self.meter = meter or Meter(engine.layout)
        self.memories: dict[int, Memory] = {}
        self._stand_in = visit
        self._executor = executor or OneByOne(Clients(recipe=recipe, setup=setup, engine=engine, data=data))
        self._pricing = threading.Lock()
        # Where nobody is ever away, nobody comes; and who comes by itself, or only answers, is on the agenda anyway.
        self._looks_out = not (world.everybody_is_there or world.fleet.arrivals) and recipe.participation.invites

    def state_of(self, client: int, accepted: int) -> ClientState:
        """A client's state after the given accepted visit."""
        return self.memories.get(client, Memory()).at(accepted)

    def moments(self, initial: Model) -> Iterator[Moment]:
        """The run, event by event, from the initial model until its horizon; stop asking to stop it.

        Raises:
            RunFailed: nobody can be invited, or the server could not go on.
        """
        agenda, layout, horizon = _Agenda(), self.engine.layout, self.setup.horizon
        arrivals = self.world.arrivals()
        if arrivals is None and not self.recipe.participation.invites:
            arrivals = self.world.comings()
        if arrivals is not None:
            self._expect(agenda, *arrivals())
        turn = begin(self.recipe, self.setup, initial.weights, initial.buffers, self.roster)
        self._send(turn, 0.0, agenda)
        yield Moment(time=0.0, turn=turn, answers=self.roster.answers())
        while agenda.heap:
            over = horizon is not None and turn.state.version >= horizon
            if over and not agenda.visits:
                break
            time, what = agenda.pop()
            self.roster.now = time
            if isinstance(what, Arrived):
                agenda.expected = math.inf if time >= agenda.expected else agenda.expected
                if arrivals is not None:
                    self._expect(agenda, *arrivals())
            elif isinstance(what, Timer) and time == agenda.timer:
                agenda.timer = None
            visit = what if isinstance(what, _Visit) else None
            if over and visit is None:
                continue
            event: Event = what if not isinstance(what, _Visit) else what.lost or what.report
            try:
                turn = receive(self.recipe, self.setup, layout, turn.state, event, self.roster)
            except RunFailed as failure:
                # The report that settled it belongs in the record too.
                dispatch = -1 if visit is None else visit.assignment.dispatch
                verdict = Verdict(dispatch=dispatch, accepted=False, reason=str(failure))
                yield self._moment(time, event, visit, Turn(state=turn.state, verdict=verdict))
                raise
            self._send(turn, time, agenda, None if visit is None else visit.assignment.client)
            yield self._moment(time, event, visit, turn)
        if horizon is None or turn.state.version < horizon:
            raise RunFailed(
                f"version {turn.state.version}: no client is left to invite. "
                f"{self.roster.eligible} of {self.roster.population} clients hold data"
                + ("" if self.world.everybody_is_there else ", and none of them will come again")
            )

    def _expect(self, agenda: _Agenda, time: float, client: int) -> None:
        if time < math.inf:
            agenda.made += 1
            agenda.add(time, _ARRIVAL, agenda.made, Arrived(client=client, time=time))

    def _moment(self, time: float, event: Event, visit: _Visit | None, turn: Turn) -> Moment:
        answers = self.roster.answers()
        if visit is None:
            return Moment(time=time, turn=turn, event=event, answers=answers)
        return made(
            Moment,
            time=time,
            turn=turn,
            event=event,
            assignment=visit.assignment,
            report=visit.report,
            load=visit.load,
            spent=visit.spent,
            done=visit.done,
            answers=answers,
        )

    def _send(self, turn: Turn, now: float, agenda: _Agenda, ended: int | None = None) -> None:
        for assignment, report in zip(turn.assignments, self._reports(turn.assignments), strict=True):
            load = self.meter.load(assignment, report)
            fate = self.world.undertake(assignment.dispatch, assignment.client, load, now)
            report = report.heard(after=fate.time - now, at=fate.time)
            lost = Lost(dispatch=assignment.dispatch, reason=fate.lost, time=fate.time) if fate.lost else None
            visit = _Visit(assignment, report, load, fate.spent, fate.done, lost)
            agenda.add(fate.time, _VISIT, assignment.dispatch, visit)
        if turn.wake_up is not None and (agenda.timer is None or turn.wake_up < agenda.timer):
            agenda.timer = turn.wake_up
            agenda.made += 1
            agenda.add(turn.wake_up, _TIMER, agenda.made, Timer(time=turn.wake_up))
        if self._looks_out:
            self._look_out(turn, now, agenda, ended)

    def _look_out(self, turn: Turn, now: float, agenda: _Agenda, ended: int | None) -> None:
        """Sees to it that the server is told of the next client that comes, if it wants any."""
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
            self._expect(agenda, time, client)

    def _reports(self, assignments: Sequence[Assignment]) -> Iterable[Report]:
        """Carries out the visits of a turn; what clients remember of it stays here."""
        if self._stand_in is not None:
            return map(self._stand_in, assignments)
        memories = [self.memories.get(a.client, Memory()) for a in assignments]
        states = [memory.at(a.accepted) for memory, a in zip(memories, assignments, strict=True)]
        done = self._executor.carry_out(
            [
                Errand(assignment=a, state=state, pace=_Forecast(self, a))
                for a, state in zip(assignments, states, strict=True)
            ]
        )
        for assignment, memory, start, (state, _) in zip(assignments, memories, states, done, strict=True):
            if assignment.kind == "train":
                self.memories[assignment.client] = memory.then(start, state, assignment.visit)
        return [report for _, report in done]


@final
class _Forecast:
    """How long a visit that begins now would take: priced as the visit itself will be, so to the last bit the same."""

    def __init__(self, driver: InlineDriver, assignment: Assignment) -> None:
        self._driver, self._assignment = driver, assignment

    def seconds(self, samples: int, forward_samples: int) -> float:
        driver = self._driver
        with driver._pricing:  # several threads may ask at once
            load = driver.meter.ahead(driver.recipe, self._assignment, samples, forward_samples)
            return driver.world.price(self._assignment.client, load, driver.roster.now).seconds
