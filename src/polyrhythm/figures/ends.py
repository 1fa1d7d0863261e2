"""Names at the ends of lines, so that a reader need not go from a legend to a line and back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

MOST = 6
"""Lines whose ends can be named: more are a column of words."""
APART = 14
"""Pixels from one name to the next."""
LONGEST = 32
"""Letters of a name that leaves the lines their room."""


def named_ends(
    rows: Sequence[Mapping[str, Any]], height: int, *, logarithmic: bool = False
) -> list[tuple[Mapping[str, Any], float]]:
    """The last point of each method, and how many pixels below it its name stands, so that no two names meet.

    None where there is one method, where there are too many, where a name is too long, and where lines end at
    several places: names would lie on the lines that go on.

    Args:
        rows: the points of lines: `method`, `x`, `y`, and the edges of bands, `low` and `high`.
        height: of the panel, in pixels.
        logarithmic: whether the vertical axis is; all values are above 0 then.
    """
    last: dict[str, Mapping[str, Any]] = {row["method"]: row for row in rows}
    if not 2 <= len(last) <= MOST or max(map(len, last)) > LONGEST or len({row["x"] for row in last.values()}) > 1:
        return []

    def up(value: float) -> float:
        return math.log(value) if logarithmic else value

    values = [up(row[key]) for row in rows for key in ("y", "low", "high") if not logarithmic or row[key] > 0]
    unit = (max(values) - min(values)) / height or 1.0
    order = sorted(last.values(), key=lambda row: row["y"])
    ends = [up(row["y"]) / unit for row in order]
    return [(row, end - place) for row, end, place in zip(order, ends, spread(ends), strict=True)]


def spread(places: Sequence[float], apart: float = APART) -> list[float]:
    """The places, from low to high, moved as little as leaves them so far apart: those that meet share their middle.

    >>> spread([0, 1, 50], apart=10)
    [-4.5, 5.5, 50.0]
    """
    groups = list[tuple[float, int]]()  # the middle of each, and how many it holds
    for place in places:
        middle, count = float(place), 1
        while groups and middle - groups[-1][0] < apart * (count + groups[-1][1]) / 2:
            before, held = groups.pop()
            middle, count = (middle * count + before * held) / (count + held), count + held
        groups.append((middle, count))
    return [middle + apart * (i - (count - 1) / 2) for middle, count in groups for i in range(count)]
