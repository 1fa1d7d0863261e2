"""The server: one pure function from a state and an event to a new state and new assignments.

Synchronous rounds and buffered asynchrony are the same function with another release policy. Neither clock nor socket
nor device list is read here; random draws are named by version or dispatch number; updates are summed in dispatch order
over a fixed tree, never in the order of arrival.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final

from immutables import Map
from torch import Tensor

from polyrhythm.base.errors import RunFailed
from polyrhythm.base.frozen import changed, made, persistent
from polyrhythm.base.messages import (
    Arrived,
    Assignment,
    Event,
    Facts,
    Fault,
    FaultKind,
    Kind,
    Lost,
    Report,
    Roster,
    State,
    Timer,
)
from polyrhythm.base.vectors import Buffers, Layout, combine_buffers, first_non_finite
from polyrhythm.core.validation import NOT_FINITE, UNFIT, before_use, on_arrival, unasked
from polyrhythm.methods.mechanism import Release, Setup
from polyrhythm.methods.participation.base import Call
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.release.base import Standing
from polyrhythm.methods.weighing import shares


@final
@dataclass(frozen=True, kw_only=True)
class Flight:
    """An assignment that is neither answered nor lost.

    Args:
        client, kind, visit, version: of the assignment.
        sent: when, in seconds since the run began.
        given_up: why nobody waits for it any more; empty while somebody does.
    """

    client: int
    kind: Kind
    visit: int
    version: int
    sent: float = 0.0
    given_up: str = ""


@final
@dataclass(frozen=True, kw_only=True)
class Record:
    """What the server knows of one client: training visits that are over, and the last one accepted (-1 for none)."""

    visits: int = 0
    accepted: int = -1


_NEW = Record()


@final
@dataclass(frozen=True, kw_only=True)
class ServerState:
    """Everything the server remembers. Its maps are persistent: a changed one costs the logarithm of their size.

    Args:
        version: how many steps it has taken.
        weights: [P].
        buffers: beside the weights.
        parts: the mechanisms' states, by key.
        dispatched: assignments made so far: the next dispatch number.
        flights: what is out, by dispatch number, given up or not.
        busy: the dispatch number of what is out, by client: nobody has two.
        training, measuring: how many visits of each kind somebody waits for.
        waiting: accepted reports that are not yet in a version.
        refused: (client, reason) of what was dropped or lost since the last version.
        resting: clients that are not invited again before the next version.
        clients: what is known of each client that had a visit.
        began: when the work on the next version began.
        invited: training visits begun since then.
        past: the weights of earlier versions that visits under way were sent, by version, where the release needs them.
    """

    version: int
    weights: Tensor
    buffers: Buffers
    parts: Mapping[str, State]
    dispatched: int = 0
    flights: Mapping[int, Flight] = field(default_factory=Map)
    busy: Mapping[int, int] = field(default_factory=Map)
    training: int = 0
    measuring: int = 0
    waiting: tuple[Report, ...] = ()
    refused: tuple[tuple[int, str], ...] = ()
    resting: tuple[int, ...] = ()
    clients: Mapping[int, Record] = field(default_factory=Map)
    began: float = 0.0
    invited: int = 0
    past: Mapping[int, Tensor] = field(default_factory=dict)


@final
@dataclass(frozen=True, kw_only=True)
class Released:
    """What a version was made of, for observers.

    Args:
        version: the new version.
        release: the reports, shares and scales; None if the version was skipped and the weights are as before.
        refused: (client, reason) of what was left out.
        note: why the version was skipped, or why the server kept its weights all the same.
    """

    version: int
    release: Release | None
    refused: tuple[tuple[int, str], ...]
    note: str = ""


@final
@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What became of one report or lost assignment, and under which kind it counts if something was wrong."""

    dispatch: int
    accepted: bool
    reason: str = ""
    fault: FaultKind | None = None


@final
@dataclass(frozen=True, kw_only=True)
class Turn:
    """The answer to one event.

    Args:
        state: the new state.
        assignments: what to send out now.
        wake_up: when the server wants a `Timer`, in seconds since the run began, if at all.
        wanting: whether it would invite more clients if there were any: the driver says so when one is there.
        released: the version that this event completed, if any.
        verdict: what became of the report, if the event was one.
    """

    state: ServerState
    assignments: tuple[Assignment, ...] = ()
    wake_up: float | None = None
    wanting: bool = False
    released: Released | None = None
    verdict: Verdict | None = None


def begin(recipe: Recipe, setup: Setup, weights: Tensor, buffers: Buffers, roster: Roster) -> Turn:
    """The first turn: version 0 and the first invitations.

    Args:
        recipe: the method.
        setup: what is fixed for the run.
        weights: initial weights [P].
        buffers: initial buffers.
        roster: who is there.
    """
    parts = recipe.server_start(setup)
    state = ServerState(version=0, weights=weights.clone(), buffers=buffers, parts=parts)
    return _invite(recipe, setup, state, roster, Timer(time=0.0), ())


def receive(recipe: Recipe, setup: Setup, layout: Layout, state: ServerState, event: Event, roster: Roster) -> Turn:
    """One event.

    Args:
        recipe: the method.
        setup: what is fixed for the run; `setup.horizon` ends it.
        layout: names what is in the vectors, for words about what is wrong with them.
        state: as the last turn left it; not changed.
        event: what happened.
        roster: who is there.

    Raises:
        RunFailed: every update of a version had to be dropped.
    """
    before, over = state, setup.horizon is not None and state.version >= setup.horizon
    measuring = state.measuring > 0
    verdict = None
    if isinstance(event, Report):
        state, verdict = _take(recipe, setup, layout, state, event)
    elif isinstance(event, Lost):
        state, verdict = _lose(recipe, state, event)
    # What nobody waits for makes nothing ready, not even where nobody is left to wait for.
    unasked = verdict is not None and state is before
    if over or unasked:
        return made(Turn, state=state, verdict=verdict)
    state, released = _give_up(recipe, state, event), None
    # Once all that were measured have answered, participation knows what it waited for, and is asked first.
    measured = measuring and not state.measuring
    if not measured and (_ready(recipe, state, event) or (state.refused and _hopeless(recipe, state, roster))):
        state, released = _step(recipe, setup, layout, state, event.time)
        if setup.horizon is not None and state.version >= setup.horizon:
            return made(Turn, state=state, released=released, verdict=verdict)
    fills, idle = recipe.fills_places, not (state.training or state.measuring)
    asks = released is not None or measured or idle or fills
    # A step waits for no measurement, an invitation does.
    if not asks or state.measuring:
        return made(Turn, state=state, released=released, verdict=verdict, wake_up=_wake_up(recipe, state, event))
    whole = released is not None or measured or (idle and not fills)
    occasion = () if whole else ("dispatch", state.dispatched)
    turn = _invite(recipe, setup, state, roster, event, occasion, released, verdict)
    if released is None and not turn.assignments and _stuck(recipe, turn.state, event, roster):
        state, released = _step(recipe, setup, layout, turn.state, event.time)
        if setup.horizon is not None and state.version >= setup.horizon:
            return made(Turn, state=state, released=released, verdict=verdict)
        turn = _invite(recipe, setup, state, roster, event, (), released, verdict)
    return turn


def _stuck(recipe: Recipe, state: ServerState, event: Event, roster: Roster) -> bool:
    """Whether a version must go on with what there is: nobody is at work, and no place could be filled.

    Where the server invites nobody, somebody may still come, until as many visits as there are clients came to nothing.
    """
    if not recipe.fills_places or state.training or state.measuring:
        return False
    may_come = not recipe.participation.invites and state.invited - len(state.waiting) < roster.eligible
    return not may_come and _ready(recipe, state, event, refills=False)


def _hopeless(recipe: Recipe, state: ServerState, roster: Roster) -> bool:
    """Whether so many visits were lost or refused, by as many as there are clients more than arrived, that it may last.

    Where places are refilled, there is always somebody at work to wait for.
    """
    lost = len(state.refused) - len(state.waiting)
    return recipe.fills_places and lost >= max(1, roster.eligible)


def _passed(moment: float, event: Event) -> bool:
    """Whether a moment is over. Of all that arrives at that very moment, nothing is late: only the timer ends it."""
    return event.time > moment or (event.time == moment and isinstance(event, Timer))


def _ready(recipe: Recipe, state: ServerState, event: Event, *, refills: bool = True) -> bool:
    if not (state.invited or state.training or state.waiting or state.refused or state.resting):
        return False  # nobody has been invited yet, or everybody's answer went into the last version
    due, elapsed = recipe.due, event.time - state.began
    if due is not None:
        # began + due - began may be a hair more or less than due.
        over = _passed(state.began + due, event)
        elapsed = max(elapsed, due) if over else min(elapsed, math.nextafter(due, 0.0))
    in_flight = state.training + state.measuring
    if refills and recipe.fills_places:
        in_flight = max(in_flight, 1)  # the place that has just become free is about to be filled
    standing = made(Standing, waiting=len(state.waiting), in_flight=in_flight, invited=state.invited, elapsed=elapsed)
    return recipe.releasing.ready(standing)


def _wake_up(recipe: Recipe, state: ServerState, event: Event) -> float | None:
    """When the server must look again although nothing happens. A moment that is over wakes nobody again."""
    due, patience = recipe.due, recipe.patience
    if (due is None and patience is None) or not (state.training or state.measuring):
        return None
    moments = [] if due is None else [state.began + due]
    moments += [] if patience is None else [_oldest(state) + patience]
    return min((m for m in moments if not _passed(m, event)), default=None)


def _oldest(state: ServerState) -> float:
    """When the visit was sent that somebody has waited for longest."""
    return min((f.sent for f in state.flights.values() if not f.given_up), default=math.inf)


def _give_up(recipe: Recipe, state: ServerState, event: Event) -> ServerState:
    """Waits no longer for visits that have taken too long."""
    patience = recipe.patience
    if patience is None or not _passed(_oldest(state) + patience, event):
        return state
    late = {d: f for d, f in state.flights.items() if not f.given_up and _passed(f.sent + patience, event)}
    return _given_up(state, late, f"no answer within {patience:g} s")


def _given_up(state: ServerState, late: Mapping[int, Flight], reason: str) -> ServerState:
    training = sum(f.kind == "train" for f in late.values())
    return changed(
        state,
        flights=persistent(state.flights).update({d: changed(f, given_up=reason) for d, f in late.items()}),
        training=state.training - training,
        measuring=state.measuring - (len(late) - training),
        refused=(*state.refused, *((f.client, reason) for _, f in sorted(late.items()))),
    )


def _invite(
    recipe: Recipe,
    setup: Setup,
    state: ServerState,
    roster: Roster,
    event: Event,
    occasion: tuple[int | str, ...],
    released: Released | None = None,
    verdict: Verdict | None = None,
) -> Turn:
    """The end of a turn: whoever is invited now, for an event that may have released a version."""
    now = event.time
    call = made(
        Call,
        version=state.version,
        weights=state.weights,
        buffers=state.buffers,
        roster=roster,
        busy=persistent(state.busy).update(dict.fromkeys(state.resting, -1)) if state.resting else state.busy,
        in_flight=state.training,
        surplus=recipe.releasing.surplus,
        occasion=occasion,
        now=now,
        caller=event.client if isinstance(event, Arrived) else None,
    )
    parts, invitations = recipe.inviting.invite(setup, state.parts, call)
    if not invitations:
        state = changed(state, parts=parts)
        return made(
            Turn,
            state=state,
            wake_up=_wake_up(recipe, state, event),
            wanting=_wanting(recipe, state) or not (state.training or state.measuring),
            released=released,
            verdict=verdict,
        )
    flights, busy = persistent(state.flights).mutate(), persistent(state.busy).mutate()
    past = dict(state.past) if "base" in recipe.needs() else None
    briefing, horizon, digest = recipe.overriding("brief"), setup.horizon, recipe.digest
    assignments, training = [], 0
    for number, invitation in enumerate(invitations, start=state.dispatched):
        client, record = invitation.client, state.clients.get(invitation.client, _NEW)
        version = state.version if invitation.version is None else invitation.version
        weights, buffers = state.weights, state.buffers
        if invitation.model is not None:
            weights, buffers = invitation.model.weights, invitation.model.buffers
        flights[number] = made(
            Flight, client=client, kind=invitation.kind, visit=record.visits, version=version, sent=now, given_up=""
        )
        busy[client] = number
        briefs: dict[str, State] = {}
        if invitation.kind == "train":
            training += 1
            for part_key, mechanism in briefing:
                if brief := mechanism.brief(setup, state.parts[part_key], client):
                    briefs[part_key] = brief
            if past is not None:
                past[version] = weights
        assignments.append(
            made(
                Assignment,
                dispatch=number,
                client=client,
                visit=record.visits,
                accepted=record.accepted,
                kind=invitation.kind,
                version=version,
                horizon=horizon,
                weights=weights,
                buffers=buffers,
                briefs=briefs,
                recipe=digest,
                samples=invitation.samples,
            )
        )
    state = changed(
        state,
        parts=parts,
        dispatched=state.dispatched + len(assignments),
        flights=flights.finish(),
        busy=busy.finish(),
        training=state.training + training,
        measuring=state.measuring + len(assignments) - training,
        past=state.past if past is None else past,
        began=now if call.in_flight == 0 and state.invited == 0 else state.began,
        invited=state.invited + training,
    )
    return made(
        Turn,
        state=state,
        assignments=tuple(assignments),
        wake_up=_wake_up(recipe, state, event),
        wanting=_wanting(recipe, state),
        released=released,
        verdict=verdict,
    )


def _wanting(recipe: Recipe, state: ServerState) -> bool:
    """Whether a client that comes while others are at work is of any use."""
    return recipe.fills_places and state.training < recipe.cohort


def _take(
    recipe: Recipe, setup: Setup, layout: Layout, state: ServerState, report: Report
) -> tuple[ServerState, Verdict]:
    flight = state.flights.get(report.dispatch)
    wrong = unasked(flight, report, state.dispatched)
    if flight is None or wrong is not None:
        # The books must not change, least of all the entry of a client whose honest report is still to come.
        return state, _refusal(report, wrong)
    wrong = on_arrival(recipe, flight, report)
    if flight.given_up:
        return _landed(state, report.dispatch, flight), _refusal(report, wrong)
    if wrong is None and flight.kind == "measure":
        parts = _measured(recipe, setup, state.parts, report)
        return _landed(state, report.dispatch, flight, parts=parts), made(
            Verdict, dispatch=report.dispatch, accepted=True
        )
    silent = report.substitute == "silence"
    if wrong is None and report.substitute and not silent:
        for key, mechanism in recipe.overriding("fill"):
            report = mechanism.fill(setup, state.parts[key], report)
    if wrong is None and not silent:
        wrong = before_use(recipe, setup, layout, state.parts, report, state.buffers)
    parts, heard = state.parts, wrong is None and not silent
    if heard and (accepting := recipe.overriding("accept")):
        parts = {**parts, **{k: m.accept(setup, parts[k], report) for k, m in accepting}}
    state = _landed(
        state,
        report.dispatch,
        flight,
        accepted=heard,
        parts=parts,
        waiting=(*state.waiting, report) if heard else state.waiting,
        refused=state.refused if wrong is None else (*state.refused, (flight.client, wrong.words)),
        resting=(*state.resting, flight.client) if _rests(recipe, report, wrong is not None) else state.resting,
    )
    accepted = made(Verdict, dispatch=report.dispatch, accepted=True)
    return state, accepted if wrong is None else _refusal(report, wrong)


def _refusal(report: Report, wrong: Fault | None) -> Verdict:
    assert wrong is not None
    return Verdict(dispatch=report.dispatch, accepted=False, reason=wrong.words, fault=wrong.kind)


def _rests(recipe: Recipe, report: Report, refused: bool) -> bool:
    """Whether a client that has answered is not invited again before the next version.

    Who did not train, or cannot, may answer at once: invited again and again, it would fill the buffer, or time itself.
    """
    rests = refused or report.substitute or recipe.one_at_a_time
    return bool(rests) and recipe.fills_places and recipe.participation.invites


def _measured(recipe: Recipe, setup: Setup, parts: Mapping[str, State], report: Report) -> Mapping[str, State]:
    key = recipe.key_of(recipe.participation)
    return {**parts, key: recipe.participation.measured(setup, parts[key], report)}


def _lose(recipe: Recipe, state: ServerState, lost: Lost) -> tuple[ServerState, Verdict]:
    flight = state.flights.get(lost.dispatch)
    verdict = made(Verdict, dispatch=lost.dispatch, accepted=False, reason=lost.reason, fault=lost.fault)
    if flight is None:
        return state, verdict
    refused = state.refused if flight.given_up else (*state.refused, (flight.client, lost.reason))
    rests = lost.reason.startswith(UNFIT) and recipe.fills_places and recipe.participation.invites
    resting = (*state.resting, flight.client) if rests else state.resting
    return _landed(state, lost.dispatch, flight, refused=refused, resting=resting), verdict


def _landed(state: ServerState, dispatch: int, flight: Flight, *, accepted: bool = False, **fields: Any) -> ServerState:
    """The state without an assignment that is out no more, and with other fields that change because of it."""
    clients, trains, waited_for = state.clients, flight.kind == "train", not flight.given_up
    if trains:
        last = flight.visit if accepted else clients.get(flight.client, _NEW).accepted
        clients = persistent(clients).set(flight.client, Record(visits=flight.visit + 1, accepted=last))
    return changed(
        state,
        flights=persistent(state.flights).delete(dispatch),
        busy=persistent(state.busy).delete(flight.client),
        clients=clients,
        training=state.training - (trains and waited_for),
        measuring=state.measuring - (not trains and waited_for),
        **fields,
    )


def _step(recipe: Recipe, setup: Setup, layout: Layout, state: ServerState, now: float) -> tuple[ServerState, Released]:
    reports = tuple(sorted(state.waiting, key=lambda r: r.dispatch))
    state, refused = _close(recipe, state)
    settled = changed(state, version=state.version + 1, waiting=(), refused=(), resting=(), began=now, invited=0)
    settled = changed(settled, past=_still_needed(settled))
    facts = [_facts(state.version, r) for r in reports]
    normalised = shares(recipe.sharing.claims(facts)) if facts else None
    skipped = ""
    if normalised is None or len(reports) < recipe.releasing.least:
        skipped = _why_skipped(recipe, state, reports, refused)
    if not reports:
        if refused and all(reason.startswith(NOT_FINITE) for _, reason in refused):
            raise RunFailed(
                f"version {state.version + 1}: every update had to be dropped ({_reasons(refused)}). "
                "The last good model is kept. Training diverges: lower the learning rate, or set clip=10"
            )
        return settled, Released(version=settled.version, release=None, refused=refused, note=skipped)
    # What is known of clients goes on from the visits that they had accepted, also where no step comes of them: else c
    # would no longer be the mean of all c_i.
    weights, scales = normalised or [0.0] * len(reports), [1.0] * len(reports)
    for scaling in recipe.scalings:
        scales = [a * b for a, b in zip(scales, scaling.scales(facts, weights), strict=True)]
    release = Release(
        version=state.version,
        reports=reports,
        shares=tuple(weights),
        scales=tuple(scales),
        weights=state.weights,
        bases=tuple(state.past[r.version] for r in reports) if "base" in recipe.needs() else (),
        rate=recipe.rate(state.version, setup.horizon),
    )
    if recipe.regime == "local":
        return settled, Released(version=settled.version, release=release, refused=refused)
    mean = recipe.releasing.mean(state.parts, release)
    parts: dict[str, State] = dict(state.parts)
    for key, mechanism in recipe.overriding("before_step"):
        parts[key], mean = mechanism.before_step(setup, parts[key], release, mean)
    held_back = skipped or recipe.releasing.holds_back(setup, parts)
    stepped, buffers = state.weights, state.buffers
    if not held_back:
        key = recipe.key_of(recipe.server_step)
        parts[key], stepped = recipe.server_step.step(setup, parts[key], state.weights, mean)
        buffers = _buffers(layout, state, reports)
    for key, mechanism in recipe.overriding("after_step"):
        parts[key] = mechanism.after_step(setup, parts[key], release)
    stepped = stepped.to(layout.dtype)
    name = first_non_finite(layout, stepped)
    if name:
        raise RunFailed(
            f"version {settled.version}: the server step gave no finite number in {name}. The last good model is kept. "
            "The server's learning rate is too high, or its epsilon too small"
        )
    settled = changed(settled, weights=stepped, buffers=buffers, parts=parts)
    used = None if skipped else release
    return settled, Released(version=settled.version, release=used, refused=refused, note=held_back)


def _close(recipe: Recipe, state: ServerState) -> tuple[ServerState, tuple[tuple[int, str], ...]]:
    """Gives up whoever is still under way, if the release policy does so; and all that is left out of the version."""
    if not recipe.releasing.forgets or recipe.fills_places:
        return state, state.refused
    late = {d: f for d, f in state.flights.items() if f.kind == "train" and not f.given_up}
    state = _given_up(state, late, f"version {state.version + 1} was complete without it")
    return state, state.refused


def _why_skipped(
    recipe: Recipe, state: ServerState, reports: tuple[Report, ...], refused: tuple[tuple[int, str], ...]
) -> str:
    if not reports:
        if refused:
            return f"nobody reported ({_reasons(refused)})"
        return "nobody reported in time" if state.training else "everybody was silent"
    if len(reports) < recipe.releasing.least:
        return f"reports: {len(reports)}, where at least {recipe.releasing.least} are needed"
    return "no report has any weight"


def _still_needed(state: ServerState) -> Mapping[int, Tensor]:
    """The past models that somebody who is waited for was sent."""
    if not state.past:
        return state.past
    sent = {f.version for f in state.flights.values() if f.kind == "train" and not f.given_up}
    return {version: weights for version, weights in state.past.items() if version in sent}


def _reasons(refused: tuple[tuple[int, str], ...], most: int = 3) -> str:
    words = [f"client {client}: {reason}" for client, reason in refused[:most]]
    more = len(refused) - most
    return "; ".join(words) + (f" and {more} more" if more > 0 else "")


def _facts(version: int, report: Report) -> Facts:
    assert 0 <= report.version <= version, f"an update of version {report.version} in a release of version {version}"
    return made(
        Facts,
        dispatch=report.dispatch,
        client=report.client,
        held=report.held,
        steps=report.steps,
        travel=report.travel,
        pull=report.pull,
        rate=report.rate,
        staleness=version - report.version,
    )


def _buffers(layout: Layout, state: ServerState, reports: tuple[Report, ...]) -> Buffers:
    """Buffers averaged by samples, whatever weighs the updates: they are statistics of the data.

    Clients that did not train have none to offer.
    """
    fresh = [r for r in reports if r.fresh]
    held = shares([float(r.held) for r in fresh]) if layout.buffers and fresh else None
    return state.buffers if held is None else combine_buffers(layout, [r.buffers for r in fresh], held)
