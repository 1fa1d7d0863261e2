"""An attack on the noise: it refutes no claim that is true, and finds one that is half true."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
from hypothesis import strategies as st

import polyrhythm as pr
from polyrhythm.base.settings import Settings
from polyrhythm.experiments import audit as auditing
from polyrhythm.experiments.audit import Audit
from polyrhythm.methods.privacy import refuting
from polyrhythm.methods.privacy.accounting import Sampling
from polyrhythm.methods.privacy.adaptive_clip import Adaptive
from polyrhythm.methods.release import differential_privacy
from polyrhythm.methods.release.differential_privacy import Dp, noise

from .law import law, swap

_NOISE, _AT_LEAST = noise, refuting.at_least


@functools.cache
def federation() -> pr.data.Federation:
    return pr.federate(pr.data.digits(), pr.data.Iid(), clients=100, seed=0)


def audited(*more: Settings, seed: int, canaries: int = 600) -> Audit:
    recipe = pr.fedavg(cohort=20) | pr.parts.equal()
    for part in more:
        recipe = recipe | part
    experiment = pr.Experiment(federation=federation(), model="logistic", recipe=recipe, rounds=10)
    return auditing.audit(experiment, canaries=canaries, seed=seed)


WAYS: dict[str, tuple[Settings, ...]] = {
    "a schedule": (pr.parts.sweep(), Dp(noise=3.0, delta=1e-3)),
    "coins": (pr.parts.poisson(rate=0.5), Dp(noise=1.5, delta=1e-3)),
    "cohorts of one size": (Dp(noise=2.0, delta=1e-3),),
    "an adaptive clip": (pr.parts.sweep(), Dp(noise=1.8, delta=1e-3, clip=Adaptive())),
}


def _half(*given: object) -> object:
    return _NOISE(*given) * 0.5  # type: ignore[arg-type]


@law(
    way=st.sampled_from(sorted(WAYS)),
    seed=st.integers(0, 1000),
    cases=[{"way": way, "seed": seed} for seed, way in enumerate(WAYS)],
    broken_by={"half the noise": swap(differential_privacy, "noise", _half)},
)
def test_a_claim_that_is_true_is_not_refuted_and_what_is_proved_is_below_it(way: str, seed: int) -> None:
    found = audited(*WAYS[way], seed=seed)
    assert found.holds
    assert 0 <= found.at_least <= found.epsilon
    assert found.noise_at_most is None or found.noise_at_most >= found.noise


@law(
    seed=st.integers(0, 1000),
    cases=[{"seed": 5}],
    broken_by={
        "looks away": swap(auditing, "threshold", lambda *scores: math.inf),
        "is never sure": swap(auditing, "at_least", lambda right, of: _AT_LEAST(right, of) * 0.5),
    },
)
def test_much_is_proved_and_half_the_noise_is_found(seed: int) -> None:
    honest = audited(pr.parts.sweep(), Dp(noise=2.0, delta=1e-3), seed=seed, canaries=1000)
    assert honest.holds
    assert honest.at_least > honest.epsilon / 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(differential_privacy, "noise", _half)
        halved = audited(pr.parts.sweep(), Dp(noise=4.0, delta=1e-3), seed=seed, canaries=1000)
    assert not halved.holds
    assert halved.at_least > halved.epsilon
    assert halved.noise_at_most is not None
    assert halved.noise_at_most < 4


@law(
    mu=st.floats(0.3, 3.0),
    up=st.floats(0.02, 0.5),
    cases=[{"mu": mu, "up": up} for mu in (0.3, 1.0, 3.0) for up in (0.02, 0.2, 0.5)],
    broken_by={"any rate can be": swap(refuting, "most_found", lambda delta, up: 1.0)},
)
def test_by_curves_as_much_noise_is_found_as_in_closed_form(mu: float, up: float) -> None:
    """Of one version in which everybody is, the curve of the sampled law is that of one Gaussian."""
    from scipy.special import ndtr, ndtri

    low = float(ndtr(ndtri(up) + mu))
    everybody = Sampling(law="poisson", population=10, cohort=10.0, rate=1.0)
    found = refuting.most_noise(everybody, 1.0, 1, low, up)
    assert found is not None
    # The curve is of losses that are rounded up, which proves less, and never more.
    assert 0.985 < found * mu < 1.1
    scheduled = Sampling(law="bounded", population=10, cohort=10.0)
    assert np.isclose(refuting.most_noise(scheduled, 1.0, 1, low, up), 1 / mu)
