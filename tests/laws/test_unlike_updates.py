"""Who will be away soon is asked first; what a late update counts."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from polyrhythm.methods.papers import fedavg
from polyrhythm.methods.participation.availability_sampling import AvailabilitySampling
from polyrhythm.methods.participation.base import Uniform
from polyrhythm.methods.participation.rolling import Rolling
from polyrhythm.methods.release.base import Buffer
from polyrhythm.methods.release.unlike_updates import UnlikeUpdates
from polyrhythm.methods.weighing import Equal, Staleness

from .fleets import fleets
from .law import law, swap
from .selecting import Present, call, setup, who
from .test_asynchrony import SIZES, releases
from .trials import Trial, trials
from .world import Federation, alike, near, run

_INVITE, _WEIGHTS = AvailabilitySampling.invite, UnlikeUpdates.weights


def _never_rests(self: AvailabilitySampling, *given: Any) -> Any:
    return _INVITE(replace(self, rest=0), *given)


def _learns_nothing(self: AvailabilitySampling, fixed: Any, state: Any, context: Any) -> Any:
    after, invited = _INVITE(self, fixed, state, context)
    return {**after, "stays": state["stays"]}, invited


@law(
    cohort=st.integers(1, 4),
    rest=st.integers(0, 3),
    away=st.lists(st.frozensets(st.integers(0, 7), max_size=6), min_size=6, max_size=6),
    seed=st.integers(0, 9),
    examples=60,
    broken_by={
        "nobody rests": swap(AvailabilitySampling, "invite", _never_rests),
        "who stays is not learned": swap(AvailabilitySampling, "invite", _learns_nothing),
    },
)
def test_those_come_first_that_will_leave(cohort: int, rest: int, away: list[frozenset[int]], seed: int) -> None:
    """By brute force: how often each was still there a version later; who was asked rests while there are others."""
    policy, fixed = AvailabilitySampling(cohort=cohort, rest=rest), setup(8, seed)
    state, last = policy.server_start(fixed), dict.fromkeys(range(8), -99)
    stayed, times, before = [0] * 8, [0] * 8, frozenset[int]()
    for version, gone in enumerate(away):
        there = frozenset(range(8)) - gone
        for c in before:
            times[c] += 1
            stayed[c] += c in there
        before = there
        state, invited = policy.invite(fixed, state, call(Present([5] * 8, gone), version))
        rested = {c: version - last[c] for c in there}
        rank = {c: (0.0, (1 + stayed[c]) / (1 + times[c])) if rested[c] > rest else (1.0, -rested[c]) for c in there}
        chosen = who(invited)
        assert len(chosen) == min(cohort, len(there))
        assert all(rank[c] <= rank[d] for c in chosen for d in there - set(chosen))
        last |= dict.fromkeys(chosen, version)


@law(
    trial=trials(),
    broken_by={
        "somebody rests": swap(
            AvailabilitySampling, "invite", lambda self, *given: _INVITE(replace(self, rest=1), *given)
        )
    },
)
def test_where_nobody_leaves_or_rests_it_is_the_uniform_draw(trial: Trial) -> None:
    plain = run(trial.recipe(Uniform()), trial.federation)
    assert alike(run(trial.recipe(AvailabilitySampling(rest=0)), trial.federation), plain)


def _by_delay(self: UnlikeUpdates, late: list[int], updates: list[Tensor], release: Any) -> list[float]:
    return [1 / (tau + 1) for tau in late]


def _in_time(self: UnlikeUpdates, late: list[int], updates: list[Tensor], release: Any) -> list[float]:
    return [1.0 for _ in late]


def _as_if_later(self: UnlikeUpdates, late: list[int], updates: list[Tensor], release: Any) -> list[float]:
    return _WEIGHTS(self, [2 * tau for tau in late], updates, release)


@law(
    size=st.integers(1, 5),
    beta=st.sampled_from((0.0, 0.35, 0.9)),
    boost=st.sampled_from(("code", "paper")),
    scaled=st.booleans(),
    fleet=fleets(),
    examples=20,
    broken_by={
        "late as in time": swap(UnlikeUpdates, "weights", _in_time),
        "by delay alone": swap(UnlikeUpdates, "weights", _by_delay),
        "twice as late": swap(UnlikeUpdates, "weights", _as_if_later),
    },
)
def test_late_updates_count_by_delay_and_by_what_they_say(
    size: int, beta: float, boost: Any, scaled: bool, fleet: Any
) -> None:
    """By brute force, in plain numbers."""
    recipe = fedavg(epochs=1, batch=4) | Equal() | Rolling(concurrency=5) | Buffer(size=size)
    recipe = recipe | UnlikeUpdates(beta=beta, boost=boost)
    recipe = recipe | Staleness() if scaled else recipe
    story = run(recipe, Federation(sizes=SIZES, dtype=torch.float64, fleet=fleet), versions=10)
    for release, before, after in zip(releases(story), story.states, story.states[1:], strict=False):
        updates = [c * u for c, u in zip(release.scales, release.updates(), strict=True)]
        delays = [release.version - r.version for r in release.reports]
        fresh = [u for u, tau in zip(updates, delays, strict=True) if not tau]
        weights = [1 / (tau + 1) for tau in delays]
        if fresh:
            middle, n = sum(fresh, torch.zeros_like(before.weights)) / len(fresh), len(fresh)
            apart = [float(((middle - (n * middle + u) / (n + 1)).norm() / middle.norm()) ** 2) for u in updates]
            most = max([a for a, tau in zip(apart, delays, strict=True) if tau], default=1.0)
            for i, tau in enumerate(delays):
                if tau:
                    said = 1 - math.exp(-apart[i] / most) / (10 if boost == "code" else 1)
                    weights[i] = (1 - beta) / (tau + 1) + beta * said
        step = torch.stack([w / sum(weights) * u for w, u in zip(weights, updates, strict=True)]).sum(0)
        assert near(after.weights, before.weights + step, 1e-9)


@law(
    trial=trials(),
    broken_by={
        "half of all": swap(UnlikeUpdates, "before_step", lambda self, setup, state, release, mean: (state, mean / 2))
    },
)
def test_where_nothing_is_late_nothing_changes(trial: Trial) -> None:
    assert alike(run(trial.recipe(UnlikeUpdates()), trial.federation), run(trial.recipe(), trial.federation))
