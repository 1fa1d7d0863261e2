"""FedDyn against its equations in NumPy, with N larger than the cohort."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from polyrhythm.methods.correction import Prox
from polyrhythm.methods.papers import fedavg, feddyn

Bowls = Callable[..., list[Any]]
Descend = Callable[..., np.ndarray]
START = [1.0, -2.0, 0.5]


@pytest.mark.parametrize("alpha", [0.05, 1.0])
@pytest.mark.parametrize("local", [{}, {"momentum": 0.6}, {"mu": 0.4}])
@pytest.mark.parametrize(("cohort", "population"), [(5, 5), (3, 8)])
def test_path_and_duals(
    bowls: Bowls,
    descend: Descend,
    clients: list[Any],
    alpha: float,
    local: dict[str, Any],
    cohort: int,
    population: int,
) -> None:
    common = {k: v for k, v in local.items() if k != "mu"}
    recipe = feddyn(alpha=alpha, cohort=cohort, epochs=2, batch=1, lr=0.05, **common)
    recipe = recipe | Prox(mu=local["mu"]) if "mu" in local else recipe
    versions = bowls(recipe, clients, START, rounds=8, population=population)

    x, h, dual = np.array(START), np.zeros(3), np.zeros((5, 3))
    pulled = {**local, "mu": local.get("mu", 0.0) + alpha}
    for version in versions:
        ends = []
        for i in version.cohort:
            end = descend(lambda w, i=i: clients[i].gradient(w) - dual[i], x, 2 * clients[i].copies, 0.05, **pulled)
            dual[i] = dual[i] - alpha * (end - x)
            ends.append(end)
        h = h - alpha / population * sum(end - x for end in ends)
        x = np.mean(ends, axis=0) - h / alpha
        np.testing.assert_allclose(version.weights, x, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(version.server("dynamic_regularisation", "h"), h, rtol=1e-9, atol=1e-10)
        for i in version.cohort:
            mine = version.client(i, "dynamic_regularisation", "dual")
            np.testing.assert_allclose(mine, dual[i], rtol=1e-9, atol=1e-10)


def test_it_finds_the_optimum_of_the_mean_loss_where_fedavg_does_not(bowls: Bowls, clients: list[Any]) -> None:
    optimum = sum(c.curvature * c.optimum - c.slope for c in clients) / sum(c.curvature for c in clients)
    settings: dict[str, Any] = {"cohort": 5, "epochs": 4, "batch": 1, "lr": 0.1}
    ends = [
        bowls(recipe, clients, START, rounds=60)[-1].weights
        for recipe in (feddyn(alpha=1.0, **settings), fedavg(**settings))
    ]
    np.testing.assert_allclose(ends[0], optimum, atol=1e-6)
    assert np.abs(ends[1] - optimum).max() > 0.05
