"""FedNova against its equations in NumPy, and its a_i against the closed forms."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyrhythm.base.messages import Facts
from polyrhythm.methods.correction import Prox
from polyrhythm.methods.local.optimisers import LocalSgd
from polyrhythm.methods.local.schedules import Exponential
from polyrhythm.methods.papers import fednova
from polyrhythm.methods.weighing import NormalisedAveraging

Bowls = Callable[..., list[Any]]
Descend = Callable[..., np.ndarray]
START = [1.0, -2.0, 0.5]

steps = st.integers(1, 60)
rates = st.floats(1e-3, 0.5)


def a(steps: int, lr: float, *, momentum: float = 0.0, pull: float = 0.0) -> float:
    return LocalSgd(lr=lr, momentum=momentum).travel([lr] * steps, pull) / lr


@given(steps, rates)
def test_a_is_the_number_of_steps_of_plain_sgd(tau: int, lr: float) -> None:
    assert a(tau, lr) == pytest.approx(tau, rel=1e-12)


@given(steps, rates, st.floats(0.01, 0.95))
def test_a_under_momentum(tau: int, lr: float, rho: float) -> None:
    closed = (tau - rho * (1 - rho**tau) / (1 - rho)) / (1 - rho)
    assert a(tau, lr, momentum=rho) == pytest.approx(closed, rel=1e-9)
    assert a(tau, lr, momentum=rho) == pytest.approx(sum((1 - rho**k) / (1 - rho) for k in range(1, tau + 1)), rel=1e-9)


@given(steps, rates, st.floats(0.01, 1.5))
def test_a_under_a_proximal_pull(tau: int, lr: float, mu: float) -> None:
    assert a(tau, lr, pull=mu) == pytest.approx((1 - (1 - lr * mu) ** tau) / (lr * mu), rel=1e-9)
    recursion = 0.0
    for _ in range(tau):
        recursion = (1 - lr * mu) * recursion + 1
    assert a(tau, lr, pull=mu) == pytest.approx(recursion, rel=1e-9)


@pytest.mark.parametrize("local", [{}, {"momentum": 0.8}, {"momentum": 0.9, "nesterov": True}, {"mu": 0.7}])
@pytest.mark.parametrize("effective", ["auto", "travel", "steps"])
@pytest.mark.parametrize("cohort", [5, 3])
def test_path(
    bowls: Bowls, descend: Descend, clients: list[Any], local: dict[str, Any], effective: Any, cohort: int
) -> None:
    common = {k: v for k, v in local.items() if k != "mu"}
    recipe = fednova(cohort=cohort, epochs=2, batch=1, lr=0.05, schedule=Exponential(gamma=0.9), **common)
    if "mu" in local:
        recipe = recipe | Prox(mu=local["mu"])
    if effective != "auto":
        recipe = dataclasses.replace(recipe, scalings=(NormalisedAveraging(effective=effective),))
    versions = bowls(recipe, clients, START, rounds=6, population=8)

    x = np.array(START)
    for number, version in enumerate(versions):
        eta = 0.05 * 0.9**number
        p, tau, coefficients, directions = [], [], [], []
        for i in version.cohort:
            k = 2 * clients[i].copies
            p.append(clients[i].copies / sum(clients[j].copies for j in version.cohort))
            tau.append(k)
            # a_i is the way under a constant gradient of one, in units of the rate.
            coefficients.append(-descend(lambda w: np.ones(1), np.zeros(1), k, eta, **local)[0] / eta)
            directions.append((x - descend(clients[i].gradient, x, k, eta, **local)) / coefficients[-1])  # eta * d_i
        by_steps = effective == "steps" or (effective == "auto" and "mu" in local)
        tau_effective = np.dot(p, tau if by_steps else coefficients)
        x = x - tau_effective * sum(share * d for share, d in zip(p, directions, strict=True))
        np.testing.assert_allclose(version.weights, x, rtol=1e-9, atol=1e-10)


def test_directions_count_by_samples_whatever_the_steps(bowls: Bowls, flat_clients: list[Any]) -> None:
    """Constant gradients: every version moves along sum p_i * slope_i, by tau_eff * eta."""
    for version in bowls(fednova(cohort=5, epochs=3, batch=1, lr=0.1), flat_clients, START, rounds=1):
        copies = np.array([c.copies for c in flat_clients])
        p = copies / copies.sum()
        mean_slope = sum(share * c.slope for share, c in zip(p, flat_clients, strict=True))
        np.testing.assert_allclose(START - version.weights, np.dot(p, 3 * copies) * 0.1 * mean_slope, rtol=1e-10)


def facts(*travels: float) -> list[Facts]:
    return [
        Facts(dispatch=i, client=i, num_samples=1, steps=int(t * 10), travel=t, pull=0.0, rate=0.1, staleness=0)
        for i, t in enumerate(travels)
    ]


def test_a_client_that_did_not_move_divides_nothing() -> None:
    assert NormalisedAveraging().scales(facts(0.5, 0.0), [0.5, 0.5]) == [0.5, 0.0]


@given(st.lists(st.integers(1, 50), min_size=1, max_size=6), st.integers(0, 5), st.integers(2, 7))
def test_more_steps_of_one_client_change_no_relative_direction(counts: list[int], which: int, factor: int) -> None:
    """share_i * scale_i * travel_i, the weight of a client's direction, stays in the proportion of the shares."""
    shares = [1 / len(counts)] * len(counts)
    more = [c * factor if i == which % len(counts) else c for i, c in enumerate(counts)]
    for some in (counts, more):
        travels = [c / 10 for c in some]
        scales = NormalisedAveraging().scales(facts(*travels), shares)
        weights = [p * s * t for p, s, t in zip(shares, scales, travels, strict=True)]
        assert weights == pytest.approx([weights[0]] * len(weights), rel=1e-12)
        assert sum(weights) == pytest.approx(sum(travels) / len(travels), rel=1e-12)
