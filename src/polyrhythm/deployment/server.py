"""The server of a real federation: the pure core, on the clock that really passes, over a transport to nodes.

Time is seconds since the run began. What the core hears is written down in the order in which it is heard, so a replay
gives the same models again. What becomes of visits on their way is a matter of its own (`outstanding`); the core
decides everything else: who is invited, how long anybody waits, what a late report counts.

A node may send anything, and nothing that one of them sends ends the run: a report that the core cannot make use of is
a lost visit with its reason, billed for what came.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import final

from torch import Tensor

from polyrhythm.base.errors import RunFailed
from polyrhythm.base.filed import let_go
from polyrhythm.base.messages import Arrived, Lost, Report, Timer
from polyrhythm.base.vectors import Layout
from polyrhythm.core.client_state import ClientState
from polyrhythm.core.reports import report_on
from polyrhythm.core.server import Server
from polyrhythm.core.server_state import ServerDecision, ServerState, Verdict
from polyrhythm.core.sums import cohort_of
from polyrhythm.core.validation import diverged
from polyrhythm.data.transforms import Normalise
from polyrhythm.deployment.charging import all_charged, heard_in
from polyrhythm.deployment.efforts import Efforts
from polyrhythm.deployment.outstanding import LOOK, Heard, Out, Outstanding
from polyrhythm.deployment.registry import Clock, Nodes, Tell, Transport, listed
from polyrhythm.deployment.sums import Mail, RemoteSums
from polyrhythm.fleet import Load, Remembered, Spent, VisitOutcome
from polyrhythm.methods.mechanism import Model, Setup
from polyrhythm.methods.recipe import Recipe
from polyrhythm.runs.charges import Charges
from polyrhythm.simulation.client_store.vector_files import vectors
from polyrhythm.simulation.cost_meter import Meter
from polyrhythm.simulation.event_queue import VISIT, Agenda, DriverState, Underway
from polyrhythm.simulation.roster import WorldRoster
from polyrhythm.simulation.simulator import SimulationStep

_LEFT_OUT = "it was left out of the sum: it sent no keys or letters, or too few of its neighbours did"


@final
class RemoteDriver:
    """Runs a recipe over nodes that are really there.

    Args:
        recipe: the method.
        setup: what is fixed for the run.
        layout: of the vectors.
        meter: measures visits.
        transport: to the nodes.
        nodes: who they are; gathered already.
        clock: the time.
        run: gives the run's id, once it has begun.
        folder: gives the run's folder, once it has begun; what clients send waits there for its version.
        scaling: by which statistics of its samples the server scales inputs, if by any.
        retain: how many checkpoints the server may go back to.
        returns: seconds that a visit waits for its node to come back, 0 for none.
        alone: seconds that the server waits for anybody to invite, or after a deadline for the least number of reports.
        pause: seconds between two looks for answers.
        tell: says what happens to nodes.
        charges: what versions have cost in privacy, where clients are hidden.
    """

    def __init__(
        self,
        recipe: Recipe,
        setup: Setup,
        layout: Layout,
        meter: Meter,
        transport: Transport,
        nodes: Nodes,
        clock: Clock,
        *,
        run: Callable[[], str],
        folder: Callable[[], Path],
        scaling: Normalise | None = None,
        retain: int = 2,
        returns: float = 120.0,
        alone: float = 600.0,
        pause: float = 0.1,
        tell: Tell = lambda text: None,
        charges: Charges | None = None,
    ) -> None:
        self.server, self.meter = Server(recipe=recipe, setup=setup, layout=layout), meter
        self.roster = WorldRoster(nodes)
        self._nodes, self._clock, self._alone, self._pause = nodes, clock, alone, pause
        self._tell, self._charges = tell, charges if recipe.releasing.private else None
        self._state: ServerState | None = None
        self._out = Outstanding(
            self.server,
            transport,
            nodes,
            run=run,
            folder=folder,
            scaling=scaling,
            retain=retain,
            returns=returns,
            tell=tell,
        )
        self._sums: RemoteSums | None = None
        if recipe.sums_only:
            self._sums = self.roster.sums = RemoteSums(
                recipe, setup, transport, nodes, clock, run=run, patience=returns or alone, pause=pause, tell=tell
            )
        self._left_out: list[Heard] = []
        self._timer: float | None = None
        self._zero = self._looked = 0.0
        self._wanting = False
        # Whose reports a version came to nothing by, since a version was last made of any.
        self._blamed: set[int] = set()
        self._efforts = Efforts()

    def state_of(self, client: int, accepted: int) -> ClientState:
        """What the server knows of a client's state: nothing, it lies at the node."""
        return ClientState()

    def under_way(self) -> list[Underway]:
        """Visits whose end was not heard yet, by dispatch number: what is known of them."""
        return [self._underway(out) for out in self._out]

    def _underway(self, out: Out) -> Underway:
        report = report_on(out.assignment, num_samples=0)
        load = Load(bytes_down=self.meter.load(out.assignment, report).bytes_down)
        spent = Spent(down=max(0.0, self.roster.now - out.started), bytes_down=load.bytes_down)
        outcome = VisitOutcome(time=math.inf, spent=spent)
        return Underway(started=out.started, assignment=out.assignment, report=report, load=load, outcome=outcome)

    def state(self) -> DriverState:
        """All that there is to know of the run between two moments; to be read before the next one is asked for."""
        assert self._state is not None, "a run that has not begun"
        self._out.kept(self._state.clients)
        visits = self.under_way()
        heap = [(math.inf, VISIT, visit.assignment.dispatch, visit) for visit in visits]
        return DriverState(
            server=self._state,
            agenda=Agenda(heap=[*heap], visits=len(visits), timer=self._timer),
            now=self.roster.now,
            clients={},
            world=Remembered(back={}, charge={}, arrivals=0, comings=None),
        )

    def moments(self, start: Model | DriverState) -> Iterator[SimulationStep]:
        """The run, event by event, until its total_rounds; stop asking to stop it.

        Args:
            start: the initial model; or where an earlier run of the same experiment stood, from which this one goes on.

        Raises:
            RunFailed: nobody is there to be invited, or the server could not go on.
        """
        if isinstance(start, Model):
            self._zero = self._clock.now()
            turn = self.server.begin(start.weights, start.buffers, self.roster)
            if self._charges is not None:  # of versions that were made before, if it begins anew
                state, unknown = all_charged(self.server.recipe, turn.state, self._charges)
                turn = dataclasses.replace(turn, state=state)
                if unknown:
                    self._tell(f"{unknown} that nodes have seen before is charged, though the run begins anew")
            self._state = turn.state
            self._send(turn)
            yield SimulationStep(time=0.0, turn=turn, answers=self.roster.answers())
        else:
            self._take_up(start)
        yield from self._events()

    def _take_up(self, start: DriverState) -> None:
        """Sends out again what was out; whoever nobody waited for any more is lost."""
        self._state, self.roster.now = start.server, start.now
        self._efforts.moved = any(record.accepted >= 0 for record in start.server.clients.values())
        self._zero, self._timer = self._clock.now() - start.now, start.agenda.timer
        self._out.kept(start.server.clients)
        outs = [Out(visit.assignment, visit.started) for visit in start.agenda.under_way()]
        if self._charges is not None:
            state, unknown = all_charged(self.server.recipe, start.server, self._charges)
            self._state = state
            if unknown:
                self._tell(f"{unknown} that nodes have seen is lost, and charged: another one, of noise alone, follows")
                self._state = dataclasses.replace(state, waiting=())
                return self._leave_out(outs, "a version was lost after it had left, so its cohort is drawn anew")
        if self._sums is not None:
            self._go_on_with_a_sum(self._sums, start.server, outs)
            return
        self._out.take_up(outs, start.server.flights, start.now)

    def _go_on_with_a_sum(self, sums: RemoteSums, state: ServerState, outs: Sequence[Out]) -> None:
        """Begins a version anew of which no masked update has come; else it is lost, as its keys are."""
        if state.waiting:
            self._tell(f"version {state.version + 1}: the server has lost its keys, and the version is skipped")
            self._leave_out(outs, "the server was begun anew within the stages of a sum")
            return
        cohort = tuple((out.assignment.dispatch, out.assignment.client) for out in outs)
        mail = sums.begin(state.version, cohort)
        self._leave_out([out for out in outs if out.assignment.client not in mail], _LEFT_OUT)
        self._out.send([out.assignment for out in outs if out.assignment.client in mail], self.roster.now, mail)

    def _leave_out(self, outs: Sequence[Out], why: str) -> None:
        """Counts visits as lost that are not sent, or were."""
        self._left_out += [
            Heard(event=Lost(dispatch=out.assignment.dispatch, reason=why, fault="dropout"), visit=out) for out in outs
        ]

    def _events(self) -> Iterator[SimulationStep]:
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
                    yield self._moment(heard, ServerDecision(state=state, verdict=verdict))
                    raise
                self._state = state = turn.state
                if self._charges is not None and turn.released is not None:  # before anybody sees it
                    self._charges.add(heard_in(turn.released))
                self._send(turn)
                if isinstance(heard.event, Timer) and turn.released is None:
                    self._say_what_is_missing(state)
                self._efforts.note(heard, turn)
                in_vain = self._efforts.in_vain(self._nodes.eligible, over=server.over(state))
                # The last visit belongs in the record; a last version would end the run as if it had succeeded.
                yield self._moment(heard, dataclasses.replace(turn, released=None) if in_vain else turn)
                if in_vain:
                    raise RunFailed(in_vain)

    def _say_what_is_missing(self, state: ServerState) -> None:
        """Says who is waited for although a deadline is over."""
        least, due = self.server.recipe.releasing.least, self.server.recipe.due
        clients = sorted(flight.client for flight in state.flights.values() if not flight.given_up)
        if clients and due is not None and len(state.waiting) < least:
            self._tell(
                f"version {state.version + 1}: {due:g} s are over with {len(state.waiting)} reports, where {least} are "
                f"needed; {listed(clients)} waited for, {self._alone:g} s at most"
            )

    def _overdue(self, state: ServerState) -> bool:
        due = self.server.recipe.due
        return due is not None and self._now() >= state.began + due + self._alone

    def _taken(self, heard: Heard, state: ServerState) -> tuple[Heard, ServerDecision]:
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
            heard = self._out.unfit(out, f"sent a report that cannot be used: {words}", heard.came).at(self.roster.now)
            turn = self._received(heard, state)
        if turn.released is not None and turn.released.release is not None:
            self._blamed.clear()
        return heard, turn

    def _received(self, heard: Heard, state: ServerState) -> ServerDecision:
        turn = self.server.receive(state, heard.event, self.roster)
        if isinstance(heard.event, Report):  # which has been read, and waits
            let_go(vector for vector in vectors(heard.event) if isinstance(vector, Tensor))
        return turn

    def _spared(self, out: Out, state: ServerState, failure: Exception) -> bool:
        """Whether the run goes on although the core could not go on with a report: no single node can end it.

        Where the reports of several come to nothing, one after the other, it is the training that diverges.
        """
        if not isinstance(failure, RunFailed):
            return True
        self._blamed |= {c for c, reason in state.refused if diverged(reason)} | {out.assignment.client}
        return len(self._blamed) == 1 and self.server.setup.holders > 1

    def _moment(self, heard: Heard, turn: ServerDecision) -> SimulationStep:
        now, event, out = self.roster.now, heard.event, heard.visit
        if out is None:
            return SimulationStep(time=now, turn=turn, event=event, answers=self.roster.answers())
        report = (
            event
            if isinstance(event, Report)
            else report_on(out.assignment, num_samples=0).heard(after=now - out.started, at=now)
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
        return SimulationStep(
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

    def _send(self, turn: ServerDecision) -> None:
        mail: Mail = {}
        if self._sums is not None and turn.assignments:
            mail = self._sums.begin(turn.state.version, cohort_of(self.server.recipe, turn.state.parts))
            gone = [a for a in turn.assignments if a.client not in mail]
            self._leave_out([Out(assignment, self.roster.now) for assignment in gone], _LEFT_OUT)
        self._out.send([a for a in turn.assignments if self._sums is None or a.client in mail], self.roster.now, mail)
        self._wanting = turn.wanting
        if turn.wake_up is not None and (self._timer is None or turn.wake_up < self._timer):
            self._timer = turn.wake_up

    def _listen(self) -> list[Heard]:
        """Waits until something happens; gives all that has.

        Raises:
            RunFailed: nobody is there, and nobody comes.
        """
        since = self._clock.now()
        while True:
            heard, self._left_out = [*self._left_out, *self._out.hear(self._now)], []
            came = list[int]()
            if self._clock.now() >= self._looked + LOOK:
                came, self._looked = self._nodes.look(), self._clock.now()
                assert self._state is not None
                heard += self._out.back_or_lost(self._state.flights, self._now(), self._overdue(self._state))
            # Reports that are there when a deadline is found to have passed are in time.
            now = self._now()
            if self._wanting:
                assert self._state is not None
                heard += [Heard(event=Arrived(client=c, time=now)) for c in came if c not in self._state.busy]
            if self._timer is not None and now >= self._timer:
                self._timer = None
                heard.append(Heard(event=Timer(time=now)))
            if heard:
                self.roster.now = now
                return [h.at(now) for h in heard]
            if not self._out and self._timer is None and self._clock.now() - since > self._alone:
                raise RunFailed(
                    f"version {0 if self._state is None else self._state.version}: no client is there to be invited, "
                    f"and none came within {self._alone:g} s"
                )
            self._clock.sleep(self._pause)

    def _now(self) -> float:
        return self._clock.now() - self._zero
