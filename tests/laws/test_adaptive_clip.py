"""A clip that finds where lengths lie: it gets there, tells no more than it says, and at rate 0 is a fixed one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from polyrhythm.base.errors import UserError
from polyrhythm.base.messages import Report
from polyrhythm.methods.mechanism import Release, Setup
from polyrhythm.methods.papers import fedavg
from polyrhythm.methods.participation.poisson import Poisson
from polyrhythm.methods.privacy.accounting import Sampling
from polyrhythm.methods.privacy.adaptive_clip import Adaptive
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.release.differential_privacy import Dp
from polyrhythm.methods.weighing import Equal

from .law import law, swap
from .world import Federation, near, run

_CLIPPED, _MOVED, _SPREAD, _REMAINING = Dp.clipped, Adaptive.moved, Adaptive.spread, Adaptive.remaining

FOUR = Federation(sizes=(5, 12, 7, 9))
COHORT = 100.0
SETUP = Setup(
    size=3,
    dtype=torch.float64,
    population=1000,
    total_rounds=None,
    seed=0,
    sampling=Sampling(law="poisson", population=1000, cohort=COHORT, rate=0.1),
)


def heard(lengths: Mapping[int, float], version: int = 0) -> Release:
    """A release of updates of three weights, as long as said."""
    reports = []
    for number, (client, length) in enumerate(lengths.items()):
        update = torch.tensor([math.cos(client), math.sin(client), 0.0], dtype=torch.float64) * length
        given: dict[str, Any] = {"visit": 0, "version": version, "kind": "train", "recipe": "", "num_samples": 1}
        reports.append(Report(dispatch=number, client=client, update=update, **given))
    count = len(reports)
    return Release(
        version=version,
        reports=tuple(reports),
        shares=(1 / count,) * count if count else (),
        scales=(1.0,) * count,
        weights=torch.zeros(3, dtype=torch.float64),
    )


def clips(part: Dp, lengths: Sequence[float], versions: int, setup: Setup = SETUP) -> list[float]:
    """The clip after each version, of clients that come by coins."""
    state, found, coins = part.server_start(setup), [], np.random.default_rng(setup.seed)
    for version in range(versions):
        drawn = np.flatnonzero(coins.random(len(lengths)) < COHORT / len(lengths))
        state, _ = part.private_mean(setup, state, heard({int(c): lengths[c] for c in drawn}, version))
        found.append(state["clip"])
    return found


def _counts_the_clipped(self: Dp, release: Release, clip: float) -> Any:
    updates, weights, unclipped = _CLIPPED(self, release, clip)
    return updates, weights, len(updates) - unclipped


def _counts_nobody(self: Dp, release: Release, clip: float) -> Any:
    updates, weights, _ = _CLIPPED(self, release, clip)
    return updates, weights, 0


@law(
    start=st.sampled_from((0.01, 0.1, 1.0, 10.0, 100.0)),
    quantile=st.sampled_from((0.3, 0.5, 0.8)),
    seed=st.integers(0, 20),
    examples=5,
    cases=[
        {"start": 0.01, "quantile": 0.5, "seed": 0},
        {"start": 100.0, "quantile": 0.5, "seed": 1},
        {"start": 1.0, "quantile": 0.8, "seed": 2},
        {"start": 10.0, "quantile": 0.3, "seed": 3},
    ],
    broken_by={
        "counts the clipped": swap(Dp, "clipped", _counts_the_clipped),
        "counts nobody": swap(Dp, "clipped", _counts_nobody),
        "away from it": swap(
            Adaptive, "moved", lambda self, clip, share: clip * math.exp(self.rate * (share - self.quantile))
        ),
        "to the other side": swap(Adaptive, "moved", lambda self, clip, share: _MOVED(self, clip, 1 - share)),
        "far too much noise on the count": swap(
            Adaptive, "spread", lambda self, expected: 20 * _SPREAD(self, expected)
        ),
    },
)
def test_a_hundred_versions_are_enough_from_a_hundredth_and_a_hundredfold(
    start: float, quantile: float, seed: int
) -> None:
    lengths = np.random.default_rng(7).lognormal(0.0, 0.5, 1000)
    wanted = float(np.quantile(lengths, quantile))
    part = Dp(noise=1.0, clip=Adaptive(quantile=quantile, start=start * wanted))
    found = clips(part, [*map(float, lengths)], 100, replace(SETUP, seed=seed))
    assert any(abs(clip / wanted - 1) <= 0.1 for clip in found[:70])
    # It has to stay there: 3 % is one standard deviation or more of what noise and coins do to it.
    assert abs(float(np.mean(found[-20:])) / wanted - 1) <= 0.1


@law(
    lengths=st.dictionaries(st.integers(0, 5), st.floats(0, 1e6), min_size=1, max_size=6),
    noise=st.floats(0.1, 5.0),
    count=st.floats(0.6, 10.0),
    examples=60,
    broken_by={
        "all noise for the sum": swap(Adaptive, "remaining", lambda self, noise, expected: noise),
        "a count of whole ones": swap(Dp, "clipped", lambda self, r, c: (*(f := _CLIPPED(self, r, c))[:2], 2 * f[2])),
    },
)
def test_sum_and_count_together_tell_no_more_than_one_event(
    lengths: dict[int, float], noise: float, count: float
) -> None:
    """What one client moves, in standard deviations of the noise on it: at most 1 / z, of both together."""
    part = Dp(noise=noise, clip=Adaptive(start=0.5, count_noise=count * noise))
    state = part.server_start(SETUP)
    after, mean = part.private_mean(SETUP, state, heard(lengths))
    release = heard(lengths)
    for client in lengths:
        fewer = replace(release, reports=tuple(r for r in release.reports if r.client != client))
        other, without = part.private_mean(SETUP, state, replace(fewer, scales=(1.0,) * len(fewer.reports)))
        of_sum = float((mean - without).norm()) * COHORT / (0.5 * state["of_sum"])
        of_count = abs(after["unclipped"] - other["unclipped"]) * COHORT / (count * noise)
        assert math.hypot(of_sum, of_count) <= 1 / noise * (1 + 1e-6)


@law(
    noise=st.sampled_from((0.5, 1.0, 2.0)),
    seed=st.integers(0, 3),
    examples=3,
    broken_by={
        "half of it": swap(Adaptive, "spread", lambda self, expected: _SPREAD(self, expected) / 2),
        "the noise of dp itself on the sum": swap(Adaptive, "remaining", lambda self, noise, expected: 0.9 * noise),
    },
)
def test_noise_on_sum_and_count_is_normal_and_as_it_says(noise: float, seed: int) -> None:
    from scipy.stats import kstest

    part, count, of_sum = Dp(noise=noise, clip=Adaptive(start=0.5)), [], []
    state = part.server_start(SETUP)
    for version in range(1000):
        after, mean = part.private_mean(replace(SETUP, seed=seed), state, heard({}, version))
        count.append((after["unclipped"] - 0.5) * COHORT / (COHORT / 20))
        of_sum.append(float(mean[0]) * COHORT / 0.5)
    assert kstest(count, "norm").pvalue > 0.01
    wanted = (noise**-2 - (2 * COHORT / 20) ** -2) ** -0.5
    assert kstest(np.asarray(of_sum) / wanted, "norm").pvalue > 0.01
    assert abs(float(np.corrcoef(count, of_sum)[0, 1])) < 4 / math.sqrt(1000)
    # Half the noise is found by the test above; a tenth more or less by its size.
    assert abs(float(np.std(of_sum)) / wanted - 1) < 4 / math.sqrt(2 * 1000) * 0.8


def private(clip: Any, noise: float) -> Recipe:
    return fedavg(cohort=3, epochs=1, batch=4) | Equal() | Poisson(rate=0.6) | Dp(noise=noise, clip=clip)


@law(
    seed=st.integers(0, 10),
    examples=4,
    broken_by={
        "never stands still": swap(Adaptive, "moved", lambda self, clip, share: 1.1 * clip),
        "never moves": swap(Adaptive, "moved", lambda self, clip, share: clip),
        "all noise for the sum": swap(Adaptive, "remaining", lambda self, noise, expected: noise),
    },
)
def test_at_rate_0_it_is_a_fixed_clip_with_the_noise_that_is_left(seed: int) -> None:
    federation = replace(FOUR, seed=seed)
    left = (0.3**-2 - (2 * 0.2) ** -2) ** -0.5
    still = run(private(Adaptive(start=0.5, rate=0.0, count_noise=0.2), 0.3), federation)
    assert near(still.weights, run(private(0.5, left), federation).weights, 1e-6)
    moving = run(private(Adaptive(start=0.5, rate=0.5, count_noise=0.2), 0.3), federation)
    assert not near(still.weights, moving.weights, 1e-6)
    clips = [state.parts["dp"]["used"] for state in moving.states[1:]]
    assert clips[0] == 0.5
    assert len(set(clips)) == len(clips)
    assert moving.states[1].parts["dp"]["clip"] == clips[1]


def _refusal(noise: float, start: Setup) -> str:
    try:
        Dp(noise=noise, clip=Adaptive()).server_start(start)
    except UserError as refused:
        return refused.expected
    return ""


@law(broken_by={"any noise is good": swap(Adaptive, "remaining", lambda self, noise, expected: noise)})
def test_more_noise_than_the_count_can_share_is_refused_before_round_1() -> None:
    few = replace(SETUP, sampling=Sampling(law="poisson", population=100, cohort=10.0, rate=0.1))
    assert "noise below 1" in _refusal(1.0, few)
    assert "noise below 10" in _refusal(10.0, SETUP)
    Dp(noise=0.99, clip=Adaptive()).server_start(few)
    without = Dp(noise=0.0, clip=Adaptive(start=1.0))
    after, mean = without.private_mean(few, without.server_start(few), heard({1: 4.0, 2: 0.5, 3: 0.6}))
    assert after["unclipped"] == 0.5 + (2 - 3 / 2) / 10
    assert float(mean.norm()) > 0
