"""What one method gives more than another, seed by seed, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, kw_only=True)
class Difference:
    """The mean of paired differences, with an interval that covers the true mean at the given level.

    Args:
        mean: over the pairs; None without any.
        sd: their sample standard deviation; None for a single pair.
        low, high: the interval, by Student's t; None for a single pair, which says nothing of the spread.
        n: pairs.
        level: of the interval.
    """

    mean: float | None
    sd: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    level: float = 0.95


def difference(values: Sequence[float], level: float = 0.95) -> Difference:
    """Mean d, and d ± t s / sqrt(n), with s the sample deviation and t of n - 1 degrees of freedom.

    Exact where the differences are drawn from one normal distribution.

    >>> difference([0.01, 0.03, 0.02]).n
    3

    Args:
        values: a difference for each pair.
        level: how often such intervals cover the true mean, between 0 and 1.
    """
    if not values:
        return Difference(mean=None, level=level)
    mean, sd = mean_and_spread(values)
    if sd is None:
        return Difference(mean=mean, n=1, level=level)
    reach = student_t(level, len(values) - 1) * sd / math.sqrt(len(values))
    return Difference(mean=mean, sd=sd, low=mean - reach, high=mean + reach, n=len(values), level=level)


def mean_and_spread(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and sample standard deviation; None for that of a single value."""
    if len(values) == 1:
        return values[0], None
    if min(values) == max(values):  # whose sum may be rounded
        return values[0], 0.0
    mean = math.fsum(values) / len(values)
    return mean, math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))


def student_t(level: float, freedom: int) -> float:
    """The t that Student's variable stays within, on both sides of 0, with a probability.

    >>> round(student_t(0.95, 2), 4)
    4.3027

    Args:
        level: that probability, between 0 and 1.
        freedom: degrees of freedom, 1 or more.
    """
    low, high = 0.0, math.pi / 2
    for _ in range(64):  # until there is no double between them
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < level else (low, middle)
    return math.sqrt(freedom) * math.tan((low + high) / 2)


def _within(angle: float, freedom: int) -> float:
    """P(|T| <= sqrt(freedom) tan(angle)).

    Reference: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
    """
    sine, cosine, odd = math.sin(angle), math.cos(angle), freedom % 2
    term = (cosine if odd else 1.0) if freedom > 1 else 0.0
    total = term
    for k in range(2 + odd, freedom - 1, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
