"""Client-centric optimisation with two clients of which one never comes, and what that costs."""

from __future__ import annotations

import numpy as np
import pytest

from polyrhythm.methods.papers import cc_fedadam, cc_fedsgd
from polyrhythm.methods.recipe import Recipe

from .conftest import Bowls, Client

OPTIMA = np.array([[1.0, -2.0], [5.0, 4.0]])
RECIPES: dict[str, Recipe] = {
    "sgd": cc_fedsgd(server_lr=2.0, cohort=2, epochs=1, batch=1, lr=0.1, max_delay=2),
    "adam": cc_fedadam(server_lr=0.05, epsilon=1e-1, cohort=2, epochs=1, batch=1, lr=0.1, max_delay=2),
}


def bowl(optimum: np.ndarray) -> Client:
    """Loss |w - optimum|^2 / 2; two steps a visit."""
    return Client(np.ones(2), optimum, np.zeros(2), 2)


@pytest.mark.parametrize("name", RECIPES)
def test_a_client_that_never_comes_is_never_heard(name: str, bowls: Bowls) -> None:
    """Remark 4.2.2: the bias is half the distance between the two optima, and no number of versions lowers it."""
    together = bowls(RECIPES[name], [bowl(o) for o in OPTIMA], [0.0, 0.0], rounds=300)
    alone = bowls(RECIPES[name], [bowl(OPTIMA[0])], [0.0, 0.0], rounds=300, population=2)
    best = OPTIMA.mean(axis=0)
    np.testing.assert_allclose(together[-1].weights, best, atol=1e-3)
    for version in alone[-100:]:
        np.testing.assert_allclose(version.weights, OPTIMA[0], atol=1e-3)
    bias = np.linalg.norm(alone[-1].weights - best)
    assert bias == pytest.approx(np.linalg.norm(OPTIMA[0] - OPTIMA[1]) / 2, abs=1e-3)
