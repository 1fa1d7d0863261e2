"""What one method gives more than another, seed by seed, and how sure that is."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, kw_only=True)
class Difference:
    """The mean of paired differences, with an interval that covers the true mean at the given level.

    Args:
        mean: over the pairs; None without any.
        sd: their sample standard deviation; None for a single pair.
        low, high: the interval, by Student's t; None for a single pair, which says nothing of the spread, and where all
            pairs differ by the same and not by 0.
        n: pairs.
        level: of the interval.
        p: of the paired t-test: how often chance alone gives a mean as far from 0 as this, if there is no difference.
        holm: the same corrected for all tests that it was made with, by Holm's method.
    """

    mean: float | None
    sd: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    level: float = 0.95
    p: float | None = None
    holm: float | None = None

    @property
    def holds_zero(self) -> bool | None:
        """Whether the interval holds 0, so that neither is shown to be better; None without an interval."""
        return None if self.low is None or self.high is None else self.low <= 0.0 <= self.high

    @property
    def shown(self) -> bool:
        """Whether a difference is shown, also after the correction."""
        return self.holm is not None and self.holm < 1.0 - self.level


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
    n = len(values)
    if sd is None or (not sd and mean):  # as of two seeds that differ by one test sample each: no spread to judge by
        return Difference(mean=mean, sd=sd, n=n, level=level)
    error = sd / math.sqrt(n)
    reach = student_t(level, n - 1) * error
    p = two_sided(mean / error, n - 1) if sd else 1.0
    return Difference(mean=mean, sd=sd, low=mean - reach, high=mean + reach, n=n, level=level, p=p)


def corrected(found: Mapping[str, Difference]) -> dict[str, Difference]:
    """The same with `holm`, for as many tests as there are among them.

    Of m p-values in order, the i-th is multiplied by m - i + 1, and none is smaller than the one before: the chance
    that any test errs stays below the level, however they depend on each other.

    Reference: Holm, "A Simple Sequentially Rejective Multiple Test Procedure", Scandinavian Journal of Statistics 1979.
    """
    tested = sorted((one.p, name) for name, one in found.items() if one.p is not None)
    adjusted, least = dict[str, float](), 0.0
    for place, (p, name) in enumerate(tested):
        adjusted[name] = least = max(least, min(1.0, (len(tested) - place) * p))
    return {name: dataclasses.replace(one, holm=adjusted.get(name)) for name, one in found.items()}


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


def two_sided(t: float, freedom: int) -> float:
    """How often Student's variable is at least as far from 0 as t.

    >>> round(two_sided(4.3027, 2), 4)
    0.05

    Args:
        t: on either side.
        freedom: degrees of freedom, 1 or more.
    """
    return min(1.0, max(0.0, 1.0 - _within(math.atan(abs(t) / math.sqrt(freedom)), freedom)))


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
