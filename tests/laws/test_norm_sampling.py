"""Rehearsals, and draws by how long updates are."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from polyrhythm.base.messages import Report
from polyrhythm.core import client
from polyrhythm.core.training import Training
from polyrhythm.methods.client_momentum import ClientMomentum
from polyrhythm.methods.correction import ControlVariates, Prox
from polyrhythm.methods.papers import optimal_sampling
from polyrhythm.methods.participation import norm_sampling
from polyrhythm.methods.participation.norm_sampling import NormSampling, chances
from polyrhythm.methods.server_step import Momentum
from polyrhythm.methods.work.partial_work import PartialWork

from .law import law, swap
from .selecting import Present, call, report, setup, who
from .test_asynchrony import SIZES, releases
from .trials import Trial, trials
from .world import Federation, alike, near, run, same

_CHANCES, _REHEARSED, _RUN = chances, client.rehearsed, Training.run
LENGTHS = st.lists(st.floats(0, 100, allow_subnormal=False), min_size=1, max_size=9)


def best(lengths: list[float], uploads: int) -> list[float]:
    """p_i = min(1, c * u_i) that add up to `uploads`, c by bisection."""
    if uploads >= len(lengths):
        return [1.0] * len(lengths)
    low, high = 0.0, len(lengths) / min(u for u in lengths if u)
    for _ in range(200):
        middle = (low + high) / 2
        if sum(min(1.0, middle * u) for u in lengths) < uploads:
            low = middle
        else:
            high = middle
    return [min(1.0, high * u) for u in lengths]


@law(
    lengths=st.lists(st.floats(0.01, 100), min_size=1, max_size=9),
    uploads=st.integers(1, 9),
    seed=st.integers(0, 99),
    examples=80,
    broken_by={
        "by length, and no more than 1": swap(
            norm_sampling, "chances", lambda u, m, r=None: [min(1.0, m * x / sum(u)) for x in u]
        ),
        "all the same": swap(norm_sampling, "chances", lambda u, m, r=None: [min(1.0, m / len(u))] * len(u)),
    },
)
def test_chances_have_the_least_variance_of_all_with_as_many_uploads(
    lengths: list[float], uploads: int, seed: int
) -> None:
    p = norm_sampling.chances(lengths, uploads)
    assert math.isclose(sum(p), min(uploads, len(lengths)), rel_tol=1e-9)
    assert np.allclose(p, best(lengths, uploads), rtol=1e-6)
    other = np.random.default_rng(seed).uniform(0.1, 1, len(lengths))
    other *= min(1.0, uploads / other.sum())
    assert sum(u * u / q for u, q in zip(lengths, p, strict=True)) <= sum(np.square(lengths) / other) * (1 + 1e-9)


@law(
    lengths=LENGTHS,
    uploads=st.integers(1, 9),
    examples=60,
    broken_by={
        "not rescaled": swap(
            norm_sampling, "chances", lambda u, m, r=None: _CHANCES(u, m, 1 if r is not None else None)
        )
    },
)
def test_the_approximation_comes_to_the_same_and_never_asks_for_more(lengths: list[float], uploads: int) -> None:
    p = norm_sampling.chances(lengths, uploads, 100)
    assert all(0 <= q <= 1 for q in p)
    assert sum(p) <= uploads * (1 + 1e-9)
    assert np.allclose(p, norm_sampling.chances(lengths, uploads), rtol=1e-6, atol=1e-9)


def _forgets_briefs(self: Training) -> Any:
    if self.assignment.kind == "rehearse":
        self.assignment = replace(self.assignment, briefs={})
    return _RUN(self)


def _begins(self: Training) -> Any:
    if self.assignment.kind == "rehearse":
        self.run_ = replace(self.run_, plan=replace(self.run_.plan, steps=1))
    return (yield from _RUN(self))


@law(
    cohort=st.integers(2, 6),
    uploads=st.integers(1, 4),
    rescalings=st.sampled_from((None, 4)),
    extra=st.sampled_from((None, ClientMomentum(alpha=0.5), Prox(mu=0.1), PartialWork(seconds=0.2))),
    net=st.sampled_from(("perceptron", "batchnorm", "dropout")),
    seed=st.integers(0, 9),
    examples=20,
    broken_by={
        "each counts what it holds": swap(
            NormSampling, "weight", lambda self, fixed, state, c: float(state["held"][c])
        ),
        "the sum of those heard": swap(NormSampling, "whole", lambda self, fixed, state: None),
        "told is half of it": swap(
            client,
            "rehearsed",
            lambda a, r: replace(d := _REHEARSED(a, r), measures={k: v / 2 for k, v in d.measures.items()}),
        ),
        "without what the server says": swap(Training, "run", _forgets_briefs),
    },
)
def test_a_version_is_the_mean_of_its_cohort_without_bias(
    cohort: int, uploads: int, rescalings: int | None, extra: Any, net: str, seed: int
) -> None:
    """By brute force: s_i / p_i of those drawn, by lengths that are those of the updates they then send."""
    federation = Federation(sizes=SIZES, dtype=torch.float64, net=net, seed=seed)
    recipe = optimal_sampling(cohort=cohort, uploads=uploads, rescalings=rescalings, epochs=1, batch=4)
    story = run(recipe if extra is None else recipe | extra, federation, versions=5)
    for release, before, after in zip(releases(story), story.states, story.states[1:], strict=False):
        told = {r.client: r for r in story.reports.values() if r.version == release.version and r.kind == "rehearse"}
        assert len(told) == (min(cohort, len(SIZES)) if cohort > uploads else 0)
        if told:
            lengths = [SIZES[c] * r.measures["norm"] for c, r in sorted(told.items())]
            p = dict(zip(sorted(told), chances(lengths, uploads, rescalings), strict=True))
        else:
            p = {r.client: 1.0 for r in release.reports}
        whole = sum(SIZES[c] for c in p)
        somebody = 1 - math.prod(1 - q for q in p.values())
        step = torch.zeros_like(before.weights)
        for r in release.reports:
            step += SIZES[r.client] / whole / p[r.client] * somebody * _sent(r)
            if told:
                assert math.isclose(told[r.client].measures["norm"], float(_sent(r).norm()), rel_tol=1e-12)
                assert (told[r.client].steps, told[r.client].update) == (r.steps, None)
        assert near(after.weights, before.weights + step, 1e-10)


def _sent(heard: Report) -> Tensor:
    assert heard.update is not None
    return heard.update


@law(
    trial=trials(),
    broken_by={"a whole of more": swap(NormSampling, "whole", lambda self, fixed, state: 2 * state["whole"])},
)
def test_where_all_may_send_it_is_plain_averaging_and_nobody_rehearses(trial: Trial) -> None:
    story = run(optimal_sampling(uploads=trial.common["cohort"], **trial.common), trial.federation)
    assert alike(story, run(trial.recipe(), trial.federation))
    assert {a.kind for a in story.assignments.values()} == {"train"}


@law(
    seed=st.integers(0, 9),
    net=st.sampled_from(("perceptron", "batchnorm", "dropout")),
    broken_by={"it only begins": swap(Training, "run", _begins)},
)
def test_a_rehearsal_leaves_nothing_behind(seed: int, net: str) -> None:
    """Whoever rehearsed and was not drawn is as it was; who trains goes on as if it had not rehearsed."""
    federation = Federation(sizes=SIZES, net=net, seed=seed)
    recipe = optimal_sampling(cohort=4, uploads=2, epochs=1, batch=4) | ControlVariates() | Momentum()
    story = run(recipe, federation, versions=4)
    trained = {a.client for a in story.assignments.values() if a.kind == "train"}
    assert set(story.clients) == trained
    for dispatch, assignment in story.assignments.items():
        before = [d for d in story.visits(assignment.client) if d < dispatch and story.assignments[d].kind == "train"]
        assert assignment.visit == len(before)
        if assignment.kind == "rehearse":
            assert story.reports[dispatch].update is None
            again = [d for d in story.visits(assignment.client) if d > dispatch]
            if again and story.assignments[again[0]].kind == "train":
                assert same(story.batches[dispatch], story.batches[again[0]])


@law(
    lengths=st.lists(st.sampled_from((0.5, 1.0, 2.0)), min_size=3, max_size=3),
    broken_by={"as if somebody were drawn each time": swap(NormSampling, "whole", lambda self, fixed, state: 10.0)},
)
def test_in_the_mean_each_counts_what_it_holds(lengths: list[float]) -> None:
    """Over many versions: also where often nobody would be drawn."""
    policy, fixed, roster = NormSampling(cohort=3, uploads=1), setup(3), Present([2, 3, 5])
    sums, rounds = np.zeros(3), 1500
    for version in range(rounds):
        state, asked = policy.invite(fixed, policy.server_start(fixed), call(roster, version))
        assert sorted(who(asked, "rehearse")) == [0, 1, 2]
        for c, length in enumerate(lengths):
            state = policy.measured(fixed, state, report(c, version, kind="rehearse", measures={"norm": length}))
        state, asked = policy.invite(fixed, state, call(roster, version))
        assert who(asked)
        for c in who(asked):
            sums[c] += policy.weight(fixed, state, c) / (policy.whole(fixed, state) or 1)
    # A client counts s / p at most, with a chance of p: six standard deviations of that.
    p = np.array(chances([n * u for n, u in zip((2, 3, 5), lengths, strict=True)], 1))
    s = np.array([2, 3, 5]) / 10
    assert (np.abs(sums / rounds - s) <= 6 * s * np.sqrt((1 - p) / p / rounds) + 1e-9).all()
