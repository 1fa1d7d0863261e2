"""The server: pure functions from a state and an event to a new state and new assignments.

Synchronous rounds and buffered asynchrony are the same server with another release policy. Neither clock nor socket
nor device list is read here; random draws are named by version or dispatch number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from torch import Tensor

from polyrhythm.base.faults import LOST
from polyrhythm.base.frozen import cached, new_unchecked, persistent, replace_unchecked
from polyrhythm.base.messages import Arrived, Assignment, Event, Fault, Lost, Report, Roster, State, Timer
from polyrhythm.base.vectors import Buffers, Layout
from polyrhythm.core.readiness import Readiness
from polyrhythm.core.server_state import Flight, Record, Released, ServerDecision, ServerState, Verdict
from polyrhythm.core.sums import with_clip, with_cohort
from polyrhythm.core.validation import before_use, nothing_of, of_no_use, on_arrival, unasked
from polyrhythm.core.versions import Versions
from polyrhythm.methods.mechanism import Setup
from polyrhythm.methods.participation.base import Invitation, InvitationContext
from polyrhythm.methods.recipe import Recipe

_NEW = Record()


@final
@dataclass(frozen=True, kw_only=True)
class Server:
    """Server of one run: what it knows beside its state, and never changes.

    Args:
        recipe: the method.
        setup: what is fixed for the run; `setup.total_rounds` ends it.
        layout: names what is in the vectors, for words about what is wrong with them.
    """

    recipe: Recipe
    setup: Setup
    layout: Layout

    @cached
    def readiness(self) -> Readiness:
        """What it waits for."""
        return Readiness(recipe=self.recipe)

    @cached
    def versions(self) -> Versions:
        """What makes its versions."""
        return Versions(recipe=self.recipe, setup=self.setup, layout=self.layout)

    def over(self, state: ServerState) -> bool:
        """Whether the run has all its versions."""
        return self.setup.total_rounds is not None and state.version >= self.setup.total_rounds

    def begin(self, weights: Tensor, buffers: Buffers, roster: Roster) -> ServerDecision:
        """The first turn: version 0 and the first invitations.

        Args:
            weights: initial weights [P].
            buffers: initial buffers.
            roster: who is there.
        """
        parts = self.recipe.server_start(self.setup)
        state = ServerState(version=0, weights=weights.clone(), buffers=buffers, parts=parts)
        return self._invite(state, roster, Timer(time=0.0), ())

    def receive(self, state: ServerState, event: Event, roster: Roster) -> ServerDecision:
        """One event.

        Args:
            state: as the last turn left it; not changed.
            event: what happened.
            roster: who is there.

        Raises:
            RunFailed: every update of a version had to be dropped.
        """
        before, over, measuring = state, self.over(state), state.measuring > 0
        recipe, readiness, verdict = self.recipe, self.readiness, None
        if isinstance(event, Report):
            state, verdict = self._take(state, event)
        elif isinstance(event, Lost):
            state, verdict = self._lose(state, event)
        # What nobody waits for makes nothing ready, not even where nobody is left to wait for.
        unasked = verdict is not None and state is before
        if over or unasked:
            return new_unchecked(ServerDecision, state=state, verdict=verdict)
        state, released = readiness.give_up(state, event), None
        # Once all that were measured have answered, participation knows what it waited for, and is asked first.
        measured = measuring and not state.measuring
        if not measured and (readiness.ready(state, event) or (state.refused and readiness.hopeless(state, roster))):
            state, released = self.versions.step(state, event.time, roster)
            if self.over(state):
                return new_unchecked(ServerDecision, state=state, released=released, verdict=verdict)
        fills, idle = recipe.fills_places, not (state.training or state.measuring)
        asks = released is not None or measured or idle or fills
        # A step waits for no measurement, an invitation does.
        if not asks or state.measuring:
            wake_up = readiness.wake_up(state, event)
            return new_unchecked(ServerDecision, state=state, released=released, verdict=verdict, wake_up=wake_up)
        whole = released is not None or measured or (idle and not fills)
        occasion = () if whole else ("dispatch", state.dispatched)
        turn = self._invite(state, roster, event, occasion, released, verdict)
        if released is None and not turn.assignments and readiness.stuck(turn.state, event, roster):
            state, released = self.versions.step(turn.state, event.time, roster)
            if self.over(state):
                return new_unchecked(ServerDecision, state=state, released=released, verdict=verdict)
            turn = self._invite(state, roster, event, (), released, verdict)
        return turn

    def _invite(
        self,
        state: ServerState,
        roster: Roster,
        event: Event,
        occasion: tuple[int | str, ...],
        released: Released | None = None,
        verdict: Verdict | None = None,
    ) -> ServerDecision:
        """The end of a turn: whoever is invited now, for an event that may have released a version."""
        recipe = self.recipe
        context = new_unchecked(
            InvitationContext,
            version=state.version,
            weights=state.weights,
            buffers=state.buffers,
            roster=roster,
            busy=persistent(state.busy).update(dict.fromkeys(state.resting, -1)) if state.resting else state.busy,
            in_flight=state.training,
            surplus=recipe.releasing.surplus,
            occasion=occasion,
            now=event.time,
            caller=event.client if isinstance(event, Arrived) else None,
        )
        parts, invitations = recipe.inviting.invite(self.setup, state.parts, context)
        assignments: tuple[Assignment, ...] = ()
        if invitations:
            state, assignments = self._sent(state, parts, invitations, event.time)
        else:
            state = replace_unchecked(state, parts=parts)
        idle = not (assignments or state.training or state.measuring)
        empty = idle and recipe.participation.may_be_empty  # then the version is over: it is told so at once
        wanting = self.readiness.wanting(state) or (idle and not empty)
        return new_unchecked(
            ServerDecision,
            state=state,
            assignments=assignments,
            wake_up=event.time if empty else self.readiness.wake_up(state, event),
            wanting=wanting,
            released=released,
            verdict=verdict,
        )

    def _sent(
        self, state: ServerState, parts: Mapping[str, State], invitations: Sequence[Invitation], now: float
    ) -> tuple[ServerState, tuple[Assignment, ...]]:
        """The state with some more assignments out and other states of the mechanisms, and these assignments."""
        recipe, setup = self.recipe, self.setup
        flights, busy = persistent(state.flights).mutate(), persistent(state.busy).mutate()
        past = dict(state.past) if "base" in recipe.needs() else None
        if recipe.sums_only:
            parts, state = with_clip(recipe, parts), replace_unchecked(state, parts=with_clip(recipe, state.parts))
        briefing, total_rounds, digest = recipe.overriding("brief"), setup.total_rounds, recipe.digest
        assignments, training = [], 0
        for number, invitation in enumerate(invitations, start=state.dispatched):
            client, record = invitation.client, state.clients.get(invitation.client, _NEW)
            version = state.version if invitation.version is None else invitation.version
            weights, buffers = state.weights, state.buffers
            if invitation.model is not None:
                weights, buffers = invitation.model.weights, invitation.model.buffers
            flights[number] = new_unchecked(
                Flight, client=client, kind=invitation.kind, visit=record.visits, version=version, sent=now, given_up=""
            )
            busy[client] = number
            briefs: dict[str, State] = {}
            if invitation.kind == "train":
                training += 1
                if past is not None:
                    past[version] = weights
            if invitation.kind != "measure":
                for part_key, mechanism in briefing:
                    if brief := mechanism.brief(setup, state.parts[part_key], client):
                        briefs[part_key] = brief
            assignments.append(
                new_unchecked(
                    Assignment,
                    dispatch=number,
                    client=client,
                    visit=record.visits,
                    accepted=record.accepted,
                    kind=invitation.kind,
                    version=version,
                    total_rounds=total_rounds,
                    weights=weights,
                    buffers=buffers,
                    briefs=briefs,
                    recipe=digest,
                    samples=invitation.samples,
                )
            )
        if recipe.sums_only:
            parts = with_cohort(recipe, parts, assignments)
        state = replace_unchecked(
            state,
            parts=parts,
            dispatched=state.dispatched + len(assignments),
            flights=flights.finish(),
            busy=busy.finish(),
            training=state.training + training,
            measuring=state.measuring + len(assignments) - training,
            past=state.past if past is None else past,
            began=now if state.training == 0 and state.invited == 0 else state.began,
            invited=state.invited + training,
        )
        return state, tuple(assignments)

    def _take(self, state: ServerState, report: Report) -> tuple[ServerState, Verdict]:
        recipe, setup, flight = self.recipe, self.setup, state.flights.get(report.dispatch)
        wrong = unasked(flight, report, state.dispatched)
        if flight is None or wrong is not None:
            # The books must not change, least of all the entry of a client whose honest report is still to come.
            return state, refusal(report, wrong)
        wrong = on_arrival(recipe, flight, report)
        if flight.given_up:
            return _landed(state, report.dispatch, flight), refusal(report, wrong)
        if wrong is None and flight.kind != "train":
            parts = self._measured(state.parts, report)
            return _landed(state, report.dispatch, flight, parts=parts), _acceptance(report)
        silent = report.substitute == "silence"
        if wrong is None and report.substitute and not silent:
            for key, mechanism in recipe.overriding("fill"):
                report = mechanism.fill(setup, state.parts[key], report)
        if wrong is None and not silent:
            wrong = before_use(recipe, setup, self.layout, state.parts, report, state.buffers)
        # Refused, it would change who else is in a version, by what the client's data are.
        hidden = wrong is not None and recipe.releasing.private and of_no_use(wrong.kind) and not recipe.sums_only
        report = nothing_of(report, self.layout) if hidden else report
        parts, heard = state.parts, wrong is None and not silent
        if heard and (accepting := recipe.overriding("accept")):
            parts = {**parts, **{k: m.accept(setup, parts[k], report) for k, m in accepting}}
        rests = wrong is not None or report.substitute or recipe.one_at_a_time
        state = _landed(
            state,
            report.dispatch,
            flight,
            accepted=heard,
            parts=parts,
            waiting=(*state.waiting, report) if heard or hidden else state.waiting,
            refused=state.refused if wrong is None or hidden else (*state.refused, (flight.client, wrong.words)),
            resting=self._resting(state, flight.client) if rests else state.resting,
        )
        return state, _acceptance(report) if wrong is None else refusal(report, wrong)

    def _resting(self, state: ServerState, client: int) -> tuple[int, ...]:
        """Who is not invited again before the next version, with a client that has answered.

        Who did not train, or cannot, may answer at once: invited again and again, it would fill the buffer, or time
        itself.
        """
        rests = self.recipe.fills_places and self.recipe.participation.invites
        return (*state.resting, client) if rests else state.resting

    def _measured(self, parts: Mapping[str, State], report: Report) -> Mapping[str, State]:
        key = self.recipe.key_of(self.recipe.participation)
        return {**parts, key: self.recipe.participation.measured(self.setup, parts[key], report)}

    def _lose(self, state: ServerState, lost: Lost) -> tuple[ServerState, Verdict]:
        flight = state.flights.get(lost.dispatch)
        verdict = new_unchecked(Verdict, dispatch=lost.dispatch, accepted=False, reason=lost.reason, fault=lost.fault)
        if flight is None:
            return state, verdict
        refused = state.refused if flight.given_up else (*state.refused, (flight.client, lost.reason))
        # An answer has come, and was no good.
        resting = state.resting if lost.fault in LOST else self._resting(state, flight.client)
        return _landed(state, lost.dispatch, flight, refused=refused, resting=resting), verdict


def _acceptance(report: Report) -> Verdict:
    return new_unchecked(Verdict, dispatch=report.dispatch, accepted=True)


def refusal(report: Report, wrong: Fault | None) -> Verdict:
    """The verdict on a report with which something is wrong."""
    assert wrong is not None
    return Verdict(dispatch=report.dispatch, accepted=False, reason=wrong.words, fault=wrong.kind)


def _landed(state: ServerState, dispatch: int, flight: Flight, *, accepted: bool = False, **fields: Any) -> ServerState:
    """The state without an assignment that is out no more, and with other fields that change because of it."""
    clients, trains, waited_for = state.clients, flight.kind == "train", not flight.given_up
    if trains:
        last = flight.visit if accepted else clients.get(flight.client, _NEW).accepted
        clients = persistent(clients).set(flight.client, Record(visits=flight.visit + 1, accepted=last))
    return replace_unchecked(
        state,
        flights=persistent(state.flights).delete(dispatch),
        busy=persistent(state.busy).delete(flight.client),
        clients=clients,
        training=state.training - (trains and waited_for),
        measuring=state.measuring - (not trains and waited_for),
        **fields,
    )
