"""What it costs to reach each level of the headline metric."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from polyrhythm.base.errors import UserError
from polyrhythm.base.metric_names import in_words
from polyrhythm.figures.axes import AXES, SETS, Against, across
from polyrhythm.figures.figure import Chart, Figure, Options, needs
from polyrhythm.figures.marks import chart, methods
from polyrhythm.figures.subject import Subject
from polyrhythm.runs.costs import On, score
from polyrhythm.runs.paired import mean_and_spread

Row = Mapping[str, Any]
MOST_LEVELS, HEIGHT = 60, 260
PANELS: Mapping[Against, str] = {"time": "time > 0", "bytes": "bytes_up + bytes_down > 0", "joules": "joules > 0"}
"""The costs that a figure has a panel for, if one of the runs had any."""


def levels(runs: Sequence[Sequence[Row]], headline: str, on: On) -> list[float]:
    """Round numbers from above what every initial model had, to the best that any run reached."""
    known = [[(row["version"], v) for row in rows if (v := score(row, headline, on)) is not None] for rows in runs]
    first = [value for scores in known for version, value in scores if version == 0]
    every = [value for scores in known for _, value in scores]
    if not every:
        return []
    low, high = max(first, default=min(every)), max(every)
    if high <= low:
        return []
    rough = (high - low) / MOST_LEVELS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(step * power for step in (1, 2, 5, 10) if step * power >= rough)
    found = (round(place * step, 12) for place in range(math.floor(low / step) + 1, math.floor(high / step + 1e-9) + 1))
    return [level for level in found if level > low]


def spent(rows: Sequence[Row], headline: str, goals: Sequence[float], against: Against, on: On) -> list[float | None]:
    """What a run had spent at its first evaluated version that is at least as good as each goal; None for no version.

    Args:
        rows: its versions.
        headline: the metric.
        goals: in increasing order.
        against: what is spent.
        on: the set that it is judged on.
    """
    found = list[float | None]()
    for row in rows:
        value = score(row, headline, on)
        while value is not None and len(found) < len(goals) and value >= goals[len(found)]:
            found.append(across(row, against))
        if len(found) == len(goals):
            break
    return found + [None] * (len(goals) - len(found))


def reaching(
    runs: Sequence[Sequence[Row]], headline: str, goals: Sequence[float], against: Against, on: On
) -> list[dict[str, Any]]:
    """A point for each goal that some run reached: `x`, the goal, `y`, the mean over those, `n` of `of`, `low`, `high`.

    A mean of fewer runs is another mean: those that are left are the quick ones. So points with another `n` are of
    another `part`.
    """
    costs = [spent(rows, headline, goals, against, on) for rows in runs]
    found, part = list[dict[str, Any]](), 0
    for goal, values in zip(goals, zip(*costs, strict=True), strict=True):
        there = [value for value in values if value is not None]
        if not there:
            break
        mean, sd = mean_and_spread(there)
        part += bool(found) and found[-1]["n"] != len(there)
        band = (sd or 0.0) if len(there) == len(runs) else 0.0
        found.append(
            {"x": goal, "y": mean, "n": len(there), "of": len(runs), "part": part}
            | {"low": max(0.0, mean - band), "high": mean + band}
        )
    return found


def panels(subject: Subject) -> list[Against]:
    """The costs that the runs had."""
    return [axis for axis, condition in PANELS.items() if subject.has("versions", condition)]


def _drawn(subject: Subject, options: Options) -> Chart:
    import altair as alt

    runs = {name: [subject.versions(run) for run in members] for name, members in subject.methods.items()}
    goals = levels([rows for those in runs.values() for rows in those], subject.headline, options.on)
    if not goals:
        raise UserError(
            f"no version is better than every initial model on the {SETS[options.on]}",
            expected="runs that learned something, judged on that set",
            why="there is no level of which the cost could be said",
            fix='on="test"' if options.on == "validation" else "let them train for longer",
        )
    axes: list[Against] = [*panels(subject), "version"]
    narrow = dataclasses.replace(options, width=max(150, (options.width - 60) // (1 + len(axes))))
    drawn = [_shares(subject, runs, goals, narrow)]
    for against in axes:
        rows = [
            {"method": name, **point}
            for name, those in runs.items()
            for point in reaching(those, subject.headline, goals, against, options.on)
        ]
        drawn.append(_panel(subject, rows, narrow, against))
    return alt.hconcat(*drawn)


def shares(
    runs: Mapping[str, Sequence[Sequence[Row]]], headline: str, goals: Sequence[float], on: On
) -> list[dict[str, Any]]:
    """How many of each method's runs reach each goal: `x`, the goal, `y`, their share, and `n` of `of`."""
    found = []
    for name, those in runs.items():
        costs = [spent(rows, headline, goals, "version", on) for rows in those]
        for goal, values in zip(goals, zip(*costs, strict=True), strict=True):
            n = sum(value is not None for value in values)
            found.append({"method": name, "x": goal, "y": n / len(those), "n": n, "of": len(those)})
    return found


def _shares(
    subject: Subject, runs: Mapping[str, Sequence[Sequence[Row]]], goals: Sequence[float], options: Options
) -> Chart:
    import altair as alt

    color, dash = methods(subject.styles(options.theme), shown=len(subject.methods) > 1)
    rows = shares(runs, subject.headline, goals, options.on)
    marks = chart(rows, options.width, HEIGHT).mark_line(interpolate="step-before")
    y = alt.Y("y:Q", title="share of runs that get there", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%"))
    tips = ["method:N", alt.Tooltip("x:Q", format=".4~g", title=in_words(subject.headline)), "n:Q", "of:Q"]
    return marks.encode(x=_level(subject, options), y=y, color=color, strokeDash=dash, tooltip=tips)


def _level(subject: Subject, options: Options) -> Any:
    import altair as alt

    title = f"{in_words(subject.headline)} on the {SETS[options.on]}"
    scale = alt.Scale(zero=False, nice=False)
    return alt.X("x:Q", title=title, scale=scale, axis=alt.Axis(tickCount=4, labelOverlap="greedy"))


def _panel(subject: Subject, rows: Sequence[Row], options: Options, against: Against) -> Chart:
    import altair as alt

    color, dash = methods(subject.styles(options.theme), shown=len(subject.methods) > 1)
    whole = [row for row in rows if row["n"] == row["of"]]
    few = [row for row in rows if row["n"] < row["of"]]
    title = "rounds to get there" if against == "version" else f"{AXES[against]} to get there"
    size = (options.width, HEIGHT)
    x = _level(subject, options)
    y = alt.Y("y:Q", title=title, axis=alt.Axis(labelExpr="format(datum.value, '~s')", tickCount=6))
    tips = [
        "method:N",
        alt.Tooltip("x:Q", format=".4~g", title=in_words(subject.headline)),
        alt.Tooltip("y:Q", format=",.4~g", title=title),
        alt.Tooltip("n:Q", title="runs that reach it"),
        alt.Tooltip("of:Q", title="of"),
    ]
    layers = []
    if wide := [row for row in whole if row["high"] > row["low"]]:
        area = chart(wide, *size).mark_area(opacity=0.18, clip=True, interpolate="step-before")
        layers.append(area.encode(x=x, y=alt.Y("low:Q", title=title), y2="high:Q", color=color))
    if whole:
        line = chart(whole, *size).mark_line(interpolate="step-before")
        layers.append(line.encode(x=x, y=y, color=color, strokeDash=dash, tooltip=tips))
    if few:
        thin = chart(few, *size).mark_line(interpolate="step-before", strokeWidth=0.8, point={"size": 12})
        layers.append(thin.encode(x=x, y=y, color=color, detail="part:N", tooltip=tips))
    return alt.layer(*layers)


_evaluated = needs(
    "versions",
    "version > 0 AND (test IS NOT NULL OR validation IS NOT NULL)",
    "no version has been evaluated yet; wait for the first one",
)


def _lacks(subject: Subject) -> str:
    if missing := _evaluated(subject):
        return missing
    runs = [subject.versions(run) for run in subject.runs]
    if levels(runs, subject.headline, "test") or levels(runs, subject.headline, "validation"):
        return ""
    return "no version is better than every initial model; let them train for longer"


FIGURES: Sequence[Figure] = (
    Figure(
        name="to_accuracy",
        title="What each level costs",
        about="For each level of the headline metric what it took until a version was as good for the first time: mean "
        "and one standard deviation over seeds. Thin: not all of its runs get there, and the mean is of those that do.",
        lacks=_lacks,
        drawn=_drawn,
        judged=True,
    ),
)
