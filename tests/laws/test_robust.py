"""Clipped updates and other middles than the mean: absent where they are neutral, and deaf to outliers where not."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from polyrhythm.base.messages import Assignment, Report
from polyrhythm.base.settings import Settings
from polyrhythm.core import versions
from polyrhythm.methods.correction import ControlVariates
from polyrhythm.methods.papers import fedavg
from polyrhythm.methods.participation.rolling import Rolling
from polyrhythm.methods.release import robust
from polyrhythm.methods.release.base import Buffer, ReleaseModifier
from polyrhythm.methods.release.robust import ClipUpdates, GeometricMedian, Median, Middle, TrimmedMean
from polyrhythm.methods.server_step import Adam
from polyrhythm.methods.together import Releasing
from polyrhythm.methods.weighing import Equal, PerStep

from .law import Mutation, law, swap
from .trials import Trial, arrivals, shuffled, trials
from .world import Federation, alike, near, play, run

# What mutants wrap.
_LIMITS, _CLIP_AFTER, _TRIMMED = ClipUpdates.limits, ClipUpdates.after_step, TrimmedMean.centre
_LIMIT, _REFUSES, _MEAN = ClipUpdates.limit, ClipUpdates.refuses, Releasing.mean

AROUND: tuple[tuple[Settings, ...], ...] = ((), (Buffer(size=2),), (Rolling(concurrency=3), Buffer(size=2)))
FAR = 1e6
NEUTRAL: tuple[Settings, ...] = (
    ClipUpdates(norm=1e9),
    ClipUpdates(times=1e9),
    TrimmedMean(share=0),
    GeometricMedian(iterations=0),
)
PLAIN = fedavg(cohort=5, epochs=1, batch=4) | Equal()
FIVE = Federation(sizes=(5, 12, 7, 9, 8))


@law(
    trial=trials(travels=False),
    part=st.sampled_from(NEUTRAL),
    around=st.sampled_from(AROUND),
    examples=20,
    broken_by={
        "clips a little": swap(ClipUpdates, "limits", lambda self, state, release: [0.999] * len(release.reports)),
        "some are always left out": swap(TrimmedMean, "centre", lambda self, *given: Median().centre(*given)),
        "moves once at least": swap(GeometricMedian, "centre", lambda self, u, shares, scales: u[0].clone()),
    },
)
def test_a_middle_or_a_limit_at_its_neutral_value_is_the_plain_mean(
    trial: Trial, part: Settings, around: tuple[Settings, ...]
) -> None:
    trial = trial.but(cohort=len(trial.federation.sizes))
    plain = trial.recipe(*around)
    assert alike(run(plain | part, trial.federation), run(plain, trial.federation))


@law(
    trial=trials(travels=False),
    cohort=st.integers(1, 2),
    broken_by={"always moves": swap(Median, "centre", lambda self, u, shares, scales: u[0].clone())},
)
def test_the_middle_of_two_is_their_mean(trial: Trial, cohort: int) -> None:
    trial = trial.but(cohort=cohort)
    assert alike(run(trial.recipe(Median()), trial.federation), run(trial.recipe(), trial.federation))


def longer(which: int, factor: float) -> Any:
    """Makes every update of one client longer."""

    def happening(assignment: Assignment, report: Report) -> Report:
        assert report.update is not None
        return replace(report, update=report.update * factor) if assignment.client == which else report

    return happening


MIDDLES: tuple[Middle, ...] = (
    TrimmedMean(share=0.2),
    Median(),
    GeometricMedian(iterations=40),
)


def _as_the_mean(patch: Any) -> None:
    for kind in (TrimmedMean, Median, GeometricMedian):
        patch.setattr(kind, "centre", ReleaseModifier.centre)


@law(
    middle=st.sampled_from(MIDDLES),
    which=st.integers(0, 4),
    factor=st.sampled_from((FAR, -FAR)),
    broken_by={"the mean after all": _as_the_mean},
)
def test_one_client_can_send_anything_and_the_middle_stays_among_the_others(
    middle: Middle, which: int, factor: float
) -> None:
    story = play(PLAIN | middle, FIVE, versions=1, happening=longer(which, factor))
    honest = [r.update for r in story.reports.values() if r.client != which and r.update is not None]
    moved = story.weights - story.states[0].weights
    rows = torch.stack(honest)
    if isinstance(middle, GeometricMedian):
        # Minimises the sum of distances: no farther from the honest ones' mean than twice the farthest of them.
        centre = rows.mean(0)
        assert torch.linalg.vector_norm(moved - centre) <= 2 * max(torch.linalg.vector_norm(u - centre) for u in honest)
    else:
        slack = 1e-6
        assert bool((moved >= rows.amin(0) - slack).all())
        assert bool((moved <= rows.amax(0) + slack).all())
    mean = play(PLAIN, FIVE, versions=1, happening=longer(which, factor)).weights - story.states[0].weights
    assert torch.linalg.vector_norm(mean) > 1e3 * torch.linalg.vector_norm(moved)


def _of_others(change: Callable[..., tuple[Any, Any, Any]]) -> Mutation:
    """The middle of other updates, shares and scales."""

    def mutate(patch: pytest.MonkeyPatch) -> None:
        for kind in (TrimmedMean, Median):
            patch.setattr(kind, "centre", lambda self, *given, centre=kind.centre: centre(self, *change(*given)))

    return mutate


@law(
    middle=st.sampled_from((TrimmedMean(share=0.4), TrimmedMean(share=0.2), Median())),
    weighed=st.sampled_from((None, Equal())),
    examples=10,
    broken_by={
        "whatever its scale": _of_others(lambda u, shares, scales: (u, shares, [1.0] * len(u))),
        "shares do not count": _of_others(lambda u, shares, scales: (u, [1 / len(u)] * len(u), scales)),
        "half as many left out": swap(
            TrimmedMean, "centre", lambda self, *given: _TRIMMED(replace(self, share=self.share / 2), *given)
        ),
    },
)
def test_a_trimmed_mean_sorts_every_weight_and_weighs_what_is_left(middle: Middle, weighed: Settings | None) -> None:
    """By brute force, one weight after the other."""
    recipe = fedavg(cohort=5, epochs=1, batch=4) | PerStep() | middle
    recipe = recipe if weighed is None else recipe | weighed
    story = run(recipe, FIVE, versions=2)
    for released, before, after in zip(story.released, story.states, story.states[1:], strict=False):
        release = released.release
        assert release is not None
        drop = 2 if middle != TrimmedMean(share=0.2) else 1
        moved = []
        for place in range(len(before.weights)):
            changes = [
                (float(u[place]) * s, i) for i, (u, s) in enumerate(zip(release.updates(), release.scales, strict=True))
            ]
            kept = sorted(changes)[drop : 5 - drop]
            total = math.fsum(release.shares[i] for _, i in kept)
            moved.append(math.fsum(change * release.shares[i] for change, i in kept) / total)
        assert near(after.weights, before.weights + torch.tensor(moved), 1e-6)


def _never(self: Any, state: Any, release: Any) -> Any:
    return (1.0,) * len(release.reports)


def _raised(self: Any, setup: Any, state: Any, release: Any) -> Any:
    after = _CLIP_AFTER(self, setup, state, release)
    return {**after, "norms": tuple(robust._norms(release))}


@law(
    which=st.integers(0, 4),
    times=st.sampled_from((1.5, 3.0)),
    norm=st.sampled_from((None, 0.05)),
    examples=10,
    broken_by={
        "clips nobody": swap(ClipUpdates, "limits", _never),
        "outliers raise the limit": swap(ClipUpdates, "after_step", _raised),
        "clips half of it": swap(ClipUpdates, "limit", lambda self, state, norms=(): 0.5 * _LIMIT(self, state, norms)),
    },
)
def test_no_client_moves_the_model_by_more_than_the_limit(which: int, times: float, norm: float | None) -> None:
    clip = ClipUpdates(norm=norm, times=times, window=7)
    story = play(PLAIN | clip, FIVE, versions=3, happening=longer(which, FAR))
    seen: list[float] = []
    for released, before, after in zip(story.released, story.states, story.states[1:], strict=False):
        release = released.release
        assert release is not None
        norms = [float(torch.linalg.vector_norm(u.double())) for u in release.updates()]
        middle = sorted(seen or norms)
        halves = (middle[(len(middle) - 1) // 2] + middle[len(middle) // 2]) / 2
        limit = norm or times * halves
        mean = sum(u.double() * min(1, limit / n) / 5 for u, n in zip(release.updates(), norms, strict=True))
        assert near(after.weights, before.weights + mean, 1e-6)
        assert clip.measures(after.parts["clip_updates"])["clipped"] == sum(n > limit for n in norms) >= 1
        seen = [*seen, *(min(n, limit) for n in norms)][-7:]


@law(
    which=st.integers(0, 4),
    refuse=st.sampled_from((1.0, 10.0, None)),
    examples=10,
    broken_by={
        "refuses nobody": swap(ClipUpdates, "refuses", lambda self, *given: None),
        "refuses everybody": swap(
            ClipUpdates, "refuses", lambda self, *given: _REFUSES(replace(self, refuse=1.0, norm=1e-9), *given)
        ),
    },
)
def test_what_is_far_beyond_the_limit_can_be_refused_with_all_that_it_says(which: int, refuse: float | None) -> None:
    clip = ClipUpdates(norm=5.0, refuse=refuse)
    recipe = PLAIN | ControlVariates() | clip
    story = play(recipe, FIVE, versions=2, happening=longer(which, FAR))
    for dispatch, report in story.reports.items():
        assert story.accepted[dispatch] == (report.client != which or refuse is None)
    verdicts = [t.verdict for t in story.turns if t.verdict is not None and not t.verdict.accepted]
    assert [v.fault for v in verdicts] == ([] if refuse is None else ["too_far"] * 2)
    own = torch.stack([c.parts["control_variates"]["control"] for c in story.clients.values()]).sum(0) / 5
    assert near(story.states[-1].parts["control_variates"]["control"], own)


def _of_the_scaled(self: Releasing, *given: Any) -> tuple[Any, Tensor]:
    return _MEAN(replace(self, modifiers=tuple((k, m) for k, m in self.modifiers if not m.needs_all)), *given)


@law(
    middle=st.sampled_from((TrimmedMean(share=0.3), Median(), GeometricMedian())),
    around=st.sampled_from(((), (Buffer(size=4),))),
    which=st.integers(0, 4),
    broken_by={
        "the clip alone": swap(Releasing, "mean", _of_the_scaled),
        "the middle alone": swap(ClipUpdates, "limits", _never),
    },
)
def test_limits_and_middles_may_be_piped_in_any_order(middle: Middle, around: tuple[Settings, ...], which: int) -> None:
    clip = ClipUpdates(norm=0.03)
    recipe = PLAIN
    for part in around:
        recipe = recipe | part
    happening = longer(which, FAR)
    one, other = (
        play(replace(recipe, modifiers=some), FIVE, versions=3, happening=happening)
        for some in ((clip, middle), (middle, clip))
    )
    assert alike(one, other)
    for alone in (recipe | clip, recipe | middle):
        assert not alike(one, play(alone, FIVE, versions=3, happening=happening))


def _in_order_of_arrival(reports: Any, key: Any) -> list[Report]:
    return list(reports)


@law(
    trial=trials(everybody=True),
    order=arrivals(),
    parts=st.sampled_from(((ClipUpdates(times=1.0), TrimmedMean(share=0.3)), (GeometricMedian(), Adam()))),
    broken_by={
        "summed in order of arrival": lambda patch: patch.setattr(
            versions, "sorted", _in_order_of_arrival, raising=False
        ),
    },
)
def test_what_is_left_out_depends_on_no_order_of_arrival(trial: Trial, order: int, parts: Any) -> None:
    recipe = trial.recipe(*parts)
    mixed = play(recipe, trial.federation, arrival=lambda invited: shuffled(order, invited))
    assert alike(run(recipe, trial.federation), mixed)
