"""The server: one pure function from a state and an event to a new state and new assignments.

Synchronous rounds and buffered asynchrony are the same function with another release policy. Neither clock nor socket
nor device list is read here; random draws are named by version or dispatch number; updates are summed in dispatch order
over a fixed tree, never in the order of arrival.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import final

import torch
from torch import Tensor

from polyrhythm.errors import RunFailed
from polyrhythm.recipe import Recipe
from polyrhythm.slots.mechanism import Release, Setup
from polyrhythm.slots.participation import Call
from polyrhythm.slots.weighing import shares
from polyrhythm.vectors import Buffers, Layout, combine_buffers, first_non_finite, weighted_sum
from polyrhythm.wires import Arrived, Assignment, Event, Facts, Kind, Lost, Model, Report, Roster, State, Timer

_NOT_FINITE = "not a finite number"


@final
@dataclass(frozen=True, kw_only=True)
class Flight:
    """An assignment that is neither answered nor lost."""

    client: int
    kind: Kind
    visit: int
    version: int

    def answered_by(self, report: Report) -> bool:
        """Whether a report is about this assignment."""
        return (report.client, report.kind, report.visit, report.version) == (
            self.client,
            self.kind,
            self.visit,
            self.version,
        )


@final
@dataclass(frozen=True, kw_only=True)
class Record:
    """What the server knows of one client: training visits begun, and the last one accepted (-1 for none)."""

    begun: int = 0
    accepted: int = -1


@final
@dataclass(frozen=True, kw_only=True)
class ServerState:
    """Everything the server remembers.

    Args:
        version: how many steps it has taken.
        weights: [P].
        buffers: beside the weights.
        parts: the mechanisms' states, by key.
        dispatched: assignments made so far: the next dispatch number.
        flights: what is out, by dispatch number.
        waiting: accepted reports that are not yet in a version.
        refused: (client, reason) of what was dropped or lost since the last version.
        clients: what is known of each client that was ever invited.
    """

    version: int
    weights: Tensor
    buffers: Buffers
    parts: Mapping[str, State]
    dispatched: int = 0
    flights: Mapping[int, Flight] = field(default_factory=dict)
    waiting: tuple[Report, ...] = ()
    refused: tuple[tuple[int, str], ...] = ()
    clients: Mapping[int, Record] = field(default_factory=dict)


@final
@dataclass(frozen=True, kw_only=True)
class Released:
    """What a version was made of, for observers.

    Args:
        version: the new version.
        release: the reports, shares and scales; None if the version was skipped and the weights are as before.
        refused: (client, reason) of what was left out.
        note: why the version was skipped.
    """

    version: int
    release: Release | None
    refused: tuple[tuple[int, str], ...]
    note: str = ""


@final
@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What became of one report or lost assignment."""

    dispatch: int
    accepted: bool
    reason: str = ""


@final
@dataclass(frozen=True, kw_only=True)
class Turn:
    """The answer to one event.

    Args:
        state: the new state.
        assignments: what to send out now.
        wake_up: virtual time at which the server wants a `Timer`, if any.
        released: the version that this event completed, if any.
        verdict: what became of the report, if the event was one.
    """

    state: ServerState
    assignments: tuple[Assignment, ...] = ()
    wake_up: float | None = None
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
    parts = {key: mechanism.server_start(setup) for key, mechanism in recipe.mechanisms()}
    state = ServerState(version=0, weights=weights.clone(), buffers=buffers, parts=parts)
    state, assignments = _invite(recipe, setup, state, roster)
    return Turn(state=state, assignments=assignments)


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
    measuring = _measuring(state)
    if isinstance(event, Report):
        state, verdict = _take(recipe, setup, layout, state, event)
    elif isinstance(event, Lost):
        state, verdict = _lose(state, event)
    else:
        assert isinstance(event, (Arrived, Timer))
        verdict = None
    # What nobody waits for makes nothing ready, not even where nobody is left to wait for.
    unasked = verdict is not None and state is before
    if over or unasked:
        return Turn(state=state, verdict=verdict)
    if measuring and not _measuring(state):
        # Now participation knows what it waited for.
        state, assignments = _invite(recipe, setup, state, roster)
        return Turn(state=state, assignments=assignments, verdict=verdict)
    if not _ready(recipe, state):
        return Turn(state=state, verdict=verdict)
    state, released = _step(recipe, setup, layout, state)
    # A step waits for no measurement, an invitation does.
    if _measuring(state) or (setup.horizon is not None and state.version >= setup.horizon):
        return Turn(state=state, released=released, verdict=verdict)
    state, assignments = _invite(recipe, setup, state, roster)
    return Turn(state=state, assignments=assignments, released=released, verdict=verdict)


def _ready(recipe: Recipe, state: ServerState) -> bool:
    return recipe.release.ready(waiting=len(state.waiting), in_flight=len(state.flights))


def _measuring(state: ServerState) -> bool:
    return any(f.kind == "measure" for f in state.flights.values())


def _invite(
    recipe: Recipe, setup: Setup, state: ServerState, roster: Roster
) -> tuple[ServerState, tuple[Assignment, ...]]:
    key = recipe.key_of(recipe.participation)
    call = Call(
        version=state.version,
        weights=state.weights,
        buffers=state.buffers,
        roster=roster,
        busy=frozenset(f.client for f in state.flights.values()),
        in_flight=sum(f.kind == "train" for f in state.flights.values()),
    )
    part, invitations = recipe.participation.invite(setup, state.parts[key], call)
    flights, clients, assignments = dict(state.flights), dict(state.clients), []
    for number, invitation in enumerate(invitations, start=state.dispatched):
        client, record = invitation.client, clients.get(invitation.client, Record())
        version = state.version if invitation.version is None else invitation.version
        model = invitation.model or Model(weights=state.weights, buffers=state.buffers)
        flights[number] = Flight(client=client, kind=invitation.kind, visit=record.begun, version=version)
        briefs: dict[str, State] = {}
        if invitation.kind == "train":
            clients[client] = replace(record, begun=record.begun + 1)
            briefs = {k: m.brief(setup, state.parts[k], client) for k, m in recipe.mechanisms()}
        assignments.append(
            Assignment(
                dispatch=number,
                client=client,
                visit=record.begun,
                accepted=record.accepted,
                kind=invitation.kind,
                version=version,
                horizon=setup.horizon,
                weights=model.weights,
                buffers=model.buffers,
                briefs={k: b for k, b in briefs.items() if b},
                recipe=recipe.digest,
            )
        )
    state = replace(
        state,
        parts={**state.parts, key: part},
        dispatched=state.dispatched + len(assignments),
        flights=flights,
        clients=clients,
    )
    return state, tuple(assignments)


def _take(
    recipe: Recipe, setup: Setup, layout: Layout, state: ServerState, report: Report
) -> tuple[ServerState, Verdict]:
    flight = state.flights.get(report.dispatch)
    if flight is None or not flight.answered_by(report):
        # Answered already, given up, or never asked of this client: the books must not change, least of all the entry
        # of a client whose honest report is still to come.
        return state, Verdict(dispatch=report.dispatch, accepted=False, reason="nobody waits for this report")
    state = _land(state, report.dispatch)
    reason = "" if report.recipe == recipe.digest else "the report comes from another recipe"
    if not reason and flight.kind == "measure":
        return _measured(recipe, setup, state, report), Verdict(dispatch=report.dispatch, accepted=True)
    if not reason and report.substitute == "silence":
        return state, Verdict(dispatch=report.dispatch, accepted=True)
    if not reason and report.substitute:
        for key, mechanism in recipe.mechanisms():
            report = mechanism.fill(setup, state.parts[key], report)
    reason = reason or _fault(layout, report)
    if reason:
        refused = (*state.refused, (flight.client, reason))
        return replace(state, refused=refused), Verdict(dispatch=report.dispatch, accepted=False, reason=reason)
    record = replace(state.clients[flight.client], accepted=flight.visit)
    state = replace(
        state,
        waiting=(*state.waiting, report),
        clients={**state.clients, flight.client: record},
        parts={k: m.accept(setup, state.parts[k], report) for k, m in recipe.mechanisms()},
    )
    return state, Verdict(dispatch=report.dispatch, accepted=True)


def _measured(recipe: Recipe, setup: Setup, state: ServerState, report: Report) -> ServerState:
    key = recipe.key_of(recipe.participation)
    part = recipe.participation.measured(setup, state.parts[key], report)
    return replace(state, parts={**state.parts, key: part})


def _lose(state: ServerState, lost: Lost) -> tuple[ServerState, Verdict]:
    flight = state.flights.get(lost.dispatch)
    verdict = Verdict(dispatch=lost.dispatch, accepted=False, reason=lost.reason)
    if flight is None:
        return state, verdict
    state = _land(state, lost.dispatch)
    return replace(state, refused=(*state.refused, (flight.client, lost.reason))), verdict


def _land(state: ServerState, dispatch: int) -> ServerState:
    return replace(state, flights={d: f for d, f in state.flights.items() if d != dispatch})


def _fault(layout: Layout, report: Report) -> str:
    """What is wrong with an update, in words; empty if nothing is."""
    update = report.update
    if update is None or update.shape != (layout.size,) or update.dtype != layout.dtype:
        return "the update does not have the model's layout"
    # A client that did not train has no buffers to offer.
    expected = [(slot.shape, slot.dtype) for slot in layout.buffers] if report.fresh else []
    if [(tuple(b.shape), b.dtype) for b in report.buffers] != expected:
        return "the buffers do not have the model's layout"
    if report.held < 0:
        return f"the client reports {report.held} samples"
    if report.steps == 0:
        return "no step was possible with the samples it holds"
    name = first_non_finite(layout, update)
    if name:
        return f"{_NOT_FINITE} in the update of {name}"
    for slot, buffer in zip(layout.buffers, report.buffers, strict=False):
        if buffer.is_floating_point() and not bool(torch.isfinite(buffer).all()):
            return f"{_NOT_FINITE} in the buffer {slot.name}"
    for key, extra in report.extras.items():
        for what, value in extra.items():
            if isinstance(value, Tensor) and value.is_floating_point() and not bool(torch.isfinite(value).all()):
                return f"{_NOT_FINITE} in {key}'s {what}"
    return ""


def _step(recipe: Recipe, setup: Setup, layout: Layout, state: ServerState) -> tuple[ServerState, Released]:
    reports = tuple(sorted(state.waiting, key=lambda r: r.dispatch))
    settled = replace(state, version=state.version + 1, waiting=(), refused=())
    facts = [_facts(state.version, r) for r in reports]
    weights = shares(recipe.sharing.claims(facts)) if facts else None
    if weights is None:
        if state.refused and all(reason.startswith(_NOT_FINITE) for _, reason in state.refused):
            raise RunFailed(
                f"version {state.version + 1}: every update had to be dropped ({_reasons(state.refused)}). "
                "The last good model is kept. Training diverges: lower the learning rate, or set clip=10"
            )
        note = "no report has any weight"
        if not reports:
            note = f"nobody reported ({_reasons(state.refused)})" if state.refused else "everybody was silent"
        return settled, Released(version=settled.version, release=None, refused=state.refused, note=note)
    scales = [1.0] * len(reports)
    for scaling in recipe.scalings:
        scales = [a * b for a, b in zip(scales, scaling.scales(facts, weights), strict=True)]
    release = Release(
        version=state.version, reports=reports, shares=tuple(weights), scales=tuple(scales), weights=state.weights
    )
    if recipe.regime == "local":
        return settled, Released(version=settled.version, release=release, refused=state.refused)
    updates = release.updates()
    mean = weighted_sum(updates, [a * b for a, b in zip(weights, scales, strict=True)])
    parts: dict[str, State] = dict(state.parts)
    for key, mechanism in recipe.mechanisms():
        parts[key], mean = mechanism.before_step(setup, parts[key], release, mean)
    key = recipe.key_of(recipe.server_step)
    parts[key], stepped = recipe.server_step.step(setup, parts[key], state.weights, mean)
    for key, mechanism in recipe.mechanisms():
        parts[key] = mechanism.after_step(setup, parts[key], release)
    stepped = stepped.to(layout.dtype)
    name = first_non_finite(layout, stepped)
    if name:
        raise RunFailed(
            f"version {settled.version}: the server step gave no finite number in {name}. The last good model is kept. "
            "The server's learning rate is too high, or its epsilon too small"
        )
    buffers = _buffers(layout, state, reports)
    settled = replace(settled, weights=stepped, buffers=buffers, parts=parts)
    return settled, Released(version=settled.version, release=release, refused=state.refused)


def _reasons(refused: tuple[tuple[int, str], ...], most: int = 3) -> str:
    words = [f"client {client}: {reason}" for client, reason in refused[:most]]
    more = len(refused) - most
    return "; ".join(words) + (f" and {more} more" if more > 0 else "")


def _facts(version: int, report: Report) -> Facts:
    return Facts(
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
