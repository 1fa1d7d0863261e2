"""Who is invited: distinct, present, by nested draws, and everybody in the end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from polyrhythm.base.messages import State
from polyrhythm.base.streams import stream
from polyrhythm.methods.mechanism import Setup
from polyrhythm.methods.papers import Common, fedavg
from polyrhythm.methods.participation import base as participation
from polyrhythm.methods.participation.base import InvitationContext, Participation, Sweep, Uniform
from polyrhythm.simulation.roster import OpenRoster

from .law import law, swap
from .world import Federation, invitations, run

# What mutants wrap.
_INVITE = Sweep.invite


def setup(population: int, seed: int) -> Setup:
    return Setup(size=1, dtype=torch.float32, population=population, total_rounds=None, seed=seed)


def _without_care(self: OpenRoster, count: int, generator: np.random.Generator, exclude: frozenset[int]) -> Any:
    return tuple(int(c) for c in generator.permutation(self._eligible)[:count])


def _with_replacement(self: OpenRoster, count: int, generator: np.random.Generator, exclude: frozenset[int]) -> Any:
    return tuple(int(c) for c in generator.choice(self._eligible, size=count))


def _seeded_by_size(self: Uniform, s: Setup, state: Any, context: InvitationContext) -> Any:
    drawn = context.roster.draw(self.size, stream(s.seed, "cohort", context.version, self.size), context.busy)
    return state, invitations(drawn)


def _first_come(self: Uniform, s: Setup, state: Any, context: InvitationContext) -> Any:
    return state, invitations([c for c in context.roster.all() if c not in context.busy][: self.size])


def _always_the_same(self: Uniform, s: Setup, state: Any, context: InvitationContext) -> Any:
    return state, invitations(context.roster.draw(self.size, np.random.default_rng(3), context.busy))


def _by_size(self: Uniform, s: Setup, state: Any, context: InvitationContext) -> Any:
    return state, invitations(context.roster.all()[context.version % self.size :][: self.size])


def _busy_too(self: Participation, s: Setup, state: Any, context: InvitationContext) -> Any:
    return state, invitations(context.roster.all()[: self.size])


def _uniformly(self: Sweep, s: Setup, state: Any, context: InvitationContext) -> Any:
    return Uniform(cohort=self.size).invite(s, state, context)


def call_of(roster: OpenRoster, version: int, busy: frozenset[int] = frozenset()) -> InvitationContext:
    return InvitationContext(version=version, weights=torch.zeros(1), buffers=(), roster=roster, busy=busy)


def asked(part: Participation, s: Setup, state: State, context: InvitationContext) -> tuple[State, tuple[int, ...]]:
    """The new state, and who is invited to train on the current version."""
    after, invited = part.invite(s, state, context)
    assert all((i.kind, i.version, i.model) == ("train", None, None) for i in invited)
    return after, tuple(i.client for i in invited)


@law(
    population=st.integers(1, 30),
    cohorts=st.tuples(st.integers(1, 35), st.integers(1, 35)),
    busy=st.frozensets(st.integers(0, 30), max_size=10),
    version=st.integers(0, 50),
    seed=st.integers(0, 5),
    examples=60,
    broken_by={
        "busy clients invited": swap(OpenRoster, "draw", _without_care),
        "drawn with replacement": swap(OpenRoster, "draw", _with_replacement),
        "another draw for every size": swap(Uniform, "invite", _seeded_by_size),
    },
)
def test_a_smaller_cohort_is_a_prefix_of_a_larger_one(
    population: int, cohorts: tuple[int, int], busy: frozenset[int], version: int, seed: int
) -> None:
    # Every third client holds no data.
    eligible = [c for c in range(population) if c % 3 != 1]
    roster = OpenRoster(population, eligible)
    small, large = (
        asked(Uniform(cohort=size), setup(population, seed), {}, call_of(roster, version, busy))[1]
        for size in sorted(cohorts)
    )
    assert small == large[: len(small)]
    for size, cohort in zip(sorted(cohorts), (small, large), strict=True):
        assert len(cohort) == len(set(cohort)) == min(size, len(set(eligible) - busy))
        assert set(cohort) <= set(eligible) - busy


@law(
    cohort=st.integers(1, 4),
    seed=st.integers(0, 9),
    broken_by={
        "another draw for every size": swap(Uniform, "invite", _seeded_by_size),
        "cohorts shuffled by size": swap(Uniform, "invite", _by_size),
    },
)
def test_cohorts_of_runs_are_nested_too(cohort: int, seed: int) -> None:
    federation = replace(Federation(sizes=(2, 2, 2, 2, 2)), seed=seed)
    small, large = (run(fedavg(**Common(cohort=size, epochs=0.5)), federation) for size in (cohort, cohort + 1))
    for version in range(3):
        few, many = ([a.client for a in story.assignments.values() if a.version == version] for story in (small, large))
        assert few == many[:cohort]


@law(
    seed=st.integers(0, 1000),
    examples=4,
    broken_by={
        "the same clients every time": swap(Uniform, "invite", _first_come),
        "the same draw every time": swap(Uniform, "invite", _always_the_same),
    },
)
def test_everybody_is_drawn_about_equally_often(seed: int) -> None:
    population, cohort, versions = 50, 5, 200
    roster, counts = OpenRoster(population, range(population)), np.zeros(population)
    for version in range(versions):
        _, invited = asked(Uniform(cohort=cohort), setup(population, seed), {}, call_of(roster, version))
        counts[list(invited)] += 1
    # Binomial(200, 0.1): mean 20, standard deviation 4.2; five of them are left by one client in about 30,000 runs.
    assert counts.sum() == versions * cohort
    assert counts.min() >= 1
    assert counts.max() <= 20 + 6 * 4.25


def _drops_the_rest(self: Sweep, s: Setup, state: Any, context: InvitationContext) -> Any:
    after, invited = _INVITE(self, s, state, context)
    return {**after, "rest": after["rest"][self.size :]}, invited


@law(
    population=st.integers(1, 20),
    cohort=st.integers(1, 7),
    seed=st.integers(0, 9),
    examples=30,
    broken_by={
        "some are passed over": swap(Sweep, "invite", _drops_the_rest),
        "uniform draws": swap(Sweep, "invite", _uniformly),
        "every sweep the same": swap(participation, "stream", lambda seed, *names: np.random.default_rng(seed)),
    },
)
def test_a_sweep_visits_everybody_exactly_once(population: int, cohort: int, seed: int) -> None:
    roster, sweep = OpenRoster(population, range(population)), Sweep(cohort=cohort)
    state = sweep.server_start(setup(population, seed))
    sweeps = []
    for _ in range(3):
        order: list[int] = []
        while len(order) < population:
            state, invited = asked(sweep, setup(population, seed), state, call_of(roster, 0))
            assert len(invited) == min(cohort, population - len(order))
            order += invited
        assert sorted(order) == list(range(population))
        sweeps.append(order)
    if population > 8:
        assert sweeps[0] != sweeps[1] != sweeps[2]


@law(
    part=st.sampled_from((Uniform(cohort=3), Sweep(cohort=3))),
    broken_by={
        "busy clients invited": lambda patch: [patch.setattr(kind, "invite", _busy_too) for kind in (Uniform, Sweep)],
    },
)
def test_nobody_is_invited_twice_at_once(part: Participation) -> None:
    roster, busy = OpenRoster(7, range(7)), frozenset[int]()
    state = part.server_start(setup(7, 0))
    for version in range(3):
        state, invited = asked(part, setup(7, 0), state, call_of(roster, version, busy))
        assert not busy & set(invited)
        busy |= set(invited)
    assert busy == set(range(7))
