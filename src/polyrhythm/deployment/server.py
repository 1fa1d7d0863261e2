"""The server of a real federation: the pure core, on the clock that really passes, over a line to nodes.

Time is seconds since the run began. What the core hears is written down in the order in which it is heard, so a replay
gives the same models again. A visit whose node goes away is sent again when the node is back; it is the same visit,
with the same draws, from the same state, so nothing shows that it was interrupted. Only if the node stays away is it
lost.

The core decides everything else: who is invited, how long anybody waits, what a late report counts.

A node may send anything, and nothing that one of them sends ends the run: an answer that does not fit what was asked
(`drivers.hearing`), or that the core cannot make use of, is a lost visit with its reason, billed for what came.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from polyrhythm.base.errors import RunFailed
from polyrhythm.base.faults import FaultKind
from polyrhythm.base.messages import Arrived, Assignment, Event, Lost, Report, Timer
from polyrhythm.base.vectors import Layout
from polyrhythm.core.client_state import ClientState
from polyrhythm.core.reports import report_on
from polyrhythm.core.server import Server
from polyrhythm.core.server_state import Record, ServerState, Turn, Verdict
from polyrhythm.core.validation import NOT_FINITE
from polyrhythm.deployment.hearing import Hearing
from polyrhythm.deployment.node import spans_of
from polyrhythm.deployment.registry import Clock, Line, Nodes, Reply, Tell
from polyrhythm.deployment.wire import Answer, Malformed, Order, Parcel, Refusal, Sums, pack, shown, unpack
from polyrhythm.fleet import Fate, Load, Remembered, Spent
from polyrhythm.methods.mechanism import Model, Setup
from polyrhythm.methods.recipe import Recipe
from polyrhythm.simulation.cost_meter import Meter
from polyrhythm.simulation.event_queue import VISIT, Agenda, DriverState, Underway
from polyrhythm.simulation.roster import WorldRoster
from polyrhythm.simulation.simulator import Moment

LOOK = 1.0
"""Seconds between two looks at who is there."""
TRIES = 9
"""How often a visit is sent to a node that goes away in it each time and is there again; waiting longer each time."""


@final
@dataclass
class _Out:
    """A visit that is out: sent at `started`, in `message`; None while its node is away, since `away`.

    It was sent in vain `tries` times, and is not sent again before `again`.
    """

    assignment: Assignment
    started: float
    message: str | None = None
    away: float | None = None
    tries: int = 0
    again: float = 0.0


@final
@dataclass(frozen=True, kw_only=True)
class _Heard:
    """An event, the visit that it ends, the seconds that its node says it worked, and the bytes that came."""

    event: Event
    visit: _Out | None = None
    seconds: float = 0.0
    came: int = 0


@final
class RemoteDriver:
    """Runs a recipe over nodes that are really there.

    Args:
        recipe: the method.
        setup: what is fixed for the run.
        layout: of the vectors.
        meter: measures visits.
        line: to the nodes.
        nodes: who they are; gathered already.
        clock: the time.
        run: gives the run's id, once it has begun.
        retain: how many checkpoints the server may go back to.
        returns: seconds that a visit waits for its node to come back, 0 for none.
        alone: seconds that the server waits for anybody to invite.
        pause: seconds between two looks for answers.
        tell: says what happens to nodes.
    """

    def __init__(
        self,
        recipe: Recipe,
        setup: Setup,
        layout: Layout,
        meter: Meter,
        line: Line,
        nodes: Nodes,
        clock: Clock,
        *,
        run: Callable[[], str],
        retain: int = 2,
        returns: float = 120.0,
        alone: float = 600.0,
        pause: float = 0.1,
        tell: Tell = lambda text: None,
    ) -> None:
        self.server, self.meter = Server(recipe=recipe, setup=setup, layout=layout), meter
        self.roster = WorldRoster(nodes)
        self._line, self._nodes, self._clock, self._tell = line, nodes, clock, tell
        self._run, self._returns, self._alone, self._pause = run, returns, alone, pause
        self._state: ServerState | None = None
        self._out: dict[int, _Out] = {}
        self._messages: dict[str, int] = {}  # dispatch numbers
        self._timer: float | None = None
        self._zero = self._looked = 0.0
        self._wanting = False
        self._hearing = Hearing(recipe, setup, layout)
        # Whose reports a version came to nothing by, since a version was last made of any.
        self._blamed: set[int] = set()
        # Accepted visits as they were at the checkpoints that may be gone back to.
        self._points: deque[Mapping[int, Record]] = deque(maxlen=retain + 1)

    def state_of(self, client: int, accepted: int) -> ClientState:
        """What the server knows of a client's state: nothing, it lies at the node."""
        return ClientState()

    def under_way(self) -> list[Underway]:
        """Visits whose end was not heard yet, by dispatch number: what is known of them."""
        return [self._underway(self._out[dispatch]) for dispatch in sorted(self._out)]

    def _underway(self, out: _Out) -> Underway:
        report = report_on(out.assignment, held=0)
        load = Load(bytes_down=self.meter.load(out.assignment, report).bytes_down)
        spent = Spent(down=max(0.0, self.roster.now - out.started), bytes_down=load.bytes_down)
        fate = Fate(time=math.inf, spent=spent)
        return Underway(started=out.started, assignment=out.assignment, report=report, load=load, fate=fate)

    def state(self) -> DriverState:
        """All that there is to know of the run between two moments; to be read before the next one is asked for."""
        assert self._state is not None, "a run that has not begun"
        self._points.append(self._state.clients)
        visits = self.under_way()
        heap = [(math.inf, VISIT, visit.assignment.dispatch, visit) for visit in visits]
        return DriverState(
            server=self._state,
            agenda=Agenda(heap=[*heap], visits=len(visits), timer=self._timer),
            now=self.roster.now,
            clients={},
            world=Remembered(back={}, charge={}, arrivals=0, comings=None),
        )

    def moments(self, start: Model | DriverState) -> Iterator[Moment]:
        """The run, event by event, until its horizon; stop asking to stop it.

        Args:
            start: the initial model; or where an earlier run of the same experiment stood, from which this one goes on.

        Raises:
            RunFailed: nobody is there to be invited, or the server could not go on.
        """
        if isinstance(start, Model):
            self._zero = self._clock.now()
            turn = self.server.begin(start.weights, start.buffers, self.roster)
            self._state = turn.state
            self._send(turn)
            yield Moment(time=0.0, turn=turn, answers=self.roster.answers())
        else:
            self._take_up(start)
        yield from self._events()

    def _take_up(self, start: DriverState) -> None:
        """Sends out again what was out; whoever nobody waited for any more is lost."""
        self._state, self.roster.now = start.server, start.now
        self._zero, self._timer = self._clock.now() - start.now, start.agenda.timer
        self._points.append(start.server.clients)
        for visit in start.agenda.under_way():
            self._out[visit.assignment.dispatch] = _Out(visit.assignment, visit.started)
        flights = start.server.flights
        waited = [out for dispatch, out in self._out.items() if not flights[dispatch].given_up]
        self._push(waited)

    def _events(self) -> Iterator[Moment]:
        server, state = self.server, self._state
        assert state is not None
        while not server.over(state):
            for first in self._listen():
                out, heard = first.visit, first
                try:
                    heard, turn = self._taken(first, state)
                except RunFailed as failure:
                    # The report that settled it belongs in the record too.
                    dispatch = -1 if out is None else out.assignment.dispatch
                    verdict = Verdict(dispatch=dispatch, accepted=False, reason=str(failure))
                    yield self._moment(heard, Turn(state=state, verdict=verdict))
                    raise
                self._state = state = turn.state
                self._send(turn)
                yield self._moment(heard, turn)

    def _taken(self, heard: _Heard, state: ServerState) -> tuple[_Heard, Turn]:
        """What the core makes of an event; of a lost visit, where a report is one that it cannot go on with.

        Raises:
            RunFailed: the run cannot go on, whoever had answered.
        """
        out = heard.visit
        try:
            turn = self._received(heard, state)
        except Exception as failure:
            if out is None or not isinstance(heard.event, Report) or not self._spared(out, state, failure):
                raise
            self.roster.answers()  # to what the core has asked in vain
            words = str(failure) if isinstance(failure, RunFailed) else f"{type(failure).__name__}: {failure}"
            heard = _at(self.roster.now, self._unfit(out, f"sent a report that cannot be used: {words}", heard.came))
            turn = self._received(heard, state)
        if turn.released is not None and turn.released.release is not None:
            self._blamed.clear()
        return heard, turn

    def _received(self, heard: _Heard, state: ServerState) -> Turn:
        return self.server.receive(state, heard.event, self.roster)

    def _spared(self, out: _Out, state: ServerState, failure: Exception) -> bool:
        """Whether the run goes on although the core could not go on with a report: no single node can end it.

        Where the reports of several come to nothing, one after the other, it is the training that diverges.
        """
        if not isinstance(failure, RunFailed):
            return True
        self._blamed |= {c for c, reason in state.refused if reason.startswith(NOT_FINITE)} | {out.assignment.client}
        return len(self._blamed) == 1 and self.server.setup.holders > 1

    def _moment(self, heard: _Heard, turn: Turn) -> Moment:
        now, event, out = self.roster.now, heard.event, heard.visit
        if out is None:
            return Moment(time=now, turn=turn, event=event, answers=self.roster.answers())
        report = (
            event
            if isinstance(event, Report)
            else report_on(out.assignment, held=0).heard(after=now - out.started, at=now)
        )
        load, lost = self.meter.load(out.assignment, report), isinstance(event, Lost)
        # The clocks of two machines cannot tell the way there from the way back: both count as the way there.
        passed = now - out.started
        worked = min(heard.seconds, passed)
        spent = Spent(
            down=passed - worked,
            compute=worked,
            flops=load.flops,
            forward_flops=load.forward_flops,
            bytes_down=load.bytes_down,
            bytes_up=heard.came if lost else load.bytes_up,
        )
        return Moment(
            time=now,
            turn=turn,
            event=event,
            assignment=out.assignment,
            report=report,
            load=load,
            spent=spent,
            done=0.0 if lost else 1.0,
            answers=self.roster.answers(),
        )

    def _send(self, turn: Turn) -> None:
        outs = [_Out(assignment, self.roster.now) for assignment in turn.assignments]
        self._out |= {out.assignment.dispatch: out for out in outs}
        self._push(outs)
        self._wanting = turn.wanting
        if turn.wake_up is not None and (self._timer is None or turn.wake_up < self._timer):
            self._timer = turn.wake_up

    def _push(self, outs: Iterable[_Out]) -> None:
        """Sends visits to their nodes; those whose node is away wait for it."""
        letters, sent, sums = list[tuple[int, Parcel]](), list[_Out](), Sums()
        for out in outs:
            node = self._nodes.node(out.assignment.client)
            if node is None:
                out.message, out.away = None, self.roster.now if out.away is None else out.away
                continue
            letters.append((node, pack(self._order(out.assignment), sums=sums)))
            sent.append(out)
        if letters:
            for message, out in zip(self._line.push(letters), sent, strict=True):
                out.message = message
                self._messages[message] = out.assignment.dispatch

    def _order(self, assignment: Assignment) -> Order:
        client, setup = assignment.client, self.server.setup
        keep = {points[client].accepted for points in self._points if client in points}
        return Order(
            run=self._run(),
            seed=setup.seed,
            population=setup.population,
            eligible=setup.holders,
            keep=tuple(sorted(keep)),
            assignment=assignment,
        )

    def _listen(self) -> list[_Heard]:
        """Waits until something happens; gives all that has.

        Raises:
            RunFailed: nobody is there, and nobody comes.
        """
        since = self._clock.now()
        while True:
            heard = [h for reply in self._line.pull(list(self._messages)) for h in self._understood(reply)]
            came = list[int]()
            if self._clock.now() >= self._looked + LOOK:
                came, self._looked = self._nodes.look(), self._clock.now()
                heard += self._back_or_lost()
            # Reports that are there when a deadline is found to have passed are in time.
            now = self._clock.now() - self._zero
            if self._wanting:
                assert self._state is not None
                heard += [_Heard(event=Arrived(client=c, time=now)) for c in came if c not in self._state.busy]
            if self._timer is not None and now >= self._timer:
                self._timer = None
                heard.append(_Heard(event=Timer(time=now)))
            if heard:
                self.roster.now = now
                return [_at(now, h) for h in heard]
            if not self._out and self._timer is None and self._clock.now() - since > self._alone:
                raise RunFailed(
                    f"version {0 if self._state is None else self._state.version}: no client is there to be invited, "
                    f"and none came within {self._alone:g} s"
                )
            self._clock.sleep(self._pause)

    def _understood(self, reply: Reply) -> Sequence[_Heard]:
        """What a reply means; nothing, if its visit is to be sent again."""
        dispatch = self._messages.pop(reply.to, None)
        out = None if dispatch is None else self._out.get(dispatch)
        if out is not None and out.message != reply.to:
            out = None  # it was sent again meanwhile, and answered already
        if reply.parcel is None:
            return () if out is None else self._unanswered(out, reply)
        came = reply.parcel.bytes
        try:
            answer = self._read(reply.parcel, out)
        except Malformed as wrong:
            return () if out is None else (self._unfit(out, f"sent {wrong}", came, wrong.kind),)
        if isinstance(answer, Refusal):
            return () if out is None else (self._unfit(out, f"refused: {answer.error()}", came),)
        if out is None:
            return self._stray(answer.report)
        del self._out[out.assignment.dispatch]
        return (_Heard(event=answer.report, visit=out, seconds=answer.seconds, came=came),)

    def _unanswered(self, out: _Out, reply: Reply) -> Sequence[_Heard]:
        """What it means that no answer comes: the visit is sent again if its node went away, or lost."""
        trouble, assignment = shown(reply.trouble), out.assignment
        if not reply.gone:
            return (self._unfit(out, f"{'sent' if reply.unreadable else 'failed:'} {trouble}"),)
        self._tell(f"client {assignment.client} went away in its visit {assignment.visit}: {trouble}")
        now = self._clock.now() - self._zero
        out.message, out.away, out.tries = None, now, out.tries + 1
        if out.tries == TRIES:
            return (self._lost(out, f"its node went away {TRIES} times"),)
        out.again = now if out.tries == 1 else now + LOOK * 2 ** (out.tries - 2)
        return ()

    def _read(self, parcel: Parcel, out: _Out | None) -> Answer | Refusal:
        """The answer in a parcel, if it is one to the visit.

        Raises:
            Malformed: it is not.
        """

        def check(answer: Answer | Refusal) -> None:
            if out is not None and isinstance(answer, Answer):
                sent = out.assignment
                held = self._nodes.declared(sent.client)
                if answer.report.held != held:
                    self._nodes.ask_again(sent.client)
                self._hearing.check(answer, sent, run=self._run(), held=held)

        spans = spans_of(self.server.layout)
        return unpack(parcel, Answer, Refusal, spans=spans, vectors=self._hearing.vectors, check=check)

    def _stray(self, report: Report) -> Sequence[_Heard]:
        """What an answer means that no message is waiting for; the server says why nobody does."""
        if report.dispatch in self._out:  # whose answer is still to come, and must not be taken for this one
            self._tell(f"an answer to visit {report.dispatch} that was not asked for now is ignored")
            return ()
        return (_Heard(event=report),)

    def _back_or_lost(self) -> list[_Heard]:
        """Sends out again what waits for a node that is back; gives up on those that stay away."""
        assert self._state is not None
        lost, back, now = list[_Heard](), list[_Out](), self._clock.now() - self._zero
        for dispatch, out in sorted(self._out.items()):
            if out.message is not None:
                continue
            flight = self._state.flights.get(dispatch)
            if flight is not None and flight.given_up:
                lost.append(self._lost(out, "its node went away, and nobody waited for it any more"))
            elif self._nodes.node(out.assignment.client) is not None and now >= out.again:
                back.append(out)
            elif out.away is not None and now - out.away >= self._returns:
                lost.append(self._lost(out, f"its node went away and was not back within {self._returns:g} s"))
        for out in back:
            self._tell(f"client {out.assignment.client} is there: its visit {out.assignment.visit} is sent again")
            out.away = None
        self._push(back)
        return lost

    def _unfit(self, out: _Out, words: str, came: int = 0, kind: FaultKind = "unfit") -> _Heard:
        """A visit whose answer is no good."""
        assignment, reason = out.assignment, f"it has {words}"
        self._tell(f"client {assignment.client}, visit {assignment.visit}: {reason}")
        return self._lost(out, reason, came=came, fault=kind)

    def _lost(self, out: _Out, reason: str, *, came: int = 0, fault: FaultKind = "lost") -> _Heard:
        assignment, fault = out.assignment, fault if out.away is None else "away"
        self._out.pop(assignment.dispatch, None)
        return _Heard(event=Lost(dispatch=assignment.dispatch, reason=reason, fault=fault), visit=out, came=came)


def _at(now: float, heard: _Heard) -> _Heard:
    """The same, heard now."""
    event, out = heard.event, heard.visit
    if isinstance(event, Report):
        event = event.heard(after=now - (now if out is None else out.started), at=now)
    elif isinstance(event, Lost):
        event = Lost(dispatch=event.dispatch, reason=event.reason, time=now, fault=event.fault)
    return _Heard(event=event, visit=out, seconds=heard.seconds, came=heard.came)
