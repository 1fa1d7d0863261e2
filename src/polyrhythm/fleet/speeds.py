"""Devices whose speed is drawn, each client's once and for all."""

from __future__ import annotations

import bisect
import functools
import math
from dataclasses import dataclass
from typing import final

import numpy as np

from polyrhythm.base.settings import Count, NonNegative, Positive
from polyrhythm.fleet.draws import normal_of, uniform_of
from polyrhythm.fleet.parts import Device, Devices, Place


@final
@dataclass(frozen=True, kw_only=True)
class Lognormal(Devices):
    """Seconds per sample are median * exp(sigma * z), z a standard normal number: few are much slower than the rest.

    sigma = 0 is exactly `uniform`. The same z whatever the settings, so comparisons between them are paired.

    Args:
        median: seconds to train on one sample; half of the devices are slower.
        sigma: standard deviation of the logarithm; with 1, one device in 20 takes more than 5 times the median.
    """

    median: NonNegative = 0.001
    sigma: NonNegative = 1.0

    def device(self, place: Place, client: int) -> Device:
        return Device(seconds_per_sample=self.median * math.exp(self.sigma * normal_of(place.seed, "speed", client)))


@final
@dataclass(frozen=True, kw_only=True)
class Zipf(Devices):
    """A device is k times slower than the reference, k = 1 .. slowest, with probability proportional to k ** -exponent.

    The law is cut off at `slowest` and normalised, so that any exponent will do: 0 makes all factors equally likely,
    and slowest = 1 is exactly `uniform`.

    Args:
        exponent: of the law; the larger, the fewer are slow.
        slowest: the largest factor.
        seconds_per_sample: of the reference, to train on one sample.

    Departure: Plato has the factors above its limit at the limit instead of leaving them out.

    Reference: the sleeping times of simulated clients in Plato, TL-System/plato, `simulation_distribution`.
    """

    exponent: NonNegative = 1.2
    slowest: Count = 60
    seconds_per_sample: NonNegative = 0.001

    def device(self, place: Place, client: int) -> Device:
        factor = 1 + bisect.bisect_right(self._ends, uniform_of(place.seed, "slowness", client))
        return Device(seconds_per_sample=self.seconds_per_sample * min(factor, self.slowest))

    @functools.cached_property
    def _ends(self) -> list[float]:
        """Where each factor ends in [0, 1]."""
        weights = np.arange(1, self.slowest + 1, dtype=np.float64) ** -self.exponent
        return list((np.cumsum(weights) / weights.sum()).tolist())


@final
@dataclass(frozen=True, kw_only=True)
class HalfNormal(Devices):
    """Seconds per sample are scale * |z|, z a standard normal number.

    Args:
        scale: seconds; the mean is 0.798 times as much.

    Departure: drawn once for a client and not anew for each visit, since a device stays the same.

    Reference: the training durations in the simulations of Nguyen et al., "Federated Learning with Buffered
    Asynchronous Aggregation", AISTATS 2022.
    """

    scale: NonNegative = 0.00125

    def device(self, place: Place, client: int) -> Device:
        return Device(seconds_per_sample=self.scale * abs(normal_of(place.seed, "speed", client)))


@final
@dataclass(frozen=True, kw_only=True)
class Exponential(Devices):
    """Seconds per sample are exponentially distributed.

    Args:
        mean: seconds.
    """

    mean: Positive = 0.001

    def device(self, place: Place, client: int) -> Device:
        return Device(seconds_per_sample=-self.mean * math.log1p(-uniform_of(place.seed, "speed", client)))
