"""Curves of several methods: each the mean over its seeds, with a band of one sample standard deviation."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from polyrhythm.figures.axes import Against, across
from polyrhythm.figures.thinning import MOST, thin
from polyrhythm.runs.paired import mean_and_spread

Row = Mapping[str, Any]
Value = Callable[[Row], float | None]
"""What a version is worth on the vertical axis; None where it says nothing."""


def band(runs: Sequence[Sequence[Row]], value: Value, against: Against) -> list[dict[str, Any]]:
    """The mean curve of a method's runs, as `x`, `y`, and `low` and `high`, one standard deviation below and above.

    The curve of a run is a step: what a version gave holds until the next one that says something. The mean is over
    all runs wherever it is drawn, so it begins with the last of them and ends with the first; `rests` are what follows.

    Args:
        runs: the versions of each run.
        value: of a version.
        against: the horizontal axis.
    """
    curves = [_curve(rows, value, against) for rows in runs]
    if not curves or not all(curves):
        return []
    first, last = max(curve[0][0] for curve in curves), min(curve[-1][0] for curve in curves)
    places = sorted({x for curve in curves for x, _ in curve if first <= x <= last})
    found = []
    for x in places:
        values = [curve[bisect.bisect_right(curve, (x, math.inf)) - 1][1] for curve in curves]
        mean, spread = mean_and_spread(values)
        found.append({"x": x, "y": mean, "low": mean - (spread or 0.0), "high": mean + (spread or 0.0)})
    return thin(found, ("y",) if len(curves) == 1 else ("y", "low", "high"))


def rests(runs: Sequence[Sequence[Row]], value: Value, against: Against) -> list[list[dict[str, float]]]:
    """What each run did after the first of them had ended, as `x` and `y`; nothing of a run that ends with the first.

    Args:
        runs: the versions of each run.
        value: of a version.
        against: the horizontal axis.
    """
    curves = [_curve(rows, value, against) for rows in runs]
    if not curves or not all(curves):
        return [[] for _ in runs]
    last = min(curve[-1][0] for curve in curves)
    found = []
    for curve in curves:
        here = bisect.bisect_right(curve, (last, math.inf))
        after = [(last, curve[here - 1][1]), *curve[here:]] if here < len(curve) else []
        found.append(thin([{"x": x, "y": y} for x, y in after], most=MOST // 4))
    return found


def _curve(rows: Sequence[Row], value: Value, against: Against) -> list[tuple[float, float]]:
    points = ((across(row, against), value(row)) for row in rows)
    return [(x, y) for x, y in points if x is not None and y is not None and math.isfinite(y)]
