"""Clients that come, go away in the middle of a visit, and come back; and those that nobody calls."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from hypothesis import strategies as st

from polyrhythm.base.errors import RunFailed
from polyrhythm.base.messages import Arrived, Lost
from polyrhythm.core.client_state import Memory as ClientMemory
from polyrhythm.core.readiness import Readiness
from polyrhythm.fleet import Faults, Fleet, FleetState
from polyrhythm.methods.papers import afl, fedavg, scaffold
from polyrhythm.methods.participation.rolling import OnArrival, Rolling
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.release.base import Buffer
from polyrhythm.methods.weighing import Equal
from polyrhythm.methods.work.budgets import Listed
from polyrhythm.methods.work.skip_and_estimate import SkipSilently
from polyrhythm.simulation import simulator

from .fleets import Callers, Hours, Paces, Rhythms, fleets
from .law import law, swap
from .test_asynchrony import SIZES, nobody_twice, releases
from .test_deadlines import begun, heard
from .world import Federation, Run, near, run, same

# What mutants wrap.
_STUCK, _INVITE = Readiness.stuck, OnArrival.invite

Spans = tuple[tuple[float, float], ...]
ROUND = fedavg(cohort=2, epochs=1, batch=4)
ROLL = fedavg(epochs=1, batch=4) | Rolling(concurrency=2) | Buffer(size=2)


def whole(recipe: Recipe, federation: Federation, versions: int = 4) -> Run:
    """The run; an AssertionError if it does not come to its end."""
    try:
        return run(recipe, federation, versions=versions, watch=nobody_twice)
    except RunFailed as failure:
        raise AssertionError(str(failure)) from failure


def hours(*spans: Spans, seconds: tuple[float, ...] = (0.1,)) -> Federation:
    """Clients with three samples each, so a visit of client i takes 3 * seconds[i]; there in the given spans."""
    fleet = Fleet(devices=Paces(seconds=seconds), availability=Hours(spans=spans))
    return Federation(sizes=(3,) * len(spans), fleet=fleet)


RHYTHMS = st.lists(st.tuples(st.floats(0.6, 2), st.floats(0.6, 0.9), st.floats(0, 1)), min_size=6, max_size=6).map(
    lambda rhythms: Rhythms(rhythms=tuple(rhythms))
)
"""Six clients that come and go, each in a rhythm of its own, and stay long enough for a visit."""


def in_step(story: Run) -> None:
    """c is the mean of the c_i after the visits that the server has accepted, and has in a version."""
    state = story.states[-1]
    assert not state.waiting
    own = [client.parts["control_variates"]["control"] for client in story.clients.values()]
    control = state.parts["control_variates"]["control"]
    mean = torch.stack([*own, torch.zeros_like(control)]).sum(0) / len(SIZES)
    assert near(control, mean, 1e-5)


@law(
    base=st.sampled_from((ROUND, ROLL)),
    rhythms=RHYTHMS,
    examples=10,
    broken_by={
        "states of lost visits kept": swap(
            ClientMemory, "at", lambda self, accepted: self.accepted if self.provisional is None else self.provisional
        ),
        "absent clients invited": swap(FleetState, "span", lambda self, client, now: (True, math.inf)),
    },
)
def test_who_goes_away_in_a_visit_is_lost_and_comes_back_as_it_was_accepted_last(
    base: Recipe, rhythms: Rhythms
) -> None:
    """So that c stays the mean of the c_i, whatever is lost."""
    recipe = replace(scaffold(epochs=1, batch=4), participation=base.participation, release=base.release)
    fleet = Fleet(devices=Paces(seconds=(0.1, 0.05, 0.12)), availability=rhythms)
    federation = Federation(sizes=(3,) * 6, fleet=fleet)
    story = whole(recipe, federation, versions=12)
    starts = begun(story)
    presence = federation.world()
    for dispatch, moment in heard(story).items():
        assert moment.assignment is not None
        there, until = presence.span(moment.assignment.client, starts[dispatch])
        assert there
        assert moment.time == until if isinstance(moment.event, Lost) else moment.time <= until
    in_step(story)


def _nobody_ever(self: FleetState, now: float, exclude: Any = ()) -> None:
    return None


@law(
    recipe=st.sampled_from((ROUND, ROLL)),
    first=st.floats(1, 5),
    second=st.floats(6, 10),
    broken_by={"nobody says who comes": swap(FleetState, "next_arrival", _nobody_ever)},
)
def test_a_server_without_clients_waits_for_the_next_to_come(recipe: Recipe, first: float, second: float) -> None:
    federation = hours(((first, 1e12),), ((second, 1e12),))
    story = whole(recipe, federation, versions=60)
    starts = begun(story)
    came = {c: min(starts[d] for d, a in story.assignments.items() if a.client == c) for c in (0, 1)}
    assert came[0] == first
    assert second <= came[1] <= second + 0.3 + 1e-9  # a round that is under way then is over before


@law(
    back=st.floats(1, 50),
    broken_by={
        "whom it waits for is settled once and for all": swap(FleetState, "returns", lambda self, c, now: math.inf)
    },
)
def test_who_is_back_before_the_one_that_is_waited_for_is_invited_then(back: float) -> None:
    """Client 1 comes at 100 s, 2 works all the time; 0 goes away at 0.5 s, in the middle of its second visit."""
    recipe = fedavg(epochs=1, batch=4) | Rolling(concurrency=3) | Buffer(size=1)
    federation = hours(((0.0, 0.5), (back, 1e12)), ((100.0, 1e12),), ((0.0, 1e12),), seconds=(0.1, 0.1, 1000.0))
    story = whole(recipe, federation, versions=3)
    times = [t for d, t in begun(story).items() if story.assignments[d].client == 0]
    assert times[:3] == [0.0, 0.30000000000000004, back]


@law(
    recipe=st.sampled_from((ROUND, ROLL)),
    end=st.floats(1, 5),
    broken_by={"ends in silence": swap(simulator, "RunFailed", StopAsyncIteration)},
)
def test_if_all_go_away_for_ever_the_run_fails_and_says_so(recipe: Recipe, end: float) -> None:
    words = ""
    try:
        run(recipe, hours(((0.0, end),), ((0.0, end / 2),)), versions=1000)
    except Exception as error:
        words = f"{type(error).__name__}: {error}"
    assert words.startswith("RunFailed")
    assert "none of them will come again" in words


@law(
    base=st.sampled_from((ROUND, ROLL)),
    dropout=st.floats(0.1, 0.9),
    crash=st.floats(0, 0.3),
    seed=st.integers(0, 99),
    fleet=fleets(),
    examples=10,
    broken_by={
        "states of lost visits kept": swap(
            ClientMemory, "at", lambda self, accepted: self.accepted if self.provisional is None else self.provisional
        ),
    },
)
def test_no_fault_stops_a_run_or_counts_at_one_end_only(
    base: Recipe, dropout: float, crash: float, seed: int, fleet: Fleet
) -> None:
    recipe = replace(scaffold(epochs=1, batch=4), participation=base.participation, release=base.release)
    faulty = fleet | Faults(dropout=dropout, crash=crash, downtime=7.0)
    story = whole(recipe, Federation(sizes=SIZES, seed=seed, fleet=faulty), versions=8)
    assert len(story.states) == 9
    in_step(story)


@law(
    concurrency=st.integers(1, 4),
    broken_by={"hopes for ever": swap(Readiness, "hopeless", lambda *given: False)},
)
def test_if_every_visit_is_lost_versions_are_skipped(concurrency: int) -> None:
    """After as many as there are clients."""
    recipe = fedavg(epochs=1, batch=4) | Rolling(concurrency=concurrency) | Buffer(size=2)
    fleet = Fleet(devices=Paces(seconds=(0.1, 0.7))) | Faults(dropout=1.0)
    story = whole(recipe, Federation(sizes=SIZES, fleet=fleet))
    assert len(story.states) == 5
    assert all(released.note.startswith("nobody reported") for released in story.released)
    assert all(len(released.refused) == len(SIZES) for released in story.released)


CALLS = st.lists(st.tuples(st.floats(0.1, 300), st.integers(0, 5)), min_size=3, max_size=12).map(
    lambda calls: tuple(sorted(calls))
)


def _takes_all(self: OnArrival, setup: Any, state: Any, call: Any) -> Any:
    return _INVITE(replace(self, most=None), setup, state, call)


def _more(self: OnArrival, setup: Any, state: Any, call: Any) -> Any:
    state, invited = _INVITE(self, setup, state, call)
    free = [c for c in range(6) if c not in call.busy and not any(i.client == c for i in invited)]
    return state, (*invited, *(replace(i, client=free[0]) for i in invited if free))


@law(
    calls=CALLS,
    most=st.sampled_from((None, 1, 2)),
    size=st.integers(1, 4),
    fleet=fleets(),
    examples=15,
    broken_by={
        "steps as soon as nobody is at work": swap(OnArrival, "invites", property(lambda self: True)),
        "takes all": swap(OnArrival, "invite", _takes_all),
        "calls others too": swap(OnArrival, "invite", _more),
    },
)
def test_on_arrival_serves_whoever_comes_and_calls_nobody(
    calls: tuple[tuple[float, int], ...], most: int | None, size: int, fleet: Fleet
) -> None:
    recipe = fedavg(epochs=1, batch=4) | OnArrival(most=most) | Buffer(size=size)
    called = replace(fleet, arrivals=Callers(calls=calls))
    story = whole(recipe, Federation(sizes=SIZES, fleet=called), versions=3)
    for before, moment in zip([story.moments[0], *story.moments], story.moments, strict=False):
        state = before.turn.state
        if moment.turn.assignments:
            assert len(moment.turn.assignments) == 1
            assignment = moment.turn.assignments[0]
            assert isinstance(moment.event, Arrived)
            assert moment.event.client == assignment.client
            assert assignment.client not in state.busy
            assert most is None or state.training < most
            assert assignment.version == state.version
            assert same(assignment.weights, state.weights)
        elif isinstance(moment.event, Arrived):
            assert moment.event.client in state.busy or (most is not None and state.training >= most)
    assert [len(release.reports) for release in releases(story)] == [size] * 3


@law(
    calls=CALLS,
    size=st.integers(1, 4),
    broken_by={"waits for ever": swap(Readiness, "stuck", lambda *given: False)},
)
def test_if_all_that_come_skip_for_ever_versions_are_skipped(calls: tuple[tuple[float, int], ...], size: int) -> None:
    """After as many visits as there are clients have come to nothing."""
    silent = SkipSilently(budgets=Listed(shares=(1e-9,)))
    fleet = Fleet(devices=Paces(seconds=(0.001,)), arrivals=Callers(calls=calls))
    story = whole(afl(participation="on_arrival", buffer=size) | silent, Federation(sizes=SIZES, fleet=fleet))
    assert [released.note for released in story.released] == ["everybody was silent"] * 4
    assert len(story.assignments) == 4 * len(SIZES)


def _forgets_the_caller(self: OnArrival, setup: Any, state: Any, call: Any) -> Any:
    return _INVITE(self, setup, state, replace(call, caller=None))


@law(
    rhythms=RHYTHMS,
    most=st.sampled_from((None, 3)),
    broken_by={"who comes is sent away": swap(OnArrival, "invite", _forgets_the_caller)},
)
def test_where_nobody_comes_by_itself_who_was_away_and_is_back_does(rhythms: Rhythms, most: int | None) -> None:
    fleet = Fleet(devices=Paces(seconds=(0.01,)), availability=rhythms)
    recipe = fedavg(epochs=1, batch=4) | Equal() | OnArrival(most=most) | Buffer(size=2)
    story = whole(recipe, Federation(sizes=(3,) * 6, fleet=fleet), versions=5)
    opens = [{start for start, _ in own} for own in rhythms.spans()]
    for dispatch, time in begun(story).items():
        assert time in opens[story.assignments[dispatch].client]
