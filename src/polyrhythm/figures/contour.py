"""The score over two keys of a search."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, final

import altair as alt

from polyrhythm.figures.figure import Chart
from polyrhythm.figures.theme import Theme, config
from polyrhythm.figures.trial_marks import is_range, key_axis, nothing, points, ring, shape, titled, told
from polyrhythm.figures.trials import Trials, Tried, as_text, is_number, is_spread

_CELLS = 24  # of an interpolated picture, along each side
_QUARTERS = 4  # of a range beside a list
_SOFT = 1e-3  # so that a trial's own cell is not it alone


def contour(trials: Trials, theme: Theme, x: str, y: str) -> Chart:
    """Trials over two keys; behind them means of equal settings, or between the trials of ranges means by nearness.

    Only finished trials make the ground; a key that was listed has a column or a row for each of its values.

    Args:
        trials: with at least one score.
        theme: "light" or "dark".
        x, y: the keys.
    """
    there = [t for t in trials.tried if t.score is not None and x in t.setting and y in t.setting]
    if not there:
        raise nothing("no trial with both keys has a score")
    values = {key: [t.setting[key] for t in there] for key in (x, y)}
    finished = [t for t in there if t.state == "finished"]
    ranges = is_range(values[x]) and is_range(values[y])
    colour = alt.Color(
        "score:Q",
        title=trials.judged,
        scale=alt.Scale(
            scheme=alt.SchemeParams(name="viridis", extent=[0.0, 0.85] if theme == "light" else [0.25, 1.0]),
            reverse=theme == "light",
        ),
        legend=alt.Legend(format=".3f"),
    )
    if ranges:
        axes: dict[str, Any] = {"x": key_axis(alt.X, "a", x, values[x]), "y": key_axis(alt.Y, "b", y, values[y])}
        places = {key: list(of) for key, of in values.items()}
        cells = alt.Chart(alt.InlineData(values=_between(finished, x, y)))
        ground = cells.mark_rect().encode(**axes, x2="a1:Q", y2="b1:Q", color=colour)
    else:
        places = {key: _binned(of) for key, of in values.items()}
        order = {key: _order(of, places[key]) for key, of in values.items()}
        upright = alt.Axis(labelAngle=0)
        axes = {
            "x": alt.X("a:N", title=x, sort=order[x], axis=upright),
            "y": alt.Y("b:N", title=y, sort=order[y][::-1]),  # the least below
        }
        cells = alt.Chart(alt.InlineData(values=_means(there, places[x], places[y])))
        ground = cells.mark_rect().encode(**axes, color=colour)
    rows = [{"a": a, "b": b, **row} for a, b, row in zip(places[x], places[y], points(there), strict=True)]
    paper = config(theme)["background"]
    dots = alt.Chart(alt.InlineData(values=rows)).mark_point(
        filled=True, opacity=1, size=80, stroke=paper, strokeWidth=1.5
    )
    layers = [ground] if finished else []
    layers.append(dots.encode(**axes, color=colour, shape=shape(), tooltip=told(trials)))
    if trials.best is not None and trials.best in there:
        best = [row for row in rows if row["trial"] == trials.best.number]
        layers.append(ring(best, axes["x"], axes["y"], paper))
    return titled(layers, trials, f"{x} and {y}")


def _binned(values: Sequence[Any]) -> list[str]:
    """Values to be listed; numbers that are too many for that in quarters, called by their ends."""
    if not is_range(values):
        return [as_text(value) for value in values]
    order = sorted(values)
    ends = [order[round(i * (len(order) - 1) / _QUARTERS)] for i in range(_QUARTERS + 1)]
    place = [min(sum(value > end for end in ends[1:-1]), _QUARTERS - 1) for value in values]
    return [f"{ends[at]:.3g} to {ends[at + 1]:.3g}" for at in place]


def _order(values: Sequence[Any], places: Sequence[str]) -> list[str]:
    """Places by their values if these are numbers, else in the order in which they came."""
    pairs = list(zip(values, places, strict=True))
    return list(dict.fromkeys(place for _, place in (sorted(pairs) if is_number(values) else pairs)))


def _means(there: Sequence[Tried], across: Sequence[str], up: Sequence[str]) -> list[dict[str, Any]]:
    """The mean score of finished trials with each pair of places."""
    found: dict[tuple[str, str], list[float]] = {}
    for trial, pair in zip(there, zip(across, up, strict=True), strict=True):
        if trial.state == "finished":
            found.setdefault(pair, []).append(float(trial.score or 0.0))
    return [{"a": a, "b": b, "score": math.fsum(some) / len(some)} for (a, b), some in found.items()]


def _between(there: Sequence[Tried], x: str, y: str) -> list[dict[str, Any]]:
    """Means by nearness over a grid: a trial at distance d weighs 1 / d^2, where each key is as long as any other."""
    if not there:
        return []
    across, up = _Scale([t.setting[x] for t in there]), _Scale([t.setting[y] for t in there])
    at = [(across.place(t.setting[x]), up.place(t.setting[y]), float(t.score or 0.0)) for t in there]
    cells = []
    for i in range(_CELLS):
        for j in range(_CELLS):
            a, b = (i + 0.5) / _CELLS, (j + 0.5) / _CELLS
            weights = [1 / ((a - p) ** 2 + (b - q) ** 2 + _SOFT) for p, q, _ in at]
            mean = math.fsum(w * s for w, (_, _, s) in zip(weights, at, strict=True)) / math.fsum(weights)
            edges = {"a": across.value(i / _CELLS), "a1": across.value((i + 1) / _CELLS)}
            cells.append({**edges, "b": up.value(j / _CELLS), "b1": up.value((j + 1) / _CELLS), "score": mean})
    return cells


@final
class _Scale:
    """Scale: numbers as places between 0 and 1, and back; by their logarithms where they are spread."""

    def __init__(self, values: Sequence[float]) -> None:
        self._log = is_spread(values)
        low, high = (math.log(v) if self._log else float(v) for v in (min(values), max(values)))
        self._low, self._range = low, (high - low) or 1.0

    def place(self, value: float) -> float:
        """Where a number lies."""
        return ((math.log(value) if self._log else value) - self._low) / self._range

    def value(self, place: float) -> float:
        """The number at a place."""
        at = self._low + place * self._range
        return math.exp(at) if self._log else at
