"""The server's steps against torch.optim, and against the published formulas written out in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from polyrhythm.base.messages import State
from polyrhythm.methods.mechanism import Setup
from polyrhythm.methods.server_step import Adagrad, Adam, Adaptive, AMSGrad, Momentum, ServerStep, Sgd, Yogi

STEPS, SIZE, STILL = 40, 6, 2  # coordinate 2 never gets an update


def updates(dtype: torch.dtype = torch.float64) -> Tensor:
    """Mean updates [T, P]: large and small, with sign flips, a coordinate that is always zero and one that pauses."""
    generator = np.random.default_rng(1)
    values = generator.normal(size=(STEPS, SIZE)) * 10.0 ** generator.integers(-4, 2, size=(STEPS, SIZE))
    values[:, 0] = np.abs(values[:, 0]) * (-1) ** np.arange(STEPS)
    values[:, STILL] = 0
    values[10:20, 3] = 0
    return torch.from_numpy(values).to(dtype)


def follow(rule: ServerStep, means: Tensor) -> tuple[list[Tensor], list[State]]:
    """Weights and states after every step, starting from 1, 2, 3, …"""
    setup = Setup(size=means.shape[1], dtype=means.dtype, population=1, total_rounds=None, seed=0)
    weights, state = torch.arange(1, means.shape[1] + 1, dtype=means.dtype), rule.server_start(setup)
    path, states = [], []
    for mean in means:
        held = weights.clone(), mean.clone(), {k: v.clone() for k, v in state.items() if isinstance(v, Tensor)}
        new_state, new_weights = rule.step(setup, state, weights, mean)
        assert torch.equal(weights, held[0]), "weights were changed in place"
        assert torch.equal(mean, held[1]), "the mean was changed in place"
        assert all(torch.equal(state[k], v) for k, v in held[2].items()), "the state was changed in place"
        state, weights = new_state, new_weights
        path.append(weights)
        states.append(state)
    return path, states


Optimiser = Callable[[list[Tensor]], torch.optim.Optimizer]

IN_TORCH: list[tuple[ServerStep, Optimiser]] = [
    (Sgd(lr=0.7), lambda p: torch.optim.SGD(p, lr=0.7)),
    (Momentum(lr=0.7, beta=0.8), lambda p: torch.optim.SGD(p, lr=0.7, momentum=0.8)),
    (Adagrad(lr=0.3, epsilon=1e-5), lambda p: torch.optim.Adagrad(p, lr=0.3, eps=1e-5)),
    (
        Adagrad(lr=0.3, epsilon=1e-5, initial=0.25),
        lambda p: torch.optim.Adagrad(p, lr=0.3, eps=1e-5, initial_accumulator_value=0.25),
    ),
    (
        Adam(lr=0.1, beta1=0.8, beta2=0.95, epsilon=1e-4, bias_correction=True),
        lambda p: torch.optim.Adam(p, lr=0.1, betas=(0.8, 0.95), eps=1e-4),
    ),
    (
        AMSGrad(lr=0.1, beta1=0.8, beta2=0.9, epsilon=1e-4, bias_correction=True, epsilon_place="outside"),
        lambda p: torch.optim.Adam(p, lr=0.1, betas=(0.8, 0.9), eps=1e-4, amsgrad=True),
    ),
]


@pytest.mark.parametrize(("rule", "optimiser"), IN_TORCH, ids=lambda x: x.label() if isinstance(x, Adaptive) else "")
def test_steps_are_those_of_torch_optim_along_the_negative_update(rule: ServerStep, optimiser: Optimiser) -> None:
    parameter = torch.arange(1, SIZE + 1, dtype=torch.float64).requires_grad_()
    reference = optimiser([parameter])
    path, _ = follow(rule, updates())
    for mean, weights in zip(updates(), path, strict=True):
        parameter.grad = -mean
        reference.step()
        torch.testing.assert_close(weights, parameter.detach(), rtol=1e-12, atol=1e-12)


def by_hand(name: str, settings: dict[str, Any], means: np.ndarray) -> list[np.ndarray]:
    """Reddi et al., Algorithm 2, and Wang et al., Algorithm 1, as they are printed: no bias correction."""
    eta, beta1, beta2, tau = settings["lr"], settings["beta1"], settings.get("beta2", 0.0), settings["epsilon"]
    x = np.arange(1.0, means.shape[1] + 1)
    m, v, largest = np.zeros_like(x), np.full_like(x, settings["initial"]), np.full_like(x, settings["initial"])
    path = []
    for delta in means:
        m = beta1 * m + (1 - beta1) * delta
        if name == "Adagrad":
            v = v + delta**2
        elif name == "Yogi":
            v = v - (1 - beta2) * delta**2 * np.sign(v - delta**2)
        else:
            v = beta2 * v + (1 - beta2) * delta**2
        if name == "AMSGrad":
            largest = np.maximum(np.maximum(largest, v), tau)  # their epsilon is inside the maximum
            x = x + eta * m / np.sqrt(largest)
        else:
            x = x + eta * m / (np.sqrt(v) + tau)
        path.append(x)
    return path


PUBLISHED: dict[str, type[Adaptive]] = {"Adagrad": Adagrad, "Adam": Adam, "Yogi": Yogi, "AMSGrad": AMSGrad}


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("epsilon", [1e-3, 1e-9])
@pytest.mark.parametrize("initial", [0.0, 1e-6])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_defaults_are_the_published_formulas(name: str, epsilon: float, initial: float, dtype: torch.dtype) -> None:
    settings: dict[str, Any] = {
        "lr": 0.1,
        "beta1": 0.0 if name == "Adagrad" else 0.9,
        "epsilon": epsilon,
        "initial": initial,
    }
    settings |= {} if name == "Adagrad" else {"beta2": 0.9}
    means = updates(dtype)
    path, states = follow(PUBLISHED[name](**settings), means)
    expected = by_hand(name, settings, means.double().numpy())
    close: dict[str, Any] = {"rtol": 1e-11, "atol": 1e-11} if dtype == torch.float64 else {"rtol": 1e-4, "atol": 1e-4}
    for weights, right in zip(path, expected, strict=True):
        torch.testing.assert_close(weights.double(), torch.from_numpy(right), **close)
        assert weights[STILL] == STILL + 1, "a coordinate without update must stay where it is"
    assert all(bool((state["v"] >= 0).all()) for state in states)
    assert [state["t"] for state in states] == list(range(1, STEPS + 1))


@pytest.mark.parametrize("rule", [Adam(lr=0.2, epsilon=0.5), AMSGrad(lr=0.2, epsilon=0.5), Yogi(lr=0.2, epsilon=0.5)])
def test_the_place_of_epsilon(rule: Adaptive) -> None:
    """First step by hand: m = (1 - beta1) D, v = (1 - beta2) D^2 for Adam, AMSGrad and, from v = 0, Yogi."""
    delta = torch.tensor([0.0, 0.01, 3.0, -50.0], dtype=torch.float64)
    m, v, e = 0.1 * delta, 0.01 * delta**2, 0.5
    right = {"outside": v.sqrt() + e, "inside": (v + e**2).sqrt(), "floor": v.clamp(min=e).sqrt()}
    for place, denominator in right.items():
        settings: dict[str, Any] = {"lr": 0.2, "epsilon": e, "epsilon_place": place}
        (weights,), _ = follow(type(rule)(**settings), delta.unsqueeze(0))
        expected = torch.arange(1, 5, dtype=torch.float64) + 0.2 * m / denominator
        torch.testing.assert_close(weights, expected, rtol=1e-12, atol=0)


def test_dampened_momentum_by_hand() -> None:
    path, _ = follow(Momentum(lr=2.0, beta=0.75, dampened=True), torch.tensor([[4.0], [-8.0]], dtype=torch.float64))
    # m = 1, then 0.75 - 2 = -1.25
    assert [w.item() for w in path] == [1 + 2 * 1, 1 + 2 * 1 + 2 * -1.25]


@pytest.mark.parametrize("place", ["outside", "inside", "floor"])
@pytest.mark.parametrize("cls", [Adagrad, Adam, Yogi, AMSGrad])
@pytest.mark.parametrize("corrected", [False, True])
def test_without_any_update_nothing_moves(
    cls: type[Adaptive], place: Literal["outside", "inside", "floor"], corrected: bool
) -> None:
    rule = cls(epsilon=1e-9, epsilon_place=place, bias_correction=corrected)
    path, _ = follow(rule, torch.zeros(3, SIZE))
    for weights in path:
        assert torch.equal(weights, torch.arange(1.0, SIZE + 1))


def test_yogi_by_hand_over_two_sign_flips() -> None:
    """beta2 = 3/4, all numbers exact: v rises by D^2 / 4 below D^2, falls by D^2 / 4 above it, rests where equal."""
    rule = Yogi(lr=1.0, beta1=0.0, beta2=0.75, epsilon=1.0, initial=4.0)
    _, states = follow(rule, torch.tensor([[4.0], [-2.0], [1.0], [0.0]], dtype=torch.float64))
    assert [state["v"].item() for state in states] == [8.0, 7.0, 6.75, 6.75]
    _, states = follow(rule, torch.tensor([[2.0]], dtype=torch.float64))
    assert states[0]["v"].item() == 4.0


values = st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=12)


@given(values, st.floats(0, 0.999), st.floats(0, 10))
def test_yogis_second_moment_moves_by_a_share_of_the_square_and_stays_positive(
    deltas: list[float], beta2: float, initial: float
) -> None:
    means = torch.tensor(deltas, dtype=torch.float64).unsqueeze(1)
    path, states = follow(Yogi(beta2=beta2, initial=initial), means)
    before = initial
    for mean, state in zip(deltas, states, strict=True):
        v = state["v"].item()
        assert v >= 0
        assert abs(v - before) <= (1 - beta2) * mean**2 + 1e-12 * max(v, before, 1)
        before = v
    assert all(bool(torch.isfinite(weights).all()) for weights in path)


@given(values, st.floats(0, 0.999))
def test_what_never_shrinks(deltas: list[float], beta2: float) -> None:
    means = torch.tensor(deltas, dtype=torch.float64).unsqueeze(1)
    sums = [s["v"].item() for s in follow(Adagrad(), means)[1]]
    largest = [s["largest"].item() for s in follow(AMSGrad(beta2=beta2), means)[1]]
    assert sums == sorted(sums)
    assert largest == sorted(largest)
    assert largest[-1] == max(s["v"].item() for s in follow(AMSGrad(beta2=beta2), means)[1])


@pytest.mark.parametrize("rule", [Momentum(), Adagrad(), Adam(), Yogi(), AMSGrad()], ids=lambda r: r.label())
@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_half_precision_models_keep_single_precision_moments(rule: ServerStep, half: torch.dtype) -> None:
    setup = Setup(size=2, dtype=half, population=1, total_rounds=None, seed=0)
    weights, state = torch.ones(2, dtype=half), rule.server_start(setup)
    assert all(value.dtype == torch.float32 for value in state.values() if isinstance(value, Tensor))
    state, stepped = rule.step(setup, state, weights, torch.tensor([1e-4, -1e-4]))
    moments = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    assert moments
    assert all(value.dtype == torch.float32 for value in moments.values())
    assert stepped.dtype == torch.float32
    # 1e-4 squared is below float16's smallest number.
    assert all(bool(value.any()) for value in moments.values())
