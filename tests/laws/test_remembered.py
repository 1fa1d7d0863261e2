"""What was heard earlier: as a correction, as a model, or only if it is recent; how rarely a client is heard; how far a
step goes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from polyrhythm.base.messages import Facts, Report
from polyrhythm.base.settings import Settings
from polyrhythm.fleet import Fleet
from polyrhythm.methods.mechanism import Release, Setup
from polyrhythm.methods.papers import aced, fedau, fedavg, fedexp, fedstale, fedvarp
from polyrhythm.methods.participation_intervals import ParticipationIntervals
from polyrhythm.methods.release.delay_adaptive_step import DelayAdaptiveStep
from polyrhythm.methods.release.last_models import LastModels
from polyrhythm.methods.release.last_updates import LastUpdates
from polyrhythm.methods.release.stale_updates import StaleUpdates
from polyrhythm.methods.server_step import Adam, AMSGrad, Extrapolation, Momentum, ServerStep, Sgd
from polyrhythm.methods.weighing import Equal, PerStep, Staleness

from .fleets import fleets
from .law import law, swap
from .test_asynchrony import SIZES, releases
from .test_last_updates import FALLING, asynchronous
from .trials import Trial, trials
from .world import Federation, alike, near, run


def heard(version: int, facts: Sequence[Facts]) -> Release:
    """A release of these clients, of which only who they are is looked at."""
    given: dict[str, Any] = {"visit": 0, "kind": "train", "recipe": "", "num_samples": 1, "update": None}
    reports = tuple(Report(dispatch=f.dispatch, client=f.client, version=version, **given) for f in facts)
    return Release(version=version, reports=reports, shares=(), scales=(), weights=torch.zeros(1))


_CORRECT, _MODELS, _SEEN = StaleUpdates.before_step, LastModels.before_step, Extrapolation.seen
_REMEMBER = LastUpdates.before_step
_WEIGH, _STRIDE = ParticipationIntervals.weigh, DelayAdaptiveStep.stride


def _of_now(self: StaleUpdates, setup: Setup, state: Any, release: Release, mean: Tensor) -> Any:
    """Remembers first, and corrects then."""
    after, _ = _CORRECT(self, setup, state, release, mean)
    return after, _CORRECT(self, setup, after, release, mean)[1]


def _never_heard(self: StaleUpdates, setup: Setup, state: Any, release: Release, mean: Tensor) -> Any:
    return state, mean


def _own_rate(self: StaleUpdates, setup: Setup, state: Any, release: Release, mean: Tensor) -> Any:
    reports = tuple(replace(r, rate=1.0) for r in release.reports)
    return _CORRECT(self, setup, state, replace(release, reports=reports, rate=1.0), mean)


def _unscaled(self: StaleUpdates, setup: Setup, state: Any, release: Release, mean: Tensor) -> Any:
    return _CORRECT(self, setup, state, replace(release, scales=(1.0,) * len(release.scales)), mean)


@law(
    beta=st.sampled_from((0.3, 1.0)),
    kind=st.sampled_from(("rounds", "a buffer", "twice in one release")),
    scalings=st.sampled_from(((), (PerStep(),), (Staleness(),))),
    falling=st.booleans(),
    cohort=st.integers(1, 6),
    lr=st.sampled_from((1.0, 0.5)),
    fleet=fleets(),
    examples=20,
    broken_by={
        "what is said now is what was said": swap(StaleUpdates, "before_step", _of_now),
        "nothing is remembered": swap(StaleUpdates, "before_step", _never_heard),
        "at the rate of its visit": swap(StaleUpdates, "before_step", _own_rate),
        "whatever its scale": swap(StaleUpdates, "before_step", _unscaled),
    },
)
def test_the_mean_is_corrected_by_what_was_said_before(
    beta: float, kind: str, scalings: tuple[Settings, ...], falling: bool, cohort: int, lr: float, fleet: Fleet
) -> None:
    """By brute force: mean + beta * (mean over all of h - mean over the release of h), h as it was before."""
    parts, schedule = (StaleUpdates(beta=beta), Sgd(lr=lr), *scalings), {"schedule": FALLING} if falling else {}
    if kind == "rounds":
        recipe = fedavg(cohort=cohort, epochs=1, batch=4, **schedule) | Equal()  # type: ignore[arg-type]
        for part in parts:
            recipe = recipe | part
    else:
        recipe = asynchronous(cohort, 2 if kind == "a buffer" else 6, *parts, **schedule)
    story = run(recipe, Federation(sizes=SIZES, dtype=torch.float64, fleet=fleet), versions=8)
    rates = [0.1 / (1 + t) if falling else 0.1 for t in range(8)]
    h = [torch.zeros_like(story.states[0].weights) for _ in SIZES]
    for release, before, after in zip(releases(story), story.states, story.states[1:], strict=False):
        mean, then = torch.zeros_like(before.weights), [v.clone() for v in h]
        for r, share, scale in zip(release.reports, release.shares, release.scales, strict=True):
            assert r.update is not None
            mean += share * (scale * r.update - beta * rates[release.version] * then[r.client])
            h[r.client] = scale * r.update / rates[r.version]
        mean += beta * rates[release.version] * sum(then, torch.zeros_like(mean)) / len(SIZES)
        assert near(after.weights, before.weights + lr * mean, 1e-10)


@law(
    trial=trials(),
    buffered=st.booleans(),
    broken_by={
        "0 is a correction": swap(
            StaleUpdates, "before_step", lambda self, setup, state, release, mean: (state, mean + 1e-7)
        )
    },
)
def test_no_correction_is_exactly_none(trial: Trial, buffered: bool) -> None:
    plain = trial.recipe(Equal())
    whole = fedstale(beta=0, **trial.common)
    assert alike(run(whole, trial.federation), run(plain, trial.federation))
    first = run(fedvarp(**trial.common), trial.federation, versions=1)
    assert alike(first, run(plain, trial.federation, versions=1))


@law(
    trial=trials(everybody=True),
    made=st.sampled_from((fedvarp, fedau, "last_models")),
    broken_by={
        "what is said now is what was said": swap(StaleUpdates, "before_step", _of_now),
        "whatever the number": swap(
            ParticipationIntervals,
            "weigh",
            lambda self, setup, state, version, facts, shares: [0.5] * len(facts),
        ),
        "only half of the way": swap(
            LastModels,
            "before_step",
            lambda self, setup, state, release, mean: (state, _MODELS(self, setup, state, release, mean)[1] / 2),
        ),
    },
)
def test_where_everybody_is_heard_all_of_them_are_the_plain_mean(trial: Trial, made: Any) -> None:
    recipe = trial.recipe(Equal(), LastModels()) if made == "last_models" else made(**trial.common)
    story, plain = run(recipe, trial.federation), run(trial.recipe(Equal()), trial.federation)
    assert all(near(a.weights, b.weights, 1e-5) for a, b in zip(story.states, plain.states, strict=True))
    if made is fedau:
        assert alike(story, plain)


@law(
    concurrency=st.integers(1, 6),
    size=st.integers(1, 3),
    fleet=fleets(),
    examples=12,
    broken_by={
        "from the model that it was sent": swap(
            LastModels,
            "before_step",
            lambda self, setup, state, release, mean: (
                _MODELS(self, setup, state, release, mean)[0],
                mean * (len(release.reports) / setup.holders),
            ),
        ),
        "over those who were heard": swap(
            LastModels,
            "before_step",
            lambda self, setup, state, release, mean: (
                (after := _MODELS(self, setup, state, release, mean))[0],
                after[1] * (setup.holders / len(after[0]["last"])),
            ),
        ),
    },
)
def test_the_servers_model_is_the_mean_of_what_clients_sent_last(concurrency: int, size: int, fleet: Fleet) -> None:
    """Whoever comes how often: y_i is the initial model of who never came."""
    recipe = asynchronous(concurrency, size, LastModels())
    story = run(recipe, Federation(sizes=SIZES, dtype=torch.float64, fleet=fleet), versions=10)
    first, sent = story.states[0].weights, dict[int, Tensor]()
    for release, after in zip(releases(story), story.states[1:], strict=False):
        for r in release.reports:
            assert r.update is not None
            sent[r.client] = story.assignments[r.dispatch].weights + r.update
        every = [sent.get(client, first) for client in range(len(SIZES))]
        assert near(after.weights, torch.stack(every).mean(0), 1e-10)
        assert LastModels().measures(after.parts["last_models"]) == {"remembered": len(sent)}


def _as_if_fresh(self: LastUpdates, setup: Setup, state: Any, release: Release, mean: Tensor) -> Any:
    reports = tuple(replace(r, version=release.version) for r in release.reports)
    return _REMEMBER(self, setup, state, replace(release, reports=reports), mean)


@law(
    within=st.integers(0, 4),
    concurrency=st.integers(1, 6),
    fleet=fleets(),
    examples=12,
    broken_by={
        "by when it came": swap(LastUpdates, "before_step", _as_if_fresh),
        "never too old to step": swap(LastUpdates, "holds_back", lambda self, setup, state: ""),
    },
)
def test_only_updates_begun_from_a_recent_model_count(within: int, concurrency: int, fleet: Fleet) -> None:
    recipe = aced(concurrency=concurrency, within=within, server_lr=1.0, epochs=1, batch=4)
    story = run(recipe, Federation(sizes=SIZES, dtype=torch.float64, fleet=fleet), versions=10)
    last: dict[int, tuple[int, Tensor]] = {}
    waited = 0
    for released, before, after in zip(story.released, story.states, story.states[1:], strict=False):
        assert released.release is not None
        for r in released.release.reports:
            assert r.update is not None
            last[r.client] = r.version, r.update
        recent = [update for begun, update in last.values() if released.release.version - begun <= within]
        waited += not recent
        mean = torch.stack(recent).mean(0) if recent else torch.zeros_like(before.weights)
        assert near(after.weights, before.weights + mean, 1e-10)
        assert bool(released.note) == (not recent)
    if concurrency == 1:  # nothing is late
        assert not waited


def _wide(self: Extrapolation, state: Any, release: Release) -> Any:
    return {**state, "square": 2 * _SEEN(self, state, release)["square"]}


@law(
    trial=trials(),
    epsilon=st.sampled_from((0.0, 1e-3, 10.0)),
    broken_by={
        "twice as wide": swap(Extrapolation, "seen", _wide),
        "sees nothing": swap(Extrapolation, "seen", lambda self, state, release: state),
    },
)
def test_the_server_goes_further_the_more_the_updates_differ(trial: Trial, epsilon: float) -> None:
    trial = replace(trial, federation=replace(trial.federation, dtype=torch.float64))
    story = run(fedexp(epsilon=epsilon, **trial.common), trial.federation)
    went_further = 0
    for release, before, after in zip(releases(story), story.states, story.states[1:], strict=False):
        updates = torch.stack(release.updates())
        mean = updates.mean(0)
        square = float(updates.square().sum()) / len(updates)
        factor = max(1.0, square / (2 * (float(mean.square().sum()) + epsilon)))
        went_further += factor > 1
        assert near(after.weights, before.weights + factor * mean, 1e-6)
        assert after.parts["server_extrapolation"]["factor"] == pytest.approx(factor, rel=1e-6)
    if trial.common.get("cohort") == 1:
        assert not went_further


@law(
    trial=trials(),
    epsilon=st.sampled_from((0.0, 1e-3)),
    broken_by={
        "five times as wide": swap(Extrapolation, "seen", lambda *given: {"square": 5 * _SEEN(*given)["square"]})
    },
)
def test_of_a_single_update_the_step_is_that_of_plain_averaging(trial: Trial, epsilon: float) -> None:
    trial = trial.but(cohort=1)
    plain = trial.recipe(Equal())
    assert alike(run(fedexp(epsilon=epsilon, **trial.common), trial.federation), run(plain, trial.federation))


@law(
    cutoff=st.sampled_from((None, 1, 2, 3)),
    cohort=st.integers(1, 5),
    lr=st.sampled_from((1.0, 0.5)),
    seed=st.integers(0, 9),
    broken_by={
        "as often as the others": swap(
            ParticipationIntervals,
            "weigh",
            lambda self, setup, state, version, facts, shares: [len(facts) / setup.holders] * len(facts),
        ),
        "with the interval that ends now": swap(
            ParticipationIntervals,
            "weigh",
            lambda self, setup, state, version, facts, shares: _WEIGH(
                self, setup, self.after_step(setup, state, heard(version, facts)), version + 1, facts, shares
            ),
        ),
    },
)
def test_a_client_counts_by_its_intervals_so_far(cutoff: int | None, cohort: int, lr: float, seed: int) -> None:
    """By brute force: every interval listed, cut where it reaches the cutoff."""
    recipe = fedau(cutoff=cutoff, cohort=cohort, server_lr=lr, epochs=1, batch=4)
    story = run(recipe, Federation(sizes=SIZES, dtype=torch.float64, seed=seed), versions=10)
    intervals: dict[int, list[int]] = {client: [] for client in range(len(SIZES))}
    waits = dict.fromkeys(range(len(SIZES)), 0)
    for release, before, after in zip(releases(story), story.states, story.states[1:], strict=False):
        mean = torch.zeros_like(before.weights)
        here = {r.client: r for r in release.reports}
        for client in waits:
            waits[client] += 1
            if client in here:
                known = intervals[client]
                update = here[client].update
                assert update is not None
                mean += (math.fsum(known) / len(known) if known else 1.0) * update / len(SIZES)
            if client in here or waits[client] == cutoff:
                intervals[client].append(waits[client])
                waits[client] = 0
        assert near(after.weights, before.weights + lr * mean, 1e-10)


@law(
    step=st.sampled_from((Sgd(), Momentum(), Adam(), AMSGrad(lr=0.01))),
    delay=st.integers(1, 3),
    concurrency=st.integers(1, 6),
    fleet=fleets(),
    examples=12,
    broken_by={
        "never late": swap(DelayAdaptiveStep, "stride", lambda self, release: 1.0),
        "by the mean delay": swap(
            DelayAdaptiveStep,
            "stride",
            lambda self, release: 1 / max(1, sum(release.version - r.version for r in release.reports)),
        ),
    },
)
def test_a_late_version_goes_a_part_of_the_way(step: ServerStep, delay: int, concurrency: int, fleet: Fleet) -> None:
    recipe = asynchronous(concurrency, 1, step, DelayAdaptiveStep(delay=delay))
    federation = Federation(sizes=SIZES, dtype=torch.float64, fleet=fleet)
    story = run(recipe, federation, versions=12)
    setup, key = federation.setup(12), step.label()
    for release, before, after in zip(releases(story), story.states, story.states[1:], strict=False):
        latest = max(release.version - r.version for r in release.reports)
        mean = sum(
            (s * u for s, u in zip(release.shares, release.updates(), strict=True)), torch.zeros_like(before.weights)
        )
        _, whole = step.step(setup, before.parts[key], before.weights, mean)
        stride = 1.0 if latest <= delay else 1 / latest
        assert near(after.weights, before.weights + stride * (whole - before.weights), 1e-10)


@law(
    size=st.integers(1, 3),
    broken_by={"always half": swap(DelayAdaptiveStep, "stride", lambda self, release: 0.5)},
)
def test_where_nothing_is_late_a_step_is_whole(size: int) -> None:
    plain = asynchronous(3, size, Momentum())
    federation = Federation(sizes=SIZES)
    assert alike(run(plain | DelayAdaptiveStep(delay=99), federation, versions=6), run(plain, federation, versions=6))
