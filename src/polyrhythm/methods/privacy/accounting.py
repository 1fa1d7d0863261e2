"""What a mechanism costs in epsilon, by the library dp-accounting (the extra `privacy`).

| law | event | bounds |
| --- | --- | --- |
| poisson | T times a Gaussian of noise z on a Poisson sample of rate q | RDP, PLD |
| fixed_size | T times a Gaussian of z / 2 on n of N without replacement | RDP |
| bounded | one Gaussian of z / sqrt(k), k the versions that the busiest client was in | exact |
| banded | the same, with noise that is correlated over b versions: k = ceil(T / b) | exact |

The half in the second: one client replaced by another moves a clipped sum by up to twice the clip, while the library's
RDP of sampling without replacement counts it once.

The sums of a bounded schedule are Gaussian mechanisms in sequence, each moved by one client by at most the clip, and k
of them by the same one: together as far apart as one of noise z / sqrt(k) (Dong, Roth, Su, "Gaussian Differential
Privacy", 2022, corollary 3.3). Where the schedule follows the models that were released, the same holds of the k that
nobody may exceed, and not of the k that came about, which tells of the data as well (Smith, Thakurta, "Fully Adaptive
Composition for Gaussian Differential Privacy", 2022, theorem 2).
"""

from __future__ import annotations

import functools
import importlib
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal, final

import numpy as np

from polyrhythm.base.errors import UserError
from polyrhythm.methods.privacy.effects import Law

Accountant = Literal["pld", "rdp"]
_MOST = 10_000_000
"""Versions that anybody is asked about."""
_CLOSE = 5e-4
"""By how much more noise than needed a calibration may end, relative."""
_LOUDEST = 1e6
"""Noise beyond which no more is asked of the library, whose numbers would overflow: more noise costs no more."""
_FAR = 50.0
"""Stands in for the logarithm of an infinite epsilon, and less it for that of none."""


@final
@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How clients come into versions, in numbers.

    Args:
        law: by which rule.
        population: N, clients that may ever be in a version.
        cohort: how many a version has, on average where coins decide.
        rate: q, the chance to be in a version; 1 where the law knows of none.
        bands: b, over how many versions noise is correlated.
        most: how many versions a client may ever be in, where a part sees to that.
        adapts: whether who is in a version follows from released models.
        resized: whether a version is to have another number of clients than the one before.
    """

    law: Law
    population: int
    cohort: float
    rate: float = 1.0
    bands: int = 1
    most: int | None = None
    adapts: bool = False
    resized: bool = False


def epsilon(sampling: Sampling, noise: float, count: int, delta: float, accountant: Accountant = "rdp") -> float:
    """Epsilon at delta, after so many versions of "poisson" or "fixed_size", or visits of a client where "bounded".

    Args:
        sampling: how clients come into versions.
        noise: z, standard deviation of the noise on the sum over the clip.
        count: T, or k; 0 costs nothing.
        delta: from 0 to less than 1, both excluded.
        accountant: "rdp" is quick; "pld" is closer, and takes a second where there is sampling. "fixed_size" has "rdp"
            alone, and "bounded" is exact either way.

    Raises:
        UserError: dp-accounting is not installed.
    """
    if count == 0:
        return 0.0
    if noise == 0:
        return math.inf
    noise = min(noise, _LOUDEST)
    if sampling.law in ("bounded", "banded"):
        return _of_gaussian(noise / math.sqrt(visits_in(sampling, count)), delta)
    if accountant == "pld" and sampling.law == "poisson":
        return _by_pld(sampling, noise, count, delta)
    return _by_divergences(sampling, noise, count, delta)


def deltas(sampling: Sampling, noise: float, count: int) -> Callable[[float], float]:
    """What delta belongs to an epsilon, after so many versions, or visits of a client where "bounded".

    Args:
        sampling: how clients come into versions.
        noise: z, more than 0.
        count: T, or k; 1 or more.
    """
    if sampling.law in ("bounded", "banded"):
        return functools.partial(delta_of_gaussian, math.sqrt(visits_in(sampling, count)) / noise)
    if sampling.law == "poisson":
        lost = _losses(sampling, noise, count, interval=1e-2)  # rounded up
        return lambda at: float(lost.get_delta(at))
    divergences = _divergences(sampling, noise, count)
    return lambda at: float(divergences.get_delta(at))


def visits_in(sampling: Sampling, count: int) -> int:
    """k, how many visits of one client an account is of: in so many versions where "banded", else those counted."""
    return -(-count // sampling.bands) if sampling.law == "banded" else count


def delta_of_gaussian(mu: float, at: float) -> float:
    """The delta of an epsilon where two normal distributions are mu standard deviations apart.

    Reference: Balle, Wang, "Improving the Gaussian Mechanism for Differential Privacy", ICML 2018, theorem 8.
    """
    normal = importlib.import_module("scipy.special").ndtr
    return float(normal(mu / 2 - at / mu) - math.exp(at) * normal(-mu / 2 - at / mu))


@functools.lru_cache(maxsize=64)
def calibrated(sampling: Sampling, wanted: float, count: int, delta: float, accountant: Accountant) -> float:
    """The least noise z, to a thousandth, with which epsilon stays within what is wanted. Of a second to ten."""

    def within(noise: float, by: Accountant) -> bool:
        return epsilon(sampling, noise, count, delta, by) <= wanted

    high = 1.0
    while not within(high, "rdp"):
        high *= 2
    high = _least(1e-2, high, lambda noise: epsilon(sampling, noise, count, delta), wanted)
    if accountant == "pld" and sampling.law == "poisson":
        low = 0.7 * high
        while low > 1e-2 and within(low, "pld"):
            low *= 0.7
        high = _least(low, high, lambda noise: epsilon(sampling, noise, count, delta, "pld"), wanted)
    return high


def _least(low: float, high: float, cost: Callable[[float], float], wanted: float) -> float:
    """The least noise that costs no more than is wanted, or a hair more noise; `high` costs no more.

    The cost is nearly a power of the noise, so a few steps along its logarithm find it.
    """
    if cost(low) <= wanted:
        return low

    def above(logarithm: float) -> float:
        spent = cost(math.exp(logarithm))
        return math.log(spent / wanted) if 0 < spent < math.inf else math.copysign(_FAR, spent - wanted)

    # It comes with dp-accounting.
    root = importlib.import_module("scipy.optimize").brentq
    found = math.exp(root(above, math.log(low), math.log(high), xtol=_CLOSE / 4))
    while cost(found) > wanted:
        found *= 1 + _CLOSE / 2
    return min(found, high)


@functools.lru_cache(maxsize=64)
def versions_within(sampling: Sampling, noise: float, wanted: float, delta: float, accountant: Accountant) -> int:
    """How many versions, or visits where "bounded", cost at most so much; 10 million at most."""

    def within(count: int, by: Accountant) -> bool:
        return epsilon(sampling, noise, count, delta, by) <= wanted

    least = _counted(lambda count: within(count, "rdp"), 0)  # RDP bounds from above, so this many surely
    return _counted(lambda count: within(count, accountant), least) if accountant == "pld" else least


def _counted(enough: Callable[[int], bool], least: int) -> int:
    """The largest count that is still enough, where `least` is; counts only ever cost more."""
    step = max(1, least // 4)
    while least + step <= _MOST and enough(least + step):
        least, step = least + step, 2 * step
    low, high = least, min(least + step, _MOST + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if enough(middle) else (low, middle)
    return low


@functools.lru_cache(maxsize=256)
def _of_gaussian(noise: float, delta: float) -> float:
    return float(library().get_epsilon_gaussian(float(noise), delta))


def _by_divergences(sampling: Sampling, noise: float, count: int, delta: float) -> float:
    """Epsilon from Renyi's divergences: what the library's `compute_epsilon` gives, of all orders at once.

    It is asked for after every version, and the library, which goes from order to order, takes twenty times as long.

    Reference: Canonne, Kamath, Steinke, "The Discrete Gaussian for Differential Privacy", NeurIPS 2020, proposition 12.
    """
    first, place = divmod(int(count), _TOGETHER)
    return _of_several(sampling, noise, first * _TOGETHER, delta)[place]


_TOGETHER = 64
"""Versions whose epsilons are found at once, as long as one takes: they are asked for one after the other."""


@functools.lru_cache(maxsize=64)
def _of_several(sampling: Sampling, noise: float, first: int, delta: float) -> list[float]:
    """Epsilon after `first` versions, after one more, and so on."""
    each, offsets = _rdp_of_one(sampling, noise, delta)
    counts = np.maximum(1, np.arange(first, first + _TOGETHER))  # nothing is asked about none
    spent = counts[:, None] * each  # [_TOGETHER, A]
    # Close to nothing: delta <= sqrt(1 - e^-KL).
    found = np.where(delta**2 + np.expm1(-spent) > 0, 0.0, spent + offsets[0] - offsets[1])
    leasts: list[float] = np.maximum(0.0, found.min(axis=1)).tolist()
    return leasts


@functools.lru_cache(maxsize=64)
def _rdp_of_one(sampling: Sampling, noise: float, delta: float) -> tuple[np.ndarray, np.ndarray]:
    """What one version costs at each order [A], and what makes an epsilon of it [2, A]."""
    accountant = _divergences(sampling, noise, 1)
    stable = [(float(a), float(cost)) for a, cost in zip(accountant.orders, accountant.rdp, strict=True) if a > 1.01]
    offsets = [(math.log1p(-1 / a), math.log(delta * a) / (a - 1)) for a, _ in stable]
    return np.array([cost for _, cost in stable]), np.array(offsets).T


def _divergences(sampling: Sampling, noise: float, count: int) -> Any:
    """Renyi's divergences of so many versions."""
    dp = library()
    relation = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
    event = dp.PoissonSampledDpEvent(sampling.rate, dp.GaussianDpEvent(float(noise)))
    if sampling.law == "fixed_size":
        relation = dp.NeighboringRelation.REPLACE_ONE
        event = dp.SampledWithoutReplacementDpEvent(
            sampling.population, round(sampling.cohort), dp.GaussianDpEvent(float(noise) / 2)
        )
    accountant = dp.rdp.RdpAccountant(neighboring_relation=relation)
    accountant.compose(event, int(count))
    return accountant


@functools.lru_cache(maxsize=256)
def _by_pld(sampling: Sampling, noise: float, count: int, delta: float) -> float:
    # Closer by less than a thousandth, and ten times slower, where losses are small themselves.
    coarse = epsilon(sampling, noise, count, delta) >= 1
    return float(_losses(sampling, noise, count, interval=1e-3 if coarse else 1e-4).get_epsilon(delta))


def _losses(sampling: Sampling, noise: float, count: int, *, interval: float) -> Any:
    """The distribution of the privacy loss of so many versions."""
    dp = library()
    # A multiplier that is no plain float would silently take the place of the whole composition (dp-accounting 0.6.0).
    one = dp.PoissonSampledDpEvent(sampling.rate, dp.GaussianDpEvent(float(noise)))
    accountant = dp.pld.PLDAccountant(value_discretization_interval=interval)
    accountant.compose(dp.SelfComposedDpEvent(one, int(count)))
    return accountant


@functools.cache
def library() -> ModuleType:
    """The library dp-accounting.

    Raises:
        UserError: it is not installed.
    """
    try:
        dp = importlib.import_module("dp_accounting")
        for name in ("pld", "rdp"):
            importlib.import_module(f"dp_accounting.{name}")
    except ImportError:
        raise UserError(
            "dp without the package dp-accounting",
            expected="the extra privacy",
            why="what noise is worth in epsilon is computed by it",
            fix='pip install "polyrhythm[privacy]"',
        ) from None
    logging.getLogger("absl").addFilter(_said)
    return dp


def _said(record: logging.LogRecord) -> bool:
    """Whether a warning is of any use: not where an order is left out, as the bound by the others holds without it."""
    return "Excluding this order" not in record.getMessage() and "optimal order" not in record.getMessage()
