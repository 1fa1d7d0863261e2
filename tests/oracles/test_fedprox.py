"""FedProx against the closed form of gradient descent on a pulled quadratic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from polyrhythm.methods.correction import Prox
from polyrhythm.methods.papers import fedavg, fedprox

Bowls = Callable[..., list[Any]]
START = [1.0, -2.0, 0.5]


@pytest.mark.parametrize("mu", [0.0, 0.3, 10.0])
def test_visits_end_where_the_closed_form_says(bowls: Bowls, clients: list[Any], mu: float) -> None:
    """w_K = w* + (1 - eta (a + mu))^K (w0 - w*), with w* = (a b - s + mu w0) / (a + mu); the last has eta mu = 1/2."""
    versions = bowls(fedprox(mu=mu, cohort=5, epochs=4, batch=1, lr=0.05), clients, START, rounds=3)
    w0 = np.array(START)
    for version in versions:
        for report in version.release.reports:
            c = clients[report.client]
            target = (c.curvature * c.optimum - c.slope + mu * w0) / (c.curvature + mu)
            end = target + (1 - 0.05 * (c.curvature + mu)) ** (4 * c.copies) * (w0 - target)
            np.testing.assert_allclose(version.unpadded(report.update), end - w0, rtol=1e-9, atol=1e-12)
        w0 = version.weights


def test_the_pull_starts_with_the_second_step(bowls: Bowls, clients: list[Any]) -> None:
    settings: dict[str, Any] = {"cohort": 5, "batch": None, "lr": 0.05}
    for epochs, same in ((1, True), (2, False)):
        pulled, free = (
            bowls(recipe, clients, START, rounds=1)[0].state.weights
            for recipe in (fedprox(mu=5.0, epochs=epochs, **settings), fedavg(epochs=epochs, **settings))
        )
        assert torch.equal(pulled, free) is same


def test_pulls_add_up(bowls: Bowls, clients: list[Any]) -> None:
    settings: dict[str, Any] = {"cohort": 5, "epochs": 2, "batch": 1}
    one, two = (
        bowls(recipe, clients, START, rounds=2)[-1].weights
        for recipe in (fedprox(mu=0.75, **settings), fedprox(mu=0.5, **settings) | Prox(mu=0.25))
    )
    np.testing.assert_array_equal(one, two)
