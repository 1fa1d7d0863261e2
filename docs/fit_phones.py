"""Fits the distributions of the fleet `phones` to a file of device capacities, and says how well they fit.

python docs/fit_phones.py client_device_capacity.csv

The file is in FedScale's form, as `device_trace` reads it. It is not part of this repository. Times per sample: two
lognormal distributions, by expectation maximisation. Links: one lognormal distribution, by mean and standard deviation
of the logarithm. Goodness of fit is the Kolmogorov-Smirnov distance D, the largest difference between the shares of
devices below a value in the file and in the fit.

The availability of `phones` is no fit to a file but the method of moments on three averages over the 107,749 clients of
FedScale's client_behave_trace: 79,687.61 s there of 393,232.30 s recorded, in 20.81 stretches.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from statistics import NormalDist

import numpy as np

from polyrhythm.fleet import DeviceTrace
from polyrhythm.fleet import sources as shipped

ACTIVE, RECORDED, STRETCHES = 79_687.61, 393_232.30, 20.81


def main(path: str) -> None:
    """Prints the fits, each with its D and that of the rounded numbers in the package."""
    table = DeviceTrace(path=path).table
    times, rates = table[:, 0], table[:, 1]
    print(f"{len(table)} devices: {_range(times)} ms per sample, {_range(rates)} kbit/s")
    print(f"correlation of the logarithms {np.corrcoef(np.log(times), np.log(rates))[0, 1]:.2f}")
    median, sigma = lognormal(times)
    alone = distance(times, mixture([median], [sigma], [1.0]))
    print(f"time, one lognormal:   median {median:.2f} ms, sigma {sigma:.4f}; D = {alone:.3f}")
    medians, sigmas, shares = two_lognormals(times)
    two = distance(times, mixture(medians, sigmas, shares))
    print(f"time, two lognormals:  medians {_list(medians)} ms, sigmas {_list(sigmas)}, shares {_list(shares)}", end="")
    print(f"; D = {two:.3f}")
    rounded = mixture([shipped.FAST_MS, shipped.SLOW_MS], shipped.SPREAD, shipped.SHARES)
    print(f"  as in the package:   D = {distance(times, rounded):.3f}")
    median, sigma = lognormal(rates)
    print(f"link, one lognormal:   median {median:.1f} kbit/s, sigma {sigma:.4f}; D = ", end="")
    print(f"{distance(rates, mixture([median], [sigma], [1.0])):.3f}")
    rounded = mixture([shipped.KBPS], [shipped.KBPS_SIGMA], [1.0])
    print(f"  as in the package:   D = {distance(rates, rounded):.3f}")
    print(f"  D of 5 % of samples of this size from a lognormal that is fitted to them: {critical(len(table)):.3f}")
    on, off = ACTIVE / STRETCHES, (RECORDED - ACTIVE) / STRETCHES
    print(f"availability: there for {ACTIVE / RECORDED:.4f} of the time; mean_on {on:.0f} s, mean_off {off:.0f} s")


def lognormal(values: np.ndarray) -> tuple[float, float]:
    """Median, and standard deviation of the logarithm."""
    logs = np.log(values)
    return float(np.exp(logs.mean())), float(logs.std())


def two_lognormals(values: np.ndarray, steps: int = 2000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Medians, standard deviations of the logarithm and shares of two lognormal distributions, the faster one first."""
    logs = np.log(values)[:, None]
    means, sigmas, shares = np.quantile(logs, [0.25, 0.75]), np.full(2, logs.std() / 2), np.full(2, 0.5)
    for _ in range(steps):
        densities = shares / sigmas * np.exp(-0.5 * ((logs - means) / sigmas) ** 2)
        weights = densities / densities.sum(axis=1, keepdims=True)
        many = weights.sum(axis=0)
        means = (weights * logs).sum(axis=0) / many
        sigmas = np.sqrt((weights * (logs - means) ** 2).sum(axis=0) / many)
        shares = many / len(logs)
    return np.exp(means), sigmas, shares


def mixture(medians: object, sigmas: object, shares: object) -> Callable[[float], float]:
    """The share of a mixture of lognormal distributions below a value."""
    parts = [(NormalDist(np.log(m), s), w) for m, s, w in zip(medians, sigmas, shares, strict=True)]  # type: ignore[call-overload]
    return lambda value: sum(weight * law.cdf(np.log(value)) for law, weight in parts)


def distance(values: np.ndarray, below: Callable[[float], float]) -> float:
    """The Kolmogorov-Smirnov distance."""
    distinct, counts = np.unique(values, return_counts=True)
    found, fitted = np.cumsum(counts) / len(values), np.array([below(value) for value in distinct])
    return float(max(np.abs(found - fitted).max(), np.abs(np.append(0.0, found[:-1]) - fitted).max()))


def critical(many: int, tries: int = 2000) -> float:
    """The distance that one in twenty samples of this size exceeds, although it is what it is fitted as."""
    rng = np.random.Generator(np.random.PCG64(0))
    found = []
    for _ in range(tries):
        values = np.exp(rng.standard_normal(many))
        median, sigma = lognormal(values)
        found.append(distance(values, mixture([median], [sigma], [1.0])))
    return float(np.quantile(found, 0.95))


def _range(values: np.ndarray) -> str:
    return f"{values.min():,.0f} to {values.max():,.0f} (mean {values.mean():,.1f})"


def _list(values: np.ndarray) -> str:
    return " and ".join(f"{value:.4g}" for value in values)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(sys.argv[1])
