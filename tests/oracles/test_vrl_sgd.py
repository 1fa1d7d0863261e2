"""VRL-SGD against its equations in NumPy; partial participation as METHODS resolves it: participants only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from polyrhythm.methods.correction import Prox
from polyrhythm.methods.papers import fedavg, vrl_sgd
from polyrhythm.methods.server_step import Sgd
from polyrhythm.methods.weighing import BySamples

Bowls = Callable[..., list[Any]]
Descend = Callable[..., np.ndarray]
START = [1.0, -2.0, 0.5]


def drifts(version: Any) -> dict[int, np.ndarray]:
    return {i: version.unpadded(d) for i, d in version.state.parts["variance_reduction"]["drift"].items()}


@pytest.mark.parametrize("local", [{}, {"momentum": 0.8}, {"mu": 0.7}])
@pytest.mark.parametrize("by_samples", [False, True])
@pytest.mark.parametrize(("cohort", "server_lr"), [(5, 1.0), (3, 1.0), (3, 0.5)])
def test_path_and_drifts(
    bowls: Bowls,
    descend: Descend,
    clients: list[Any],
    local: dict[str, Any],
    by_samples: bool,
    cohort: int,
    server_lr: float,
) -> None:
    common = {k: v for k, v in local.items() if k != "mu"}
    recipe = vrl_sgd(cohort=cohort, epochs=2, batch=1, lr=0.05, **common) | Sgd(lr=server_lr)
    recipe = recipe | Prox(mu=local["mu"]) if "mu" in local else recipe
    recipe = recipe | BySamples() if by_samples else recipe
    versions = bowls(recipe, clients, START, rounds=7, population=8)

    x, drift = np.array(START), np.zeros((5, 3))
    for version in versions:
        ends, ways = {}, {}
        for i in version.cohort:
            k = 2 * clients[i].copies
            ends[i] = descend(lambda w, i=i: clients[i].gradient(w) - drift[i], x, k, 0.05, **local)
            ways[i] = -descend(lambda w: np.ones(1), np.zeros(1), k, 0.05, **local)[0]
        # The mean of the local models, not the next global one: it differs under another weighing or server rate.
        mean = np.mean(list(ends.values()), axis=0)
        for i in version.cohort:
            drift[i] = drift[i] + (mean - ends[i]) / ways[i]
        p = np.array([clients[i].copies if by_samples else 1.0 for i in version.cohort])
        x = x + server_lr * sum(q * (ends[i] - x) for q, i in zip(p / p.sum(), version.cohort, strict=True))
        np.testing.assert_allclose(version.weights, x, rtol=1e-9, atol=1e-10)
        for i, mine in drifts(version).items():
            np.testing.assert_allclose(mine, drift[i], rtol=1e-9, atol=1e-10)
    assert set(drifts(versions[-1])) == {i for version in versions for i in version.cohort}


@pytest.fixture
def equal_clients(clients: list[Any]) -> list[Any]:
    return [type(c)(c.curvature, c.optimum, c.slope, 3) for c in clients]


def test_drifts_cancel_with_everybody_present_and_equal_steps(bowls: Bowls, equal_clients: list[Any]) -> None:
    for version in bowls(vrl_sgd(cohort=5, epochs=2, batch=1), equal_clients, START, rounds=4):
        own = list(drifts(version).values())
        np.testing.assert_allclose(sum(own), 0, atol=1e-12)
        assert max(np.abs(d).max() for d in own) > 0.1


def test_a_first_drift_is_the_clients_mean_gradient_less_everybodys(bowls: Bowls, flat_clients: list[Any]) -> None:
    equal = [type(c)(c.curvature, c.optimum, c.slope, 3) for c in flat_clients]
    (version,) = bowls(vrl_sgd(cohort=5, epochs=2, batch=1), equal, START, rounds=1)
    mean = np.mean([c.slope for c in equal], axis=0)
    for i, mine in drifts(version).items():
        np.testing.assert_allclose(mine, equal[i].slope - mean, rtol=1e-9)


def test_it_finds_the_optimum_of_the_mean_loss_where_fedavg_does_not(bowls: Bowls, equal_clients: list[Any]) -> None:
    optimum = sum(c.curvature * c.optimum - c.slope for c in equal_clients) / sum(c.curvature for c in equal_clients)
    settings: dict[str, Any] = {"cohort": 5, "epochs": 3, "batch": 1, "lr": 0.05}
    ends = [
        bowls(recipe, equal_clients, START, rounds=60)[-1].weights
        for recipe in (vrl_sgd(**settings), fedavg(**settings))
    ]
    np.testing.assert_allclose(ends[0], optimum, atol=1e-6)
    assert np.abs(ends[1] - optimum).max() > 0.01
