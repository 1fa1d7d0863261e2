"""What noise is worth in epsilon: against published and exact numbers, and an account made in another way."""

from __future__ import annotations

import math

import numpy as np
import pytest

from polyrhythm.methods.privacy import accounting
from polyrhythm.methods.privacy.accounting import Accountant, Sampling
from polyrhythm.methods.privacy.adaptive_clip import Adaptive
from polyrhythm.methods.privacy.effects import Law

CLOSE = 0.01
"""How near a reference epsilon must come, relative."""


def poisson(rate: float, population: int = 10_000) -> Sampling:
    return Sampling(law="poisson", population=population, cohort=rate * population, rate=rate)


def fixed(cohort: int, population: int) -> Sampling:
    return Sampling(law="fixed_size", population=population, cohort=cohort)


BOUNDED = Sampling(law="bounded", population=100, cohort=10)


def banded(bands: int) -> Sampling:
    return Sampling(law="banded", population=100, cohort=1, bands=bands)


def normal(x: float) -> float:
    """The standard normal distribution function."""
    return math.erfc(-x / math.sqrt(2)) / 2


@pytest.mark.parametrize(
    ("noise", "rate", "versions", "delta", "pld", "rdp"),
    [
        (1, 0.01, 1000, 1e-5, 1.8282, 2.1014),
        (1, 0.1, 100, 1e-3, 4.7844, 5.6551),
        (0.6, 0.01, 500, 1e-5, 5.8002, 6.9522),
        (2, 0.1, 50, 1e-3, 1.0462, 1.2404),
        (0.8, 0.05, 200, 1e-4, 6.4726, 7.5100),
        (0.7, 0.02, 300, 1e-4, 4.4139, 5.3327),
        (1.5, 0.2, 100, 1e-2, 4.0287, 4.9292),
        (3, 0.5, 50, 1e-2, 3.0049, 3.5829),
        (1.1, 0.001, 2000, 1e-7, 0.24042, 0.84796),
    ],
)
def test_coins(noise: float, rate: float, versions: int, delta: float, pld: float, rdp: float) -> None:
    assert accounting.epsilon(poisson(rate), noise, versions, delta) == pytest.approx(rdp, rel=CLOSE)
    assert accounting.epsilon(poisson(rate), noise, versions, delta, "pld") == pytest.approx(pld, rel=CLOSE)


@pytest.mark.parametrize(
    ("noise", "cohort", "population", "versions", "delta", "rdp"),
    [(1, 100, 10_000, 1000, 1e-5, 20.987), (1, 10, 100, 100, 1e-3, 79.332), (2, 10, 100, 50, 1e-3, 7.1251)],
)
@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_cohorts_of_one_size(
    noise: float, cohort: int, population: int, versions: int, delta: float, rdp: float, accountant: Accountant
) -> None:
    found = accounting.epsilon(fixed(cohort, population), noise, versions, delta, accountant)
    assert found == pytest.approx(rdp, rel=CLOSE)


@pytest.mark.parametrize(
    ("noise", "visits", "delta", "exact"), [(4, 5, 1e-5, 2.2581), (8, 20, 1e-6, 2.5487), (4, 100, 1e-2, 8.2418)]
)
def test_a_bounded_schedule_is_one_gaussian(noise: float, visits: int, delta: float, exact: float) -> None:
    found = accounting.epsilon(BOUNDED, noise, visits, delta)
    assert found == pytest.approx(exact, rel=CLOSE)
    # Balle and Wang, ICML 2018, theorem 8, with sensitivity 1 and noise z / sqrt(k).
    mu = math.sqrt(visits) / noise
    spent = normal(mu / 2 - found / mu) - math.exp(found) * normal(-mu / 2 - found / mu)
    assert spent == pytest.approx(delta, rel=1e-3)


def test_everybody_in_every_version_is_the_same_by_either_law() -> None:
    assert accounting.epsilon(poisson(1.0), 4, 100, 1e-2, "pld") == pytest.approx(8.2418, rel=CLOSE)


def test_the_library_still_needs_half_the_noise_for_a_client_in_place_of_another() -> None:
    """If a new release counts a replaced client twice itself, it would be counted twice here as well.

    With everybody in every version nothing is drawn: one client replaced moves the sum by 2 clips, which noise of 4
    clips hides as well as noise of 2 hides one clip.
    """
    exact = accounting.epsilon(BOUNDED, 2.0, 1, 1e-5)
    found = accounting.epsilon(fixed(100, 100), 4.0, 1, 1e-5)
    assert exact <= found <= 1.1 * exact


@pytest.mark.parametrize("noise", [10, np.float32(10), np.float64(10)])
def test_a_multiplier_of_any_type_is_the_same_noise(noise: float) -> None:
    assert accounting.epsilon(poisson(0.01), noise, 100, 1e-5, "pld") == accounting.epsilon(
        poisson(0.01), 10.0, 100, 1e-5, "pld"
    )


def test_nothing_is_spent_by_nothing_and_everything_without_noise() -> None:
    assert accounting.epsilon(poisson(0.1), 1.0, 0, 1e-5) == 0
    assert accounting.epsilon(poisson(0.1), 0.0, 1, 1e-5) == math.inf


def test_noise_is_found_for_an_epsilon() -> None:
    found = accounting.calibrated(poisson(0.1), 4.0, 100, 1e-3, "pld")
    assert found == pytest.approx(1.1001, rel=CLOSE)
    assert 3.95 < accounting.epsilon(poisson(0.1), found, 100, 1e-3, "pld") <= 4.0
    assert accounting.calibrated(poisson(0.1), 4.0, 100, 1e-3, "rdp") == pytest.approx(1.2037, rel=CLOSE)
    assert accounting.calibrated(BOUNDED, 2.2581, 5, 1e-5, "pld") == pytest.approx(4, rel=CLOSE)


def test_versions_are_found_for_a_budget() -> None:
    assert accounting.versions_within(poisson(0.01), 1.0, 2.0, 1e-5, "rdp") == 881
    most = accounting.versions_within(poisson(0.1), 2.0, 1.0, 1e-3, "pld")
    assert accounting.epsilon(poisson(0.1), 2.0, most, 1e-3, "pld") <= 1.0
    assert accounting.epsilon(poisson(0.1), 2.0, most + 1, 1e-3, "pld") > 1.0
    assert accounting.versions_within(BOUNDED, 4.0, 2.2582, 1e-5, "pld") == 5
    assert accounting.versions_within(BOUNDED, 1.0, 0.1, 1e-5, "pld") == 0


@pytest.mark.parametrize(
    ("expected", "noise", "of_sum"),
    [(20, 0.5, 0.5164), (20, 1, 1.1547), (50, 1, 1.0206), (100, 1, 1.0050), (100, 2, 2.0412)],
)
def test_what_an_adaptive_clip_leaves_for_the_sum(expected: float, noise: float, of_sum: float) -> None:
    """Andrew et al. 2021, theorem 1, with count noise of a twentieth of the clients."""
    assert Adaptive().remaining(noise, expected) == pytest.approx(of_sum, abs=5e-5)


def test_an_adaptive_clip_by_hand() -> None:
    """Three of four are not clipped: from C = 2 to 2 exp(-0.2 (3/4 - 1/2)), and towards 0.9 to 2 exp(0.03)."""
    assert Adaptive().moved(2.0, 3 / 4) == pytest.approx(1.902459, abs=1e-6)
    assert Adaptive(quantile=0.9).moved(2.0, 3 / 4) == pytest.approx(2.060909, abs=1e-6)


@pytest.mark.parametrize(
    ("noise", "versions", "bands", "delta", "exact"),
    [(8, 200, 10, 1e-6, 2.5487), (8, 191, 10, 1e-6, 2.5487), (4, 5, 1, 1e-5, 2.2581)],
)
def test_correlated_noise_is_one_gaussian_of_as_many_visits_as_have_room(
    noise: float, versions: int, bands: int, delta: float, exact: float
) -> None:
    assert accounting.epsilon(banded(bands), noise, versions, delta) == pytest.approx(exact, rel=CLOSE)


@pytest.mark.parametrize("sampling", [poisson(0.01), poisson(0.5), poisson(1.0), fixed(10, 100)])
@pytest.mark.parametrize("count", [1, 2, 17, 1000])
@pytest.mark.parametrize(("noise", "delta"), [(1.0, 1e-5), (0.4, 1e-2), (30.0, 1e-3)])
def test_epsilon_by_divergences_is_the_librarys(sampling: Sampling, count: int, noise: float, delta: float) -> None:
    dp = accounting.library()
    event, relation = dp.PoissonSampledDpEvent(sampling.rate, dp.GaussianDpEvent(noise)), "ADD_OR_REMOVE_ONE"
    if sampling.law == "fixed_size":
        event, relation = dp.SampledWithoutReplacementDpEvent(100, 10, dp.GaussianDpEvent(noise / 2)), "REPLACE_ONE"
    theirs = dp.rdp.RdpAccountant(neighboring_relation=dp.NeighboringRelation[relation]).compose(event, count)
    assert accounting.epsilon(sampling, noise, count, delta) == pytest.approx(theirs.get_epsilon(delta), rel=1e-12)


@pytest.mark.parametrize("law", ["poisson", "fixed_size", "bounded"])
def test_hardly_any_epsilon_and_any_amount_of_noise(law: Law) -> None:
    """Where epsilon comes down to 0 before it is as small as wanted, and where the library's numbers would overflow."""
    sampling = Sampling(law=law, population=50, cohort=10.0, rate=0.2 if law == "poisson" else 1.0)
    found = accounting.calibrated(sampling, 1e-6, 10, 1e-3, "pld")
    assert 1 < found < 1e9
    assert accounting.epsilon(sampling, found, 10, 1e-3, "pld") <= 1e-6
    assert accounting.epsilon(sampling, 1e300, 10, 1e-3) <= accounting.epsilon(sampling, 100.0, 10, 1e-3)
