"""What a run has cost its clients in privacy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from polyrhythm.base.metric_names import in_words
from polyrhythm.base.settings import canonical_json
from polyrhythm.figures.axes import SETS
from polyrhythm.figures.curves import curves
from polyrhythm.figures.figure import Chart, Figure, Options, needs
from polyrhythm.figures.marks import Range, chart, methods
from polyrhythm.figures.subject import Subject
from polyrhythm.runs.comparison import spread
from polyrhythm.runs.costs import On
from polyrhythm.runs.result_rule import read


def epsilon(row: Mapping[str, Any]) -> float | None:
    """Epsilon of all versions up to this one, by Renyi divergences."""
    value = (row["measures"] or {}).get("epsilon")
    return None if value is None else float(value)


def _epsilon(subject: Subject, options: Options) -> Chart:
    return curves(subject, epsilon, options, "epsilon", Range(least=0, zero=True))


def results_by_epsilon(subject: Subject, on: On) -> list[dict[str, Any]]:
    """A row for each method: `method`, without what hides clients, so that rows of one name differ in privacy alone.

    `x` is the mean epsilon of its runs' statements, None where there is no guarantee; `y` the mean final result, `low`
    and `high` one standard deviation around; `n` how many runs; and `whole` its own name.
    """
    found, firsts = [], dict[str, str]()
    for name, members in subject.methods.items():
        ends = [(run, read(subject.versions(run), subject.headline, "final", on)) for run in members]
        values = [float(value) for _, value in ends if value is not None]
        if not values:
            continue
        result = spread(values)
        costs = [run.summary.get("epsilon") for run, value in ends if value is not None]
        told = [float(cost) for cost in costs if cost is not None]
        sd = result["sd"] or 0.0
        found.append(
            {"method": _without_dp(name, members[0].config, firsts), "whole": name, "n": len(values)}
            | {"x": spread(told)["mean"] if len(told) == len(values) else None}
            | {"y": result["mean"], "low": result["mean"] - sd, "high": result["mean"] + sd}
        )
    return sorted(found, key=lambda row: (row["method"], row["x"] is None, row["x"] or 0.0))


def _without_dp(name: str, config: Mapping[str, Any], firsts: dict[str, str]) -> str:
    """A method without the part that hides clients: as it is written, or by the name of the first of them."""
    written = config.get("method")
    if isinstance(written, Mapping):
        others = [part for part in written.get("modifiers", ()) if part.get("name") != "Dp"]
        return firsts.setdefault(canonical_json({**written, "modifiers": others}), name)
    pieces = (written if isinstance(written, str) else name).split(" | ")
    return " | ".join(piece for piece in pieces if piece.partition("(")[0] != "dp") or name


def _results_by_epsilon(subject: Subject, options: Options) -> Chart:
    import altair as alt

    rows, size = results_by_epsilon(subject, options.on), (options.width, 260)
    looks = list(subject.styles(options.theme).values())
    color, _ = methods(dict(zip(dict.fromkeys(row["method"] for row in rows), looks, strict=False)), stroke=False)
    hidden, bare = [row for row in rows if row["x"] is not None], [row for row in rows if row["x"] is None]
    x = alt.X(
        "x:Q",
        title="epsilon",
        scale=alt.Scale(type="log", nice=False, padding=16),
        axis=alt.Axis(format="~g", tickCount=6),
    )
    y = alt.Y(
        "y:Q",
        title=f"final {in_words(subject.headline)} on the {SETS[options.on]}",
        scale=alt.Scale(zero=False, padding=8),
    )
    tips = [
        alt.Tooltip("whole:N", title="method"),
        alt.Tooltip("x:Q", format=".3~g", title="epsilon"),
        alt.Tooltip("y:Q", format=".4f", title=in_words(subject.headline)),
        alt.Tooltip("n:Q", title="runs"),
    ]
    return alt.layer(
        chart(bare, *size)
        .mark_rule(strokeDash=[4, 3], strokeWidth=1.6)
        .encode(y=y, color=color, tooltip=[tips[0], *tips[2:]]),
        chart(hidden, *size).mark_line(strokeWidth=1.6).encode(x=x, y=y, color=color),
        chart(hidden, *size).mark_rule(strokeWidth=1.3).encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=color),
        chart(hidden, *size).mark_point(filled=True, size=60, opacity=1).encode(x=x, y=y, color=color, tooltip=tips),
    )


def _no_statement(subject: Subject) -> str:
    if not any(run.summary.get("epsilon") is not None for run in subject.runs):
        return "no run has a privacy statement with noise; pipe dp(noise=1) onto a recipe, and wait for its end"
    if not any(subject.versions(run) for run in subject.runs):
        return "no version has been evaluated yet; wait for the first one"
    return ""


FIGURES: Sequence[Figure] = (
    Figure(
        name="results_by_epsilon",
        title="Results for privacy",
        about="The final result of each method against the epsilon of its statement, one standard deviation over "
        "seeds; joined are methods that differ in their privacy alone. Dashed: the same without a guarantee.",
        lacks=_no_statement,
        drawn=_results_by_epsilon,
        judged=True,
    ),
    Figure(
        name="epsilon",
        title="Privacy spent",
        about="Epsilon of all versions so far, by Renyi divergences; the statement of a run may be closer, and less.",
        lacks=needs(
            "versions",
            "json_extract(measures, '$.epsilon') IS NOT NULL",
            "nobody is hidden in these runs; pipe dp(noise=1) onto a recipe",
        ),
        drawn=_epsilon,
        along=True,
        curved=True,
    ),
)
