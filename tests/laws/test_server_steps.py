"""What every server optimiser keeps to, whatever mean updates come: monotone moments, still zeros, no infinities."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from polyrhythm.methods.mechanism import Setup
from polyrhythm.methods.server_step import Adagrad, Adam, Adaptive, AMSGrad, Momentum, ServerStep, Sgd, Yogi

from .law import law, swap
from .world import near, same

# What mutants wrap.
_STEP = Adaptive.step

SIZE = 4
SETUP = Setup(size=SIZE, dtype=torch.float32, population=3, total_rounds=None, seed=0)
RULES: tuple[ServerStep, ...] = (Sgd(), Momentum(), Adagrad(), Adam(), Yogi(), AMSGrad())
ADAPTIVE: tuple[Adaptive, ...] = (Adagrad(), Adam(), Yogi(), AMSGrad())


@st.composite
def updates(draw: st.DrawFn) -> list[Tensor]:
    """Mean updates of several versions, [P] each, of very different sizes and signs; the last coordinate is zero."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    sizes = 10.0 ** rng.uniform(-4, 2, size=(draw(st.integers(1, 6)), SIZE))
    vectors = torch.as_tensor(rng.normal(size=sizes.shape) * sizes, dtype=torch.float32)
    vectors[:, -1] = 0
    return list(vectors)


def steps(rule: ServerStep, means: list[Tensor]) -> list[tuple[Any, Tensor]]:
    """The state and the weights before the first version and after each."""
    story = [(rule.server_start(SETUP), torch.ones(SIZE))]
    for mean in means:
        state, weights = story[-1]
        story.append(rule.step(SETUP, state, weights, mean))
    return story


@law(
    means=updates(),
    initial=st.sampled_from((0.0, 1e-6, 1.0)),
    examples=20,
    broken_by={
        "decays like Adam": swap(Adagrad, "second", lambda self, state, square: {"v": 0.9 * state["v"] + square}),
    },
)
def test_adagrads_moment_never_shrinks(means: list[Tensor], initial: float) -> None:
    moments = [state["v"] for state, _ in steps(Adagrad(initial=initial), means)]
    assert all(bool((b >= a).all()) for a, b in itertools.pairwise(moments))
    assert near(moments[-1], initial + torch.stack(means).square().sum(0), 1e-5)


@law(
    means=updates(),
    examples=20,
    broken_by={
        "the latest, not the largest": swap(
            AMSGrad,
            "second",
            lambda self, state, square: dict.fromkeys(("v", "largest"), 0.9 * state["v"] + 0.1 * square),
        ),
    },
)
def test_amsgrads_largest_never_shrinks(means: list[Tensor]) -> None:
    states = [state for state, _ in steps(AMSGrad(), means)]
    assert all(bool((b["largest"] >= a["largest"]).all()) for a, b in itertools.pairwise(states))
    assert all(bool((state["largest"] >= state["v"]).all()) for state in states)


@law(
    means=updates(),
    initial=st.sampled_from((0.0, 1e-6, 1.0)),
    beta2=st.sampled_from((0.0, 0.5, 0.99)),
    examples=20,
    broken_by={
        "the sign forgotten": swap(
            Yogi, "second", lambda self, state, square: {"v": state["v"] - (1 - self.beta2) * square}
        ),
        "moves by v": swap(
            Yogi,
            "second",
            lambda self, state, square: {
                "v": state["v"] - (1 - self.beta2) * state["v"] * torch.sign(state["v"] - square) + square
            },
        ),
    },
)
def test_yogis_moment_stays_positive_and_moves_by_the_square(means: list[Tensor], initial: float, beta2: float) -> None:
    moments = [state["v"] for state, _ in steps(Yogi(initial=initial, beta2=beta2), means)]
    for before, after, mean in zip(moments, moments[1:], means, strict=False):
        assert bool((after >= 0).all())
        limit = (1 - beta2) * mean.square()
        assert bool(((after - before).abs() <= limit + 1e-6 * torch.maximum(before, after)).all())


def _drifting(self: Adaptive, setup: Setup, state: Any, weights: Tensor, mean: Tensor) -> Any:
    after, stepped = _STEP(self, setup, state, weights, mean)
    return after, stepped + 1e-6


@law(
    means=updates(),
    rule=st.sampled_from(RULES),
    epsilon=st.sampled_from((1e-9, 1e-3)),
    place=st.sampled_from(("outside", "inside", "floor")),
    correct=st.booleans(),
    examples=40,
    broken_by={
        "no epsilon": swap(Adaptive, "step", lambda self, *given: _STEP(replace(self, epsilon=1e-300), *given)),
        "a bias": swap(Adaptive, "step", _drifting),
    },
)
def test_what_never_moves_stays_put_and_all_stays_finite(
    means: list[Tensor],
    rule: ServerStep,
    epsilon: float,
    place: Literal["outside", "inside", "floor"],
    correct: bool,
) -> None:
    if isinstance(rule, Adaptive):
        rule = replace(rule, epsilon=epsilon, epsilon_place=place, bias_correction=correct)
    for _, weights in steps(rule, means):
        assert bool(torch.isfinite(weights).all())
        assert float(weights[-1]) == 1.0


@law(
    means=updates(),
    rule=st.sampled_from(RULES),
    examples=20,
    broken_by={
        "down the mean": lambda patch: [
            patch.setattr(type(rule), "step", _backwards(type(rule).step)) for rule in RULES
        ],
    },
)
def test_every_rule_ascends_along_the_first_mean(means: list[Tensor], rule: ServerStep) -> None:
    (_, before), (_, after), *_ = steps(rule, means)
    way = after - before
    assert bool((way * means[0] >= 0).all())
    assert float(way.abs().sum()) > 0


def _backwards(step: Any) -> Any:
    def other(self: ServerStep, setup: Setup, state: Any, weights: Tensor, mean: Tensor) -> Any:
        return step(self, setup, state, weights, -mean)

    return other


@law(
    means=updates(),
    rule=st.sampled_from(RULES),
    examples=20,
    broken_by={
        "an even rule": swap(
            Adaptive, "step", lambda self, setup, state, weights, mean: _STEP(self, setup, state, weights, mean.abs())
        ),
    },
)
def test_every_rule_is_odd_in_the_updates(means: list[Tensor], rule: ServerStep) -> None:
    there, back = steps(rule, means), steps(rule, [-mean for mean in means])
    for (_, one), (_, other) in zip(there, back, strict=True):
        assert near(one - 1, -(other - 1), 1e-5)


def _in_place(self: Adaptive, setup: Setup, state: Any, weights: Tensor, mean: Tensor) -> Any:
    state["v"].add_(mean * mean)
    return _STEP(self, setup, state, weights, mean)


@law(
    means=updates(),
    rule=st.sampled_from(ADAPTIVE),
    broken_by={"moments updated in place": swap(Adaptive, "step", _in_place)},
)
def test_a_step_leaves_its_inputs_alone(means: list[Tensor], rule: Adaptive) -> None:
    state, weights = rule.server_start(SETUP), torch.ones(SIZE)
    for mean in means:
        before = {k: v.clone() if isinstance(v, Tensor) else v for k, v in state.items()}, weights.clone(), mean.clone()
        after, stepped = rule.step(SETUP, state, weights, mean)
        assert same((state, weights, mean), before)
        state, weights = after, stepped
