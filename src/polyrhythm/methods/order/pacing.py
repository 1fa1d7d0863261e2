"""Pacing functions: how many of n things, easiest first, are in use after s of T steps.

With b the share at the start and a the share of the steps after which everything is in use:

    linear       n*b + n*(1 - b) * s / (a*T)
    quadratic    n*b + n*(1 - b) * (s / (a*T)) ** 2
    root         n*b + n*(1 - b) * sqrt(s / (a*T))
    step         n*b + n * floor(s / (a*T))
    exponential  n*b + n*(1 - b) * (e**(10 s / (a*T)) - 1) / (e**10 - 1)
    log          n*b + n*(1 - b) * (1 + 0.1 * ln(s / (a*T) + e**-10))

rounded down, at least 1 and at most n. The paper's table 5 prints N - b for N(1 - b), and a denominator that makes the
exponential constant; `printed=True` gives those.

Reference: "When do curricula work in federated learning?", ICCV 2023, table 5; corrected after Wu, Dyer, Neyshabur,
"When Do Curricula Work?", ICLR 2021, from which they come.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal, final

from annotated_types import Gt, Le

from polyrhythm.base.settings import NonNegative, Settings

# Products that are whole numbers must not be rounded down for the last bit of a float: 0.29 * 100 is one.
_HAIR = 1e-9

Family = Literal["linear", "quadratic", "root", "step", "exponential", "log"]


@final
@dataclass(frozen=True, kw_only=True)
class Pacing(Settings):
    """How quickly everything comes into use.

    Args:
        family: shape of the curve.
        a: share of the steps after which everything is in use, >= 0 (0: from the start).
        b: share in use at the start, > 0.
        printed: the formulas as printed in the paper's table 5.
    """

    family: Family = "linear"
    a: NonNegative = 0.8
    b: Annotated[float, Gt(0), Le(1)] = 0.2
    printed: bool = False

    def count(self, total: int, step: int, steps: int) -> int:
        """How many of `total` are in use at `step` of `steps`.

        >>> Pacing(a=0.8, b=0.2).count(500, 0, 500), Pacing(a=0.8, b=0.2).count(500, 400, 500)
        (100, 500)
        """
        horizon = self.a * steps
        if horizon <= 0:
            return total
        way = step / horizon
        room = total - self.b if self.printed else total * (1 - self.b)
        if self.family == "step":
            raw = total * self.b + total * math.floor(way + _HAIR)
        elif self.family == "exponential" and self.printed:
            # The printed denominator equals the numerator; at step 0 it is 0 / 0, read as its limit.
            raw = total * self.b + room
        else:
            raw = total * self.b + room * self._shape(way)
        return max(1, min(total, math.floor(raw + _HAIR)))

    def _shape(self, way: float) -> float:
        if self.family == "linear":
            return way
        if self.family == "quadratic":
            return way**2
        if self.family == "root":
            return math.sqrt(way)
        if self.family == "exponential":
            return math.expm1(min(10 * way, 700.0)) / math.expm1(10)
        return 1 + 0.1 * math.log(way + math.exp(-10))
