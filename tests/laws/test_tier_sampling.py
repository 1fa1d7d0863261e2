"""TiFL: everybody is timed first, tiers are of equal size and by latency, and a round has clients of one of them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from polyrhythm.base.messages import Report, State
from polyrhythm.methods.mechanism import Setup
from polyrhythm.methods.papers import Common, fedavg
from polyrhythm.methods.participation.base import InvitationContext, Uniform, to_train
from polyrhythm.methods.participation.critical_periods import CriticalPeriods, RandomResize
from polyrhythm.methods.participation.rolling import Rolling
from polyrhythm.methods.participation.sampled_staleness import SampledStaleness
from polyrhythm.methods.participation.tier_sampling import TierSampling
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.release.base import Buffer, OverSelect

from .law import law, swap
from .rolling import roll
from .selecting import Present, call, most, report, setup, told, who
from .world import Federation

# What mutants wrap.
_INVITE, _TIERED, _ACCEPT = TierSampling.invite, TierSampling.tiered, TierSampling.accept


def profiled(policy: TierSampling, seconds: Sequence[float]) -> State:
    """The state when everybody has had as many visits as it takes, each of the same duration."""
    count = len(seconds)
    fixed, state = setup(count), policy.server_start(setup(count))
    for version in range(policy.profile):
        asked = call(Present([1] * count), version, count=count)
        state, invited = policy.invite(fixed, state, asked)
        state = told(policy, state, version, [report(c, version, duration=seconds[c]) for c in who(invited)])
    return policy._sorted(fixed, state, policy.profile)


def _slowest_first(self: TierSampling, fixed: Setup, latencies: Mapping[int, float]) -> dict[int, int]:
    return {c: self.tiers - 1 - tier for c, tier in _TIERED(self, fixed, latencies).items()}


def _by_halves(self: TierSampling, fixed: Setup, latencies: Mapping[int, float]) -> dict[int, int]:
    """Tiers of equal width instead of equal size."""
    widest = max(latencies.values())
    return {c: min(self.tiers - 1, int(self.tiers * s / widest)) for c, s in latencies.items()}


def _fills_up(self: TierSampling, fixed: Setup, state: State, asked: InvitationContext) -> Any:
    state, invited = _INVITE(self, fixed, state, asked)
    places = asked.places(self.size) - len(invited)
    return state, (*invited, *to_train(asked.roster.draw(places, asked.draws(fixed), {*asked.busy, *who(invited)})))


def _busy_too(self: TierSampling, fixed: Setup, state: State, asked: InvitationContext) -> Any:
    return _INVITE(self, fixed, state, replace(asked, busy=frozenset()))


@law(
    seconds=st.lists(st.integers(1, 40), min_size=1, max_size=14),
    tiers=st.integers(1, 5),
    profile=st.integers(1, 3),
    cohort=st.integers(1, 6),
    busy=st.frozensets(st.integers(0, 13), max_size=3),
    away=st.frozensets(st.integers(0, 13), max_size=3),
    examples=60,
    broken_by={
        "the slowest first": swap(TierSampling, "tiered", _slowest_first),
        "of equal width": swap(TierSampling, "tiered", _by_halves),
        "short cohorts are filled up": swap(TierSampling, "invite", _fills_up),
        "busy clients are invited": swap(TierSampling, "invite", _busy_too),
    },
)
def test_tiers_are_of_equal_size_by_latency_and_a_round_is_of_one_tier(
    seconds: list[int],
    tiers: int,
    profile: int,
    cohort: int,
    busy: frozenset[int],
    away: frozenset[int],
) -> None:
    policy = TierSampling(cohort=cohort, tiers=tiers, profile=profile)
    state = profiled(policy, [float(s) for s in seconds])
    tier_of = state["tier_of"]
    assert sorted(tier_of) == list(range(len(seconds)))
    sizes = [sum(t == tier for t in tier_of.values()) for tier in range(tiers)]
    assert max(sizes) - min(sizes) <= 1
    for one, other in itertools.permutations(tier_of, 2):
        if tier_of[one] < tier_of[other]:
            assert seconds[one] <= seconds[other]
    roster = Present([1] * len(seconds), away)
    after, invited = policy.invite(setup(len(seconds)), state, call(roster, 5, busy=busy))
    free = [c for c in range(len(seconds)) if c not in busy | away]
    chosen = who(invited)
    assert bool(chosen) == bool(free)
    assert len({tier_of[c] for c in chosen}) <= 1
    if chosen:
        there = [c for c in free if tier_of[c] == after["drawn"]]
        assert set(chosen) <= set(there)
        assert len(set(chosen)) == len(chosen) == min(cohort, len(there))


def _drawn_otherwise(self: InvitationContext, fixed: Setup) -> Any:
    return self.stream(fixed, "other")


@law(
    population=st.integers(2, 20),
    cohort=st.integers(1, 8),
    version=st.integers(1, 9),
    occasion=st.sampled_from(((), ("dispatch", 3))),
    busy=st.frozensets(st.integers(0, 19), max_size=5),
    examples=30,
    broken_by={
        "two tiers all the same": lambda patch: patch.setattr(
            TierSampling, "tiered", lambda self, fixed, known: _TIERED(replace(self, tiers=2), fixed, known)
        ),
        "with draws of its own": lambda patch: patch.setattr(
            TierSampling, "invite", lambda self, f, s, c: _INVITE(self, replace(f, seed=f.seed + 1), s, c)
        ),
    },
)
def test_one_tier_is_the_uniform_draw_once_the_profiles_are_there(
    population: int, cohort: int, version: int, occasion: Any, busy: frozenset[int]
) -> None:
    policy, fixed, roster = TierSampling(cohort=cohort, tiers=1), setup(population), Present([1] * population)
    state = profiled(policy, [float(c % 5) for c in range(population)])
    asked = call(roster, version, occasion=occasion, busy=busy)
    assert policy.invite(fixed, state, asked)[1] == Uniform(cohort=cohort).invite(fixed, {}, asked)[1]


def _straight_to_tiers(self: TierSampling, fixed: Setup, state: State, asked: InvitationContext) -> Any:
    return _INVITE(self, fixed, {**state, "missed": asked.version} if state["tier_of"] else state, asked)


def _for_ever(self: TierSampling, fixed: Setup, state: State, asked: InvitationContext) -> Any:
    return _INVITE(replace(self, profile=99), fixed, state, asked)


@law(
    population=st.integers(2, 12),
    profile=st.integers(1, 3),
    cohort=st.integers(1, 5),
    deaf=st.frozensets(st.integers(0, 11), max_size=3),
    examples=30,
    broken_by={
        "tiers as soon as there are any": swap(TierSampling, "invite", _straight_to_tiers),
        "profiling never ends": swap(TierSampling, "invite", _for_ever),
    },
)
def test_everybody_is_timed_first_and_who_never_answers_counts_as_slowest(
    population: int, profile: int, cohort: int, deaf: frozenset[int]
) -> None:
    policy, fixed, roster = (
        TierSampling(cohort=cohort, tiers=2, profile=profile),
        setup(population),
        Present([1] * population),
    )
    state, visits = policy.server_start(fixed), Counter[int]()
    for version in range(population * profile):
        if len(visits) == population and min(visits.values()) >= profile:
            break
        state, invited = policy.invite(fixed, state, call(roster, version))
        short = min(cohort, sum(visits[c] < profile for c in range(population)))
        assert sum(visits[c] < profile for c in who(invited)) == short
        visits.update(who(invited))
        heard = [report(c, version, duration=1.0 + c % 3) for c in who(invited) if c not in deaf]
        state = told(policy, state, version, heard)
    assert min(visits.values()) >= profile
    assert len(visits) == population
    state = policy._sorted(fixed, {**state, "changed": True}, 99)
    hearing = [c for c in range(population) if c not in deaf]
    tier_of = state["tier_of"]
    assert all(tier_of[c] >= tier_of[h] for c in deaf if c < population for h in hearing)


def _any_report(self: TierSampling, fixed: Setup, state: State, heard: Report) -> State:
    return _ACCEPT(self, fixed, state, replace(heard, substitute=""))


def _every_visit(self: TierSampling, fixed: Setup, state: State, heard: Report) -> State:
    return _ACCEPT(replace(self, profile=99), fixed, state, heard)


@law(
    profile=st.integers(1, 3),
    examples=6,
    broken_by={
        "visits that skipped": swap(TierSampling, "accept", _any_report),
        "all visits": swap(TierSampling, "accept", _every_visit),
    },
)
def test_a_latency_is_of_the_first_visits_that_trained(profile: int) -> None:
    policy = TierSampling(profile=profile)
    state = told(policy, policy.server_start(setup(1)), 0, [report(0, substitute="movement", duration=0.001)])
    for visit in range(6):
        state = told(policy, state, 1 + visit, [report(0, 1 + visit, duration=2.0**visit)])
    assert list(state["profiles"][0]) == [0, profile, 2.0**profile - 1]


COMBINED: tuple[Callable[[Recipe], Recipe], ...] = (
    lambda recipe: recipe,
    lambda recipe: recipe | Buffer(size=2),
    lambda recipe: recipe | Rolling() | Buffer(size=2),
    lambda recipe: recipe | Rolling() | SampledStaleness(max_delay=3) | Buffer(size=2),
    lambda recipe: recipe | CriticalPeriods(delta=1e9) | Buffer(size=1),
    lambda recipe: recipe | RandomResize(up=0.0, down=0.5),
    lambda recipe: recipe | OverSelect(factor=1.4),
)


def _keeps_to_itself(self: TierSampling, fixed: Setup, state: State, asked: InvitationContext) -> Any:
    return _INVITE(self, fixed, state, replace(asked, in_flight=0, count=None))


def _never_judges(self: TierSampling, fixed: Setup, state: State, asked: InvitationContext) -> Any:
    return _INVITE(replace(self, interval=None), fixed, state, asked)


@law(
    combine=st.sampled_from(COMBINED),
    interval=st.sampled_from((None, 1, 2)),
    credits=st.sampled_from((None, 2)),
    next_one=st.lists(st.integers(0, 9), min_size=1, max_size=6),
    loses=st.lists(st.booleans(), max_size=5).map(lambda fates: [False, *fates]),
    examples=40,
    broken_by={
        "who is under way takes no place": swap(TierSampling, "invite", _keeps_to_itself),
        "nobody is judged": swap(TierSampling, "invite", _never_judges),
    },
)
def test_it_goes_on_under_every_release_and_other_policies(
    combine: Callable[[Recipe], Recipe], interval: Any, credits: Any, next_one: Sequence[int], loses: Sequence[bool]
) -> None:
    policy = TierSampling(tiers=2, interval=interval, credits=credits)
    recipe = combine(fedavg(**Common(cohort=3, epochs=0.5, batch=4)) | policy)
    story = roll(recipe, Federation(sizes=(5, 12, 7, 9, 3, 8, 4)), versions=8, next_one=next_one, loses=loses)
    assert story.turns[-1].state.version == 8
    for turn in story.turns:
        assert turn.state.training <= most(recipe)
        busy = [flight.client for flight in turn.state.flights.values()]
        assert len(busy) == len(set(busy))
    assert any(a.kind == "measure" for a in story.assignments.values()) == (interval is not None)


def _gives_up(self: TierSampling, fixed: Setup, state: State, asked: InvitationContext) -> Any:
    state, invited = _INVITE(self, fixed, state, asked)
    return (state if invited else {**state, "missed": asked.version}), invited


@law(
    searches=st.integers(1, 4),
    broken_by={"a search that found nobody is not repeated": swap(TierSampling, "invite", _gives_up)},
)
def test_where_nobody_was_there_whoever_comes_first_is_asked(searches: int) -> None:
    policy, fixed = TierSampling(cohort=2), setup(3)
    state = policy.server_start(fixed)
    for _ in range(searches):
        state, invited = policy.invite(fixed, state, call(Present([1, 1, 1], away=(0, 1, 2)), count=2))
        assert not invited
    _, invited = policy.invite(fixed, state, call(Present([1, 1, 1], away=(0, 2)), count=2))
    assert list(who(invited)) == [1]
