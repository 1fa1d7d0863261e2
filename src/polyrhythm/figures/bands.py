"""Curves of several methods: each the mean over its seeds, with a band of one sample standard deviation."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from polyrhythm.figures.axes import Against, across
from polyrhythm.figures.lens import PLAIN, Lens, smoothed
from polyrhythm.figures.thinning import MOST, thin
from polyrhythm.runs.paired import mean_and_spread

Row = Mapping[str, Any]
Value = Callable[[Row], float | None]
"""What a version is worth on the vertical axis; None where it says nothing."""


Curve = list[tuple[float, float]]
"""Where a run was and what it was worth there, from left to right."""


def band(runs: Sequence[Sequence[Row]], value: Value, against: Against, lens: Lens = PLAIN) -> list[dict[str, Any]]:
    """`mean` of the curves of a method's runs.

    Args:
        runs: the versions of each run.
        value: of a version.
        against: the horizontal axis.
        lens: how closely it is looked at.
    """
    return mean(curves_of(runs, value, against), lens)


def curves_of(runs: Sequence[Sequence[Row]], value: Value, against: Against) -> list[Curve]:
    """The curve of each run; none at all where one of them says nothing. Arguments as for `band`."""
    curves = [_curve(rows, value, against) for rows in runs]
    return curves if all(curves) else []


def mean(curves: Sequence[Curve], lens: Lens = PLAIN) -> list[dict[str, Any]]:
    """The mean curve, as `x`, `y`, and `low` and `high`, one standard deviation, `sd`, below and above; of `n` runs.

    The curve of a run is a step: what a version gave holds until the next one that says something. The mean is over
    all runs wherever it is drawn, so it begins with the last of them and ends with the first; `rests` are what follows.
    """
    if not curves:
        return []
    first, last = max(curve[0][0] for curve in curves), min(curve[-1][0] for curve in curves)
    places = sorted({x for curve in curves for x, _ in curve if first <= x <= last})
    found = list[dict[str, Any]]()
    for x in places:
        values = [curve[bisect.bisect_right(curve, (x, math.inf)) - 1][1] for curve in curves]
        middle, spread = mean_and_spread(values)
        around = {"low": middle - (spread or 0.0), "high": middle + (spread or 0.0)}
        found.append({"x": x, "y": middle, **around, "sd": spread, "n": len(curves)})
    return thin(within(smoothed(found, lens.smooth), lens), ("y",) if len(curves) == 1 else ("y", "low", "high"))


def within(points: list[dict[str, Any]], lens: Lens) -> list[dict[str, Any]]:
    """The points of the stretch that a lens keeps, and the next one on each side, so that lines leave the picture."""
    start, end = lens.reach
    kept = points
    if lens.span is not None:
        places = [point["x"] for point in points]
        kept = points[max(0, bisect.bisect_left(places, start) - 1) : bisect.bisect_right(places, end) + 1]
    return [point for point in kept if point["x"] > 0] if "x" in lens.log else kept


def single(curves: Sequence[Curve], lens: Lens) -> list[list[dict[str, Any]]]:
    """The curve of each run by itself, as `x` and `y`."""
    found = (within([{"x": x, "y": y} for x, y in curve], lens) for curve in curves)
    return [thin(points, most=MOST // 2) for points in found]


def rests(curves: Sequence[Curve], lens: Lens = PLAIN) -> list[list[dict[str, float]]]:
    """What each run did after the first of them had ended, as `x` and `y`; nothing of one that ends with the first."""
    last = min((curve[-1][0] for curve in curves), default=0.0)
    found = []
    for curve in curves:
        here = bisect.bisect_right(curve, (last, math.inf))
        after = [(last, curve[here - 1][1]), *curve[here:]] if here < len(curve) else []
        found.append(thin(within([{"x": x, "y": y} for x, y in after], lens), most=MOST // 4))
    return found


def _curve(rows: Sequence[Row], value: Value, against: Against) -> Curve:
    points = ((across(row, against), value(row)) for row in rows)
    return [(x, y) for x, y in points if x is not None and y is not None and math.isfinite(y)]
