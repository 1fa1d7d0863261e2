"""Accuracy, loss and rate: what the server's model was worth, over what it had cost by then."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from polyrhythm.figures.axes import AXES, SETS, Against
from polyrhythm.figures.bands import Value, band
from polyrhythm.figures.figure import Chart, Figure, Options
from polyrhythm.figures.marks import along, chart, methods
from polyrhythm.figures.subject import Subject
from polyrhythm.runs.costs import score

FEW = 50  # points that still leave room for a mark at each
HEIGHT = 300
COSTS: tuple[Against, ...] = ("time", "joules", "bytes")


def curves(
    subject: Subject,
    value: Value,
    options: Options,
    measure: str,
    *,
    against: Against | None = None,
    height: int = HEIGHT,
) -> Chart:
    """One curve for each method, with its band where it has several seeds."""
    import altair as alt

    against = against or options.against
    rows = rows_of(subject, value, against)
    color, dash = methods(subject.styles(options.theme), shown=len(subject.methods) > 1)
    # Against versions all seeds have the same places; elsewhere the mean itself is made of steps.
    shape: Any = "linear" if against == "version" else "step-after"
    x = along(against)
    y = alt.Y("y:Q", title=measure, scale=alt.Scale(zero=False))
    told = [
        alt.Tooltip("method:N"),
        alt.Tooltip("x:Q", title=AXES[against]),
        alt.Tooltip("y:Q", title=measure, format=".4~g"),
    ]
    lines = chart(rows, options.width, height).mark_line(interpolate=shape, point=len(rows) <= FEW).encode(
        x=x, y=y, color=color, strokeDash=dash, tooltip=told
    )  # fmt: skip
    spread = [row for row in rows if row["high"] > row["low"]]
    if not spread:
        return lines
    wide = {name for name in subject.methods if any(row["method"] == name for row in spread)}
    area = chart([row for row in rows if row["method"] in wide], options.width, height)
    bands = area.mark_area(interpolate=shape, opacity=0.2).encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=color)
    return alt.layer(bands, lines)


def rows_of(subject: Subject, value: Value, against: Against) -> list[dict[str, Any]]:
    """The points of all methods."""
    return [
        {"method": name, **point}
        for name, members in subject.methods.items()
        for point in band([subject.versions(run) for run in members], value, against)
    ]


def _accuracy(subject: Subject, options: Options) -> Chart:
    value = functools.partial(score, headline=subject.headline, on=options.on)
    return curves(subject, value, options, f"{_words(subject.headline)} on the {SETS[options.on]}")


def _loss(subject: Subject, options: Options) -> Chart:
    value = functools.partial(score, headline="loss", on=options.on)
    return curves(subject, value, options, f"loss on the {SETS[options.on]}")


def _column(row: Mapping[str, Any], column: str) -> float | None:
    return None if row[column] is None else float(row[column])


def _training(subject: Subject, options: Options) -> Chart:
    return curves(subject, functools.partial(_column, column="train_loss"), options, "loss while clients train")


def _rate(subject: Subject, options: Options) -> Chart:
    return curves(subject, functools.partial(_column, column="rate"), options, "local learning rate")


def _costs(subject: Subject, options: Options) -> Chart:
    import altair as alt

    narrow = dataclasses.replace(options, width=max(160, (options.width - 60) // len(COSTS)))
    value = functools.partial(score, headline=subject.headline, on=options.on)
    measure = f"{_words(subject.headline)} on the {SETS[options.on]}"
    titles = (measure, "", "")
    panels = zip(COSTS, titles, strict=True)
    return alt.hconcat(*(curves(subject, value, narrow, title, against=cost, height=240) for cost, title in panels))


def _words(name: str) -> str:
    return name.replace("_", " ")


def _not_evaluated(subject: Subject) -> str:
    if subject.has("versions", "test IS NOT NULL OR validation IS NOT NULL"):
        return ""
    return "no version has been evaluated yet; wait for the first one"


def _no_training(subject: Subject) -> str:
    return "" if subject.has("versions", "train_loss IS NOT NULL") else "no client has trained yet"


def _no_rate(subject: Subject) -> str:
    return "" if subject.has("versions", "rate IS NOT NULL") else "no report has been accepted yet"


FIGURES: Sequence[Figure] = (
    Figure(
        name="accuracy",
        title="Accuracy",
        about="The headline metric of the server's model as training goes on; the band is one standard deviation over "
        "seeds.",
        lacks=_not_evaluated,
        drawn=_accuracy,
        along=True,
        judged=True,
    ),
    Figure(
        name="loss",
        title="Loss",
        about="The loss of the server's model as training goes on; the band is one standard deviation over seeds.",
        lacks=_not_evaluated,
        drawn=_loss,
        along=True,
        judged=True,
    ),
    Figure(
        name="training_loss",
        title="Loss while training",
        about="The mean loss of the clients' models while they train, before the server puts them together.",
        lacks=_no_training,
        drawn=_training,
        along=True,
    ),
    Figure(
        name="costs",
        title="What it costs",
        about="The headline metric over virtual time, energy and traffic, side by side.",
        lacks=_not_evaluated,
        drawn=_costs,
        judged=True,
    ),
    Figure(
        name="rate",
        title="Local learning rate",
        about="The learning rate that clients were given.",
        lacks=_no_rate,
        drawn=_rate,
        along=True,
    ),
)
