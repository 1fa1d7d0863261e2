"""Noise whose later draws take back a part of earlier ones, so that less of it is left in the sum of many versions.

With c_k = binom(2k, k) / 4^k, and C the lower triangular matrix of T versions with C[t, j] = c_(t-j) / d_j within a
band of b, d_j the length of its column, the noise of the versions is y = C^-1 z for independent z:

    w_t = z_t - sum_{j=1..min(t, b-1)} c_j w_(t-j)          y_t = d_t w_t          d_t = |c_0 .. c_(min(b, T-t)-1)|

A client that is in versions at least b apart touches columns of C that do not overlap, each of length 1: of k visits
all together are one Gaussian mechanism of noise z / sqrt(k). b = 1 is independent noise.

Reference: Choquette-Choo et al., "(Amplified) Banded Matrix Factorization: A unified approach to private training",
NeurIPS 2023; the square root of the sums is that of Fichtenberger, Henzinger, Upadhyay, "Constant matters: Fine-grained
Error Bound on Differentially Private Continual Observation", ICML 2023.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from torch import Tensor


@functools.lru_cache(maxsize=64)
def coefficients(bands: int) -> tuple[float, ...]:
    """c_0 .. c_(bands-1): 1, 1/2, 3/8, 5/16, …"""
    found = [1.0]
    for k in range(1, bands):
        found.append(found[-1] * (2 * k - 1) / (2 * k))
    return tuple(found)


def length(bands: int, version: int, versions: int) -> float:
    """d_t, the length of a column.

    Args:
        bands: b.
        version: t, from 0.
        versions: T.
    """
    return math.hypot(*coefficients(max(1, min(bands, versions - version))))


def after(fresh: Tensor, earlier: Sequence[Tensor], bands: int) -> Tensor:
    """w_t, from z_t and the earlier w, the latest first; `fresh` is changed, and returned."""
    for coefficient, vector in zip(coefficients(bands)[1:], earlier, strict=False):
        fresh.sub_(vector, alpha=coefficient)
    return fresh
