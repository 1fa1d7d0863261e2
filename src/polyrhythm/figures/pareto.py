"""Results against costs: which methods no other one beats in both."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from polyrhythm.base.metric_names import in_words
from polyrhythm.figures.axes import AXES, SETS, Against, across
from polyrhythm.figures.crowd import MANY, set_apart
from polyrhythm.figures.figure import Chart, Figure, Options
from polyrhythm.figures.marks import chart, methods
from polyrhythm.figures.subject import Subject
from polyrhythm.figures.theme import ASIDE
from polyrhythm.figures.time_to import panels
from polyrhythm.runs import match
from polyrhythm.runs.comparison import spread
from polyrhythm.runs.costs import On
from polyrhythm.runs.result_rule import read


def points(subject: Subject, against: Against, on: On) -> list[dict[str, Any]]:
    """A point for each method: `x`, its mean cost at the end, `y`, its mean final result, one sd around, and `n`.

    `front` is whether no other method is at least as good for no more, and better in one of them. Of methods on other
    data or another fleet than the first, for which neither number means the same, it is None.
    """
    found = []
    first = next(iter(subject.methods.values()))[0].config
    for name, members in subject.methods.items():
        ends = []
        for run in members:
            rows = subject.versions(run)
            if rows and (value := read(rows, subject.headline, "final", on)) is not None:
                ends.append((across(rows[-1], against), value))
        if not ends:
            continue
        cost, result = spread([x for x, _ in ends]), spread([y for _, y in ends])
        found.append(
            {"method": name, "n": len(ends), "x": cost["mean"], "y": result["mean"]}
            | {"left": cost["mean"] - (cost["sd"] or 0.0), "right": cost["mean"] + (cost["sd"] or 0.0)}
            | {"low": result["mean"] - (result["sd"] or 0.0), "high": result["mean"] + (result["sd"] or 0.0)}
            | {"alike": match.paired(members[0].config, first)}
        )
    alike = [one for one in found if one["alike"]]
    return [{**one, "front": not any(_beats(other, one) for other in alike) if one["alike"] else None} for one in found]


def _beats(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    at_least = one["x"] <= other["x"] and one["y"] >= other["y"]
    return bool(at_least and (one["x"] < other["x"] or one["y"] > other["y"]))


def _drawn(subject: Subject, options: Options) -> Chart:
    import altair as alt

    axes, styles = panels(subject), subject.styles(options.theme)
    narrow = dataclasses.replace(options, width=max(170, (options.width - 60) // len(axes)))
    found = {against: points(subject, against, options.on) for against in axes}
    chosen = _chosen([*found.values()], options.baseline or next(iter(subject.methods)))
    if chosen:
        styles = set_apart(styles, chosen, options.theme)
        found = {against: sorted(rows, key=lambda row: row["method"] in chosen) for against, rows in found.items()}
    color, _ = methods(styles, stroke=False, told=chosen)
    pairs = enumerate(found.items())
    drawn: Chart = alt.hconcat(*(_panel(rows, subject.headline, narrow, a, color, not i) for i, (a, rows) in pairs))
    if not chosen:
        return drawn
    return drawn.properties(title=alt.Title([f"grey: {len(styles) - len(chosen)} others"]))


def _chosen(panels: Sequence[Sequence[Mapping[str, Any]]], baseline: str) -> list[str]:
    """Of very many methods the baseline, and those that no other beats in some panel, but no more than have hues."""
    results = {row["method"]: row["y"] for rows in panels for row in rows}
    if len(results) <= MANY:
        return []
    front = {row["method"] for rows in panels for row in rows if row["front"]} - {baseline}
    return [baseline, *sorted(front, key=lambda name: -results[name])[: MANY - 1]]


def _panel(
    rows: Sequence[Mapping[str, Any]], headline: str, options: Options, against: Against, color: Any, named: bool
) -> Chart:
    import altair as alt

    size = (options.width, 260)
    axis = alt.Axis(labelExpr="format(datum.value, '~s')", tickCount=5, labelOverlap="greedy")
    x = alt.X("x:Q", title=AXES[against], scale=alt.Scale(zero=False, padding=8), axis=axis)
    title = f"final {in_words(headline)} on the {SETS[options.on]}" if named else ""
    y = alt.Y("y:Q", title=title, scale=alt.Scale(zero=False, padding=8))
    tips = [
        "method:N",
        alt.Tooltip("x:Q", format=",.4~g", title=AXES[against]),
        alt.Tooltip("y:Q", format=".4f", title=in_words(headline)),
        alt.Tooltip("n:Q", title="runs"),
    ]
    grey = ASIDE[options.theme]
    front = sorted((row for row in rows if row["front"]), key=lambda row: row["x"])
    layers = [
        chart(front, *size).mark_line(interpolate="step-after", strokeDash=[4, 3], color=grey).encode(x=x, y=y),
        chart(rows, *size).mark_rule(strokeWidth=1.3).encode(x=alt.X("left:Q"), x2="right:Q", y=y, color=color),
        chart(rows, *size).mark_rule(strokeWidth=1.3).encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=color),
    ]
    for filled in (True, False):
        if not (these := [row for row in rows if bool(row["front"]) is filled]):
            continue
        mark = chart(these, *size).mark_point(filled=filled, size=80, opacity=1, strokeWidth=2)
        layers.append(mark.encode(x=x, y=y, color=color, tooltip=tips))
    return alt.layer(*layers)


def _lacks(subject: Subject) -> str:
    if len(subject.methods) < 2:
        return "there is one method; choose runs of another one, too"
    if not subject.has("versions", "version > 0 AND (test IS NOT NULL OR validation IS NOT NULL)"):
        return "no version has been evaluated yet; wait for the first one"
    return "" if panels(subject) else "nothing was counted that costs; run it with a fleet, such as --fleet tiers"


FIGURES: Sequence[Figure] = (
    Figure(
        name="pareto",
        title="Results against costs",
        about="The final result of each method against what its runs cost in all, one standard deviation both ways. "
        "Filled and joined: no other method is as good for less.",
        lacks=_lacks,
        drawn=_drawn,
        judged=True,
    ),
)
