"""How closely curves are looked at: logarithmic axes, a part of the horizontal one, smoothing, single seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, final, get_args

from polyrhythm.base.errors import UserError, unknown

Log = Literal["", "x", "y", "xy"]
"""Which axes are logarithmic."""

LOGS: tuple[Log, ...] = get_args(Log)
WIDEST = 9999
"""Recorded places that a curve is smoothed over, at most."""

Point = Mapping[str, Any]


@final
@dataclass(frozen=True, kw_only=True)
class Lens:
    """How closely curves are looked at. As it is made without arguments, it changes nothing.

    Args:
        log: which axes are logarithmic, where their values allow it.
        smooth: how many neighbouring places, odd, a line is the mean of; 1 for none.
        span: the part of the horizontal axis that is shown; None for all of it.
        seeds: whether single seeds are drawn thin beside their mean.

    Raises:
        UserError: an axis that there is not, or numbers that are none of these.
    """

    log: Log = ""
    smooth: int = 1
    span: tuple[float, float] | None = None
    seeds: bool = False

    def __post_init__(self) -> None:
        if self.log not in LOGS:
            raise unknown("logarithmic axis", self.log, LOGS, why="it says which axis is logarithmic")
        if isinstance(self.smooth, bool) or not isinstance(self.smooth, int) or not 1 <= self.smooth <= WIDEST:
            raise UserError(
                f"smooth = {self.smooth!r}",
                expected=f"a whole number, 1 to {WIDEST:,}",
                why="a smoothed line is the mean over so many neighbouring places",
                fix="smooth=5, for example; 1 leaves curves as they were recorded",
            )
        if self.span is not None and not (
            len(self.span) == 2 and all(math.isfinite(end) for end in self.span) and self.span[0] < self.span[1]
        ):
            raise UserError(
                f"span = {self.span!r}",
                expected="two numbers, the first of them smaller",
                why="they are where the horizontal axis begins and ends",
                fix="span=(10, 50), for example; without it, all of a curve is shown",
            )

    @property
    def plain(self) -> bool:
        """Whether it changes nothing."""
        return self == PLAIN

    @property
    def reach(self) -> tuple[float, float]:
        """The horizontal stretch that is kept: as much again on both sides, for whoever moves it by hand."""
        if self.span is None:
            return -math.inf, math.inf
        start, end = self.span
        return start - (end - start), end + (end - start)

    def reaches(self, x: float) -> bool:
        """Whether a place is in the part that is shown."""
        return self.span is None or self.span[0] <= x <= self.span[1]

    def shows(self, x: float) -> bool:
        """Whether a place is to be seen: one at 0 has no place on a logarithmic axis."""
        return self.reaches(x) and (x > 0 or "x" not in self.log)


PLAIN = Lens()
"""Curves as they are."""


def smoothed(points: Sequence[Mapping[str, Any]], window: int) -> list[dict[str, Any]]:
    """The points with `y` the mean over so many neighbours, and `raw` as it was.

    The window is centred; near an end it is as wide as there is room on both sides, so that ends stay where they are.
    """
    if window <= 1:
        return [dict(point) for point in points]
    sums = [0.0]
    for point in points:
        sums.append(sums[-1] + point["y"])
    found = []
    for place, point in enumerate(points):
        side = min(window // 2, place, len(points) - 1 - place)
        mean = (sums[place + side + 1] - sums[place - side]) / (2 * side + 1) if side else point["y"]
        found.append({**point, "y": mean, "raw": point["y"]})
    return found
