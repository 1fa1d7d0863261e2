"""Policies around a release: until when, on how many, of how many, and for how long the server waits."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from operator import or_
from typing import Any

import pytest
from hypothesis import strategies as st

from polyrhythm.base.messages import Timer
from polyrhythm.base.settings import Settings
from polyrhythm.core import readiness, versions
from polyrhythm.core.readiness import Readiness
from polyrhythm.core.versions import Versions
from polyrhythm.fleet import Fleet
from polyrhythm.methods.correction import ControlVariates
from polyrhythm.methods.mechanism import Modifier
from polyrhythm.methods.papers import fedavg
from polyrhythm.methods.participation.client_curriculum import ClientCurriculum
from polyrhythm.methods.participation.rolling import Rolling
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.release.base import Buffer, Deadline, MinReports, OverSelect, ReleaseContext, TimeOut
from polyrhythm.methods.together import Releasing
from polyrhythm.methods.work.budgets import EPSILON
from polyrhythm.simulation.simulator import SimulationStep

from .fleets import Paces, fleets
from .law import Mutation, law, swap
from .rolling import roll
from .test_asynchrony import SIZES, at_work
from .trials import Trial, trials
from .world import Federation, Run, alike, run, same

# What mutants wrap.
_PIPE, _STEP = Recipe.__or__, Versions.step
_WAKE_UP, _GIVEN_UP, _COMPLETE = Readiness.wake_up, readiness.given_up, OverSelect.complete

NEVER = 1e9
PLAIN = fedavg(cohort=4, epochs=1, batch=4)


def heard(story: Run) -> dict[int, SimulationStep]:
    """When each visit ended, by dispatch number."""
    return {m.assignment.dispatch: m for m in story.moments if m.assignment is not None}


def begun(story: Run) -> dict[int, float]:
    """When each visit began."""
    return {a.dispatch: m.time for m in story.moments for a in m.turn.assignments}


def _giving_up(other: Callable[..., Any]) -> Mutation:
    def both(patch: pytest.MonkeyPatch) -> None:
        for module in (readiness, versions):
            patch.setattr(module, "given_up", other)

    return both


def _forgives(state: Any, late: Any, reason: str) -> Any:
    after = _GIVEN_UP(state, late, reason)
    return replace(after, busy={c: d for c, d in after.busy.items() if d not in late})


@law(
    seconds=st.sampled_from((0.02, 0.2, 1.0, 5.0)),
    fleet=fleets(),
    examples=10,
    broken_by={
        "waits for all": swap(Deadline, "complete", lambda self, context: context.in_flight == 0),
        "gives nobody up": swap(Deadline, "forgets", lambda self, carries_over: False),
        "half the time": swap(Deadline, "due", property(lambda self: self.seconds / 2)),
        "who is late is invited at once": _giving_up(_forgives),
    },
)
def test_whoever_is_in_time_counts_and_whoever_is_late_is_given_up(seconds: float, fleet: Fleet) -> None:
    recipe, versions = PLAIN | ControlVariates() | Deadline(seconds=seconds), 6

    def in_the_books(engine: Any, turn: Any) -> None:
        assert set(turn.state.busy) == {flight.client for flight in turn.state.flights.values()}

    story = run(recipe, Federation(sizes=SIZES, fleet=fleet), versions=versions, watch=in_the_books)
    ends, starts = heard(story), begun(story)
    began, now = 0.0, 0
    out: set[int] = set()
    for moment in story.moments:
        if moment.assignment is not None:
            out.discard(moment.assignment.client)
        if moment.turn.released is not None:
            released, now = moment.turn.released, now + 1
            invited = [a for a in story.assignments.values() if a.version == now - 1]
            in_time = [a.dispatch for a in invited if ends[a.dispatch].time < began + seconds]
            reports = () if released.release is None else released.release.reports
            assert [r.dispatch for r in reports] == in_time
            late = [a for a in invited if a.dispatch not in in_time]
            assert [c for c, _ in released.refused] == [a.client for a in late]
            assert all("complete without it" in why for _, why in released.refused)
            assert moment.time == (began + seconds if late else max(ends[d].time for d in in_time))
            for assignment in late:
                verdict = ends[assignment.dispatch].turn.verdict
                assert verdict is not None
                assert not verdict.accepted
                if ends[assignment.dispatch].turn.state.version < versions:
                    assert "too late" in verdict.reason
            if not in_time:
                assert "nobody reported" in released.note
                assert same(story.states[now].weights, story.states[now - 1].weights)
        for assignment in moment.turn.assignments:
            assert assignment.client not in out
            out.add(assignment.client)
        if moment.turn.assignments:
            began = starts[moment.turn.assignments[0].dispatch]


LONG: tuple[Settings, ...] = (
    Deadline(seconds=NEVER),
    TimeOut(seconds=NEVER),
    OverSelect(factor=1),
    MinReports(count=1),
)
AROUND: tuple[tuple[Settings, ...], ...] = ((), (Buffer(size=2),), (Rolling(concurrency=3), Buffer(size=2)))


@law(
    trial=trials(travels=False),
    part=st.sampled_from(LONG),
    around=st.sampled_from(AROUND),
    fleet=fleets(),
    examples=20,
    broken_by={
        "a deadline forgets whom a buffer would wait for": swap(Deadline, "forgets", lambda self, carries_over: True),
        "over-selects by itself": swap(OverSelect, "surplus", property(lambda self: self.factor + 0.3)),
        "two are needed": swap(MinReports, "least", property(lambda self: 2)),
        "no patience": swap(TimeOut, "patience", property(lambda self: 0.1)),
    },
)
def test_a_wait_that_nobody_exhausts_changes_no_bit(
    trial: Trial, part: Settings, around: tuple[Settings, ...], fleet: Fleet
) -> None:
    if isinstance(part, OverSelect):
        around = ()  # there are no rounds in the others
    federation, plain = replace(trial.federation, fleet=fleet), trial.recipe(*around)
    assert alike(run(plain | part, federation), run(plain, federation))


@law(
    seconds=st.sampled_from((0.02, 0.2, 1.0)),
    around=st.sampled_from(AROUND[1:]),
    fleet=fleets(),
    examples=10,
    broken_by={
        "gives up whoever is late": swap(Deadline, "forgets", lambda self, carries_over: True),
        "waits for the buffer": swap(Deadline, "complete", lambda self, s: False),
        "looks when it likes": swap(Deadline, "due", property(lambda self: self.seconds * 1.5)),
    },
)
def test_where_late_updates_land_a_deadline_gives_nobody_up(
    seconds: float, around: tuple[Settings, ...], fleet: Fleet
) -> None:
    recipe = functools.reduce(or_, (*around, Deadline(seconds=seconds)), PLAIN)
    story = run(recipe, Federation(sizes=SIZES, fleet=fleet), versions=8)
    used, last = [], 0.0
    for moment in story.moments:
        assert all(not flight.given_up for flight in moment.turn.state.flights.values())
        if moment.turn.released is None:
            continue
        release = moment.turn.released.release
        used += [] if release is None else [r.dispatch for r in release.reports]
        assert moment.time <= last + seconds * (1 + 1e-9)
        assert moment.time >= (last + seconds) * (1 - 1e-9) or (release is not None and len(release.reports) == 2)
        assert release is not None or "in time" in moment.turn.released.note
        last = moment.time
    assert len(used) == len(set(used))


def _one_more(self: OverSelect, context: ReleaseContext) -> bool:
    return _COMPLETE(self, replace(context, waiting=context.waiting - 1))


@law(
    cohort=st.integers(1, 7),
    factor=st.sampled_from((1.0, 1.3, 1.5, 2.0)),
    fleet=fleets(),
    examples=20,
    broken_by={
        "one more is awaited": swap(OverSelect, "complete", _one_more),
        "the cohort and no more": swap(OverSelect, "surplus", property(lambda self: 1.0)),
        "the rest stays at work": swap(OverSelect, "forgets", lambda self, carries_over: False),
    },
)
def test_of_so_many_invited_the_first_so_many_count(cohort: int, factor: float, fleet: Fleet) -> None:
    federation = Federation(sizes=(3, 12, 7, 9, 5, 4, 8, 6, 10), fleet=fleet)
    story = run(fedavg(cohort=cohort, epochs=1, batch=4) | OverSelect(factor=factor), federation, versions=4)
    ends = heard(story)
    for version, released in enumerate(story.released):
        invited = [a for a in story.assignments.values() if a.version == version]
        assert released.release is not None
        reports = released.release.reports
        if version == 0:
            assert len(invited) == min(math.ceil(cohort * factor - EPSILON), 9)
        if len(invited) == math.ceil(cohort * factor - EPSILON):
            assert len(reports) == cohort
        assert len(reports) == max(1, math.floor(len(invited) / factor + EPSILON))
        first = sorted(invited, key=lambda a: (ends[a.dispatch].time, a.dispatch))[: len(reports)]
        assert sorted(a.dispatch for a in first) == [r.dispatch for r in reports]
        assert len(reports) + len(released.refused) == len(invited)


@law(
    cohort=st.integers(1, 50),
    factor=st.floats(1, 3),
    examples=100,
    broken_by={"one more is awaited": swap(OverSelect, "complete", _one_more)},
)
def test_over_selection_by_any_factor_needs_exactly_the_cohort(cohort: int, factor: float) -> None:
    policy, invited = OverSelect(factor=factor), math.ceil(cohort * factor - EPSILON)
    enough = [n for n in range(invited + 1) if policy.complete(ReleaseContext(waiting=n, in_flight=1, invited=invited))]
    assert enough[:1] == [cohort]


@law(
    count=st.integers(1, 4),
    size=st.integers(1, 4),
    fates=st.lists(st.booleans(), min_size=3, max_size=9),
    examples=20,
    broken_by={
        "does not wait": swap(MinReports, "waits", lambda self, context: False),
        "steps on less": swap(MinReports, "least", property(lambda self: 1)),
    },
)
def test_a_version_has_enough_reports_or_is_skipped_and_says_so(count: int, size: int, fates: list[bool]) -> None:
    recipe = PLAIN | Buffer(size=size) | MinReports(count=count)

    story = roll(recipe, Federation(), versions=5, loses=[False, *fates])
    assert story.turns[-1].state.version == 5
    for before, after in zip(story.turns, story.turns[1:], strict=False):
        released = after.released
        if released is None:
            continue
        if released.release is not None:
            assert len(released.release.reports) >= count
        else:
            assert "reports: " in released.note or "nobody reported" in released.note
            assert len(before.state.flights) == 1  # nobody was left to wait for
            assert same(after.state.weights, before.state.weights)


@law(
    fleet=fleets(),
    count=st.integers(2, 4),
    broken_by={
        "looks at once, again and again": swap(
            Readiness, "wake_up", lambda self, state, event: _WAKE_UP(self, state, Timer(time=-1.0))
        ),
        "does not wait": swap(MinReports, "waits", lambda self, context: False),
    },
)
def test_a_deadline_that_waits_for_enough_reports_does_not_look_in_vain(fleet: Fleet, count: int) -> None:
    """Nor one that has passed while clients are measured."""
    enough = PLAIN | Deadline(seconds=0.01) | MinReports(count=count)
    measured = PLAIN | ClientCurriculum() | Deadline(seconds=0.01) | MinReports(count=count)
    for recipe in (enough, measured):
        story = run(recipe, Federation(sizes=SIZES, fleet=fleet), versions=3)
        timers = [m for m in story.moments[1:] if m.assignment is None]
        assert len(timers) <= 2 * 3
        for released in story.released:
            if released.release is None:
                assert released.refused == ()  # so few were free that even all of them are not enough
            else:
                assert len(released.release.reports) >= count


def _says_nothing(state: Any, late: Any, reason: str) -> Any:
    return replace(_GIVEN_UP(state, late, reason), refused=state.refused)


@law(
    seconds=st.sampled_from((0.02, 0.2, 1.0, 5.0)),
    around=st.sampled_from(AROUND),
    fleet=fleets(),
    examples=12,
    broken_by={
        "twice as patient": swap(TimeOut, "patience", property(lambda self: 2 * self.seconds)),
        "says nothing": _giving_up(_says_nothing),
        "who is given up is invited at once": _giving_up(_forgives),
    },
)
def test_a_visit_that_takes_too_long_is_given_up_and_recorded(
    seconds: float, around: tuple[Settings, ...], fleet: Fleet
) -> None:
    recipe = functools.reduce(or_, (*around, TimeOut(seconds=seconds)), PLAIN)

    def in_the_books(engine: Any, turn: Any) -> None:
        assert set(turn.state.busy) == {flight.client for flight in turn.state.flights.values()}

    story = run(recipe, Federation(sizes=SIZES, fleet=fleet), versions=6, watch=in_the_books)
    ends, starts = heard(story), begun(story)
    over = [m.time for m in story.moments if m.turn.released is not None][-1]
    told = [why for released in story.released for _, why in released.refused]
    late = [d for d, start in starts.items() if ends[d].time > start + seconds and start + seconds <= over]
    # At the very moment of the last version either may come first.
    tied = [d for d in late if starts[d] + seconds == over]
    assert len(late) - len(tied) <= len(told) <= len(late)
    assert all(why == f"no answer within {seconds:g} s" for why in told)
    for dispatch, end in ends.items():
        assert end.turn.verdict is not None
        if end.time < starts[dispatch] + seconds:
            assert end.turn.verdict.accepted
        elif dispatch in late:
            assert "too late" in end.turn.verdict.reason
    if Rolling in {type(p) for p in recipe.parts()}:
        going_on = [m for m in story.moments if m.turn.state.version < 6]
        for moment in going_on:  # whoever is given up makes room for another one, if there is one
            free = len(SIZES) - len(moment.turn.state.busy)
            assert len(at_work(moment.turn)) == 3 or free == 0


def _the_last_alone(self: Releasing, context: ReleaseContext) -> bool:
    return context.in_flight == 0 or self.modifiers[-1][1].complete(context)


def _takes_all(self: Recipe, part: Any) -> Recipe:
    return _PIPE(self if isinstance(part, Modifier) else replace(self, modifiers=()), part)


@law(
    fleet=fleets(),
    buffered=st.booleans(),
    broken_by={
        "the last is the only one": swap(Releasing, "ready", _the_last_alone),
        "a buffer throws out the others": swap(Recipe, "__or__", _takes_all),
    },
)
def test_what_changes_a_release_comes_in_any_order(fleet: Fleet, buffered: bool) -> None:
    """The base among them."""
    inside: Settings = Buffer(size=2) if buffered else OverSelect(factor=1.5)
    policies = (inside, Deadline(seconds=1.0), MinReports(count=2), TimeOut(seconds=0.7))
    federation = Federation(sizes=SIZES, fleet=fleet)
    piped = [functools.reduce(or_, order, PLAIN) for order in list(itertools.permutations(policies))[::5]]
    assert len({recipe.digest for recipe in piped}) == 1
    orders = [piped[0], *(replace(piped[-1], modifiers=some) for some in itertools.permutations(piped[0].modifiers))]
    first, *others = (run(recipe, federation, versions=5) for recipe in orders[:5])
    assert all(alike(first, other) for other in others)
    assert all([r.refused for r in first.released] == [r.refused for r in other.released] for other in others)


def _forgets_who_was_late(*given: Any) -> Any:
    state, released = _STEP(*given)
    return state, replace(released, refused=())


@law(
    seconds=st.sampled_from((0.001, 0.003)),
    broken_by={"who was late is forgotten": swap(Versions, "step", _forgets_who_was_late)},
)
def test_with_nobody_in_time_versions_are_skipped_and_the_run_goes_on(seconds: float) -> None:
    slow = Fleet(devices=Paces(seconds=(0.01,)))
    story = run(PLAIN | Deadline(seconds=seconds), Federation(sizes=SIZES, fleet=slow), versions=4)
    assert len(story.states) == 5
    for released, state in zip(story.released, story.states[1:], strict=True):
        assert released.release is None
        assert "nobody reported" in released.note
        assert released.refused
        assert same(state.weights, story.states[0].weights)
