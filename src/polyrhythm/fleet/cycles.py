"""Coming and going that repeats."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence


def cycle_span(toggles: Sequence[float], period: float, shift: float, now: float) -> tuple[bool, float]:
    """Whether somebody is there now, and until when, who comes and goes at the same moments of every period.

    The moments are the numbers shift + k * period + toggle, each computed in the one way, so that two answers never
    disagree about a moment by a rounding.

    Args:
        toggles: when it comes, goes, comes, goes, ... in a period, rising, an even number of them; none for never.
        period: seconds.
        shift: when a period begins.
        now: the moment that is asked about.
    """
    if not toggles:
        return False, math.inf
    many = len(toggles)

    def moment(j: int) -> float:
        cycle, i = divmod(j, many)
        return shift + cycle * period + toggles[i]

    cycle = math.floor((now - shift) / period)
    j = cycle * many + bisect.bisect_right(toggles, now - shift - cycle * period) - 1
    while moment(j + 1) <= now:  # the guess is right but for roundings
        j += 1
    while moment(j) > now:
        j -= 1
    return j % 2 == 0, moment(j + 1)
