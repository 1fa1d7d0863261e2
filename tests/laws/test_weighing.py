"""How much each update counts: shares sum to one, whoever took part, and direction counts apart from steps."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Literal

import torch
from hypothesis import strategies as st

from polyrhythm.base.messages import Assignment, Event, Facts, Lost, Report
from polyrhythm.core import server, versions
from polyrhythm.methods.mechanism import Release
from polyrhythm.methods.server_step import Adam
from polyrhythm.methods.weighing import BySamples, Equal, NormalisedAveraging, Sharing, shares

from .law import law, swap
from .trials import Misfortune, Trial, misfortunes, trials
from .world import Run, near, play, run, same

# What mutants wrap.
_SCALES = NormalisedAveraging.scales
_BUFFERS = versions.mean_buffers
_BEFORE_USE = server.before_use

SHARINGS: tuple[Sharing, ...] = (BySamples(), Equal())


@st.composite
def facts(draw: st.DrawFn) -> list[Facts]:
    """The facts of a release: plain SGD, so that a travel is rate times steps."""
    steps = draw(st.lists(st.integers(1, 50), min_size=1, max_size=6))
    return [
        Facts(
            dispatch=i,
            client=i,
            num_samples=draw(st.integers(1, 1000)),
            steps=n,
            travel=0.1 * n,
            pull=0.0,
            rate=0.1,
            staleness=0,
        )
        for i, n in enumerate(steps)
    ]


def released(story: Run) -> list[Release]:
    """The releases of a run, without skipped versions."""
    return [r.release for r in story.released if r.release is not None]


@law(
    trial=trials(travels=False),
    sharing=st.sampled_from(SHARINGS),
    happening=misfortunes(),
    broken_by={
        "of those invited": swap(versions, "shares", lambda claims: [c / (sum(claims) + 1) for c in claims]),
    },
)
def test_shares_sum_to_one_whoever_reports(trial: Trial, sharing: Sharing, happening: Misfortune) -> None:
    story = play(trial.recipe(sharing), trial.federation, happening=happening)
    for release in released(story):
        assert math.isclose(math.fsum(release.shares), 1, rel_tol=1e-12)
        assert set(release.scales) == {1.0}


@law(
    given_facts=facts(),
    broken_by={
        "by steps": swap(BySamples, "claims", lambda self, facts: [float(f.steps) for f in facts]),
        "equal by samples": swap(Equal, "claims", lambda self, facts: [float(f.num_samples) for f in facts]),
    },
)
def test_shares_are_proportional_to_what_they_claim(given_facts: list[Facts]) -> None:
    by_samples, equal = (shares(sharing.claims(given_facts)) for sharing in SHARINGS)
    assert by_samples is not None
    assert equal is not None
    total = sum(f.num_samples for f in given_facts)
    assert all(math.isclose(s * total, f.num_samples) for s, f in zip(by_samples, given_facts, strict=True))
    assert all(math.isclose(s * len(given_facts), 1) for s in equal)
    assert shares([0.0] * len(given_facts)) is None


@law(
    given_facts=facts(),
    which=st.integers(0, 5),
    times=st.integers(2, 9),
    broken_by={
        "not by its travel": swap(NormalisedAveraging, "scales", lambda self, facts, shares: [1.0] * len(facts)),
        "twice": swap(
            NormalisedAveraging, "scales", lambda self, facts, shares: [s * s for s in _SCALES(self, facts, shares)]
        ),
    },
)
def test_more_steps_do_not_give_a_direction_more_weight(given_facts: list[Facts], which: int, times: int) -> None:
    one = given_facts[which % len(given_facts)]
    longer = [replace(f, steps=f.steps * times, travel=f.travel * times) if f is one else f for f in given_facts]
    for those in (given_facts, longer):
        weights = shares(BySamples().claims(those))
        assert weights is not None
        scales = NormalisedAveraging().scales(those, weights)
        # An update is travel times a direction, so this is what multiplies each direction.
        pulls = [w * s * f.travel for w, s, f in zip(weights, scales, those, strict=True)]
        assert all(math.isclose(p / math.fsum(pulls), w) for p, w in zip(pulls, weights, strict=True))


@law(
    given_facts=facts(),
    pull=st.sampled_from((0.0, 0.1)),
    effective=st.sampled_from(("auto", "travel", "steps")),
    examples=20,
    broken_by={
        "auto ignores the pull": swap(
            NormalisedAveraging,
            "scales",
            lambda self, facts, shares: _SCALES(self, [replace(f, pull=0.0) for f in facts], shares),
        )
    },
)
def test_under_a_pull_the_effective_way_is_in_steps(
    given_facts: list[Facts], pull: float, effective: Literal["auto", "travel", "steps"]
) -> None:
    # The proximal recursion, a <- (1 - lr * mu) * a + 1, in units of the rate.
    pulled = [
        replace(f, pull=pull, travel=sum(0.1 * (1 - 0.1 * pull) ** k for k in range(f.steps))) for f in given_facts
    ]
    weights = shares(BySamples().claims(pulled))
    assert weights is not None
    in_steps = effective == "steps" or (effective == "auto" and pull > 0)
    way = math.fsum(w * (f.steps * f.rate if in_steps else f.travel) for w, f in zip(weights, pulled, strict=True))
    scales = NormalisedAveraging(effective=effective).scales(pulled, weights)
    assert all(math.isclose(s * f.travel, way) for s, f in zip(scales, pulled, strict=True))


def _without_scales(**given: Any) -> Release:
    return Release(**given | {"scales": (1.0,) * len(given["reports"])})


@law(
    trial=trials(),
    broken_by={
        "not by its travel": swap(NormalisedAveraging, "scales", lambda self, facts, shares: [1.0] * len(facts)),
        "scales forgotten": swap(versions, "Release", _without_scales),
    },
)
def test_a_fednova_step_is_one_common_way_along_the_mean_direction(trial: Trial) -> None:
    story = run(trial.recipe(NormalisedAveraging()), trial.federation)
    for release, after in zip(released(story), story.states[1:], strict=True):
        travels = [report.travel for report in release.reports]
        way = math.fsum(s * t for s, t in zip(release.shares, travels, strict=True))
        pieces = zip(release.shares, release.updates(), travels, strict=True)
        direction = torch.stack([share * update.double() / travel for share, update, travel in pieces]).sum(0)
        assert near(after.weights, release.weights + way * direction)
        assert all(math.isclose(s * t, way) for s, t in zip(release.scales, travels, strict=True))


def _accept_the_idle(*given: Any) -> Any:
    *rest, report, buffers = given
    return _BEFORE_USE(*rest, replace(report, steps=1), buffers)


@law(
    trial=trials(everybody=True),
    sharing=st.sampled_from(SHARINGS),
    scaled=st.booleans(),
    broken_by={"a client without a step counts": swap(server, "before_use", _accept_the_idle)},
)
def test_a_client_without_a_step_has_no_influence(trial: Trial, sharing: Sharing, scaled: bool) -> None:
    federation = replace(trial.federation, sizes=(*trial.federation.sizes, 0))
    idle = len(federation.sizes) - 1
    trial = trial.but(cohort=len(federation.sizes))
    recipe = trial.recipe(sharing, *([NormalisedAveraging()] if scaled else []))

    def absent(assignment: Assignment, report: Report) -> Event:
        assert (assignment.client == idle) == (report.steps == 0)
        return Lost(dispatch=report.dispatch, reason="away") if assignment.client == idle else report

    there, away = play(recipe, federation), play(recipe, federation, happening=absent)
    for one, other in zip(there.states, away.states, strict=True):
        assert same((one.weights, one.buffers), (other.weights, other.buffers))
    assert all(idle not in [r.client for r in release.reports] for release in released(there))
    assert all([c for c, _ in r.refused] == [idle] for r in there.released)


def _first_buffers(layout: Any, state: Any, reports: Any) -> Any:
    return reports[0].buffers


@law(
    trial=trials(nets=("batchnorm",)),
    sharing=st.sampled_from(SHARINGS),
    server_adam=st.booleans(),
    broken_by={
        "buffers stay as they were": swap(versions, "mean_buffers", lambda layout, state, reports: state.buffers),
        "the first client's buffers": swap(versions, "mean_buffers", _first_buffers),
        "weighed equally": swap(
            versions,
            "mean_buffers",
            lambda layout, state, reports: _BUFFERS(layout, state, tuple(replace(r, num_samples=1) for r in reports)),
        ),
    },
)
def test_buffers_are_averaged_by_samples_in_every_method(trial: Trial, sharing: Sharing, server_adam: bool) -> None:
    story = run(trial.recipe(sharing, *([Adam()] if server_adam else [])), trial.federation)
    for release, after in zip(released(story), story.states[1:], strict=True):
        total = sum(report.num_samples for report in release.reports)
        for i, buffer in enumerate(after.buffers):
            theirs = [report.buffers[i] for report in release.reports]
            if buffer.is_floating_point():
                held = [report.num_samples for report in release.reports]
                mean = torch.stack([b.double() * n / total for b, n in zip(theirs, held, strict=True)]).sum(0)
                assert near(buffer, mean)
            else:
                assert int(buffer) == max(int(b) for b in theirs)
            assert (buffer.dtype, buffer.shape) == (theirs[0].dtype, theirs[0].shape)
