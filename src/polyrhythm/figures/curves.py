"""Accuracy, loss and rate: what the server's model was worth, over what it had cost by then."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from polyrhythm.base.errors import UserError
from polyrhythm.base.metric_names import in_words, is_between_0_and_1
from polyrhythm.figures.axes import SETS, Against
from polyrhythm.figures.bands import Value, curves_of, mean, rests
from polyrhythm.figures.figure import Chart, Figure, Options, needs
from polyrhythm.figures.marks import COUNT, LOSS, SHARE, Range, along, chart, methods, told, upright
from polyrhythm.figures.subject import Subject
from polyrhythm.runs.costs import score

WIDE = 400  # pixels of a panel that still has room for marks
FEW = 50  # points that still leave room for a mark at each
HEIGHT = 300
COSTS: tuple[Against, ...] = ("time", "joules", "bytes")


def curves(
    subject: Subject,
    value: Value,
    options: Options,
    measure: str,
    of: Range = Range(),  # noqa: B008
    *,
    against: Against | None = None,
    height: int = HEIGHT,
) -> Chart:
    """One curve for each method, with its band where it has several seeds.

    Args:
        subject: the runs.
        value: of a version.
        options: how it is drawn.
        measure: the title of the vertical axis.
        of: what the values can be.
        against: another horizontal axis than the options'.
        height: of the panel, pixels.
    """
    against = against or options.against
    rows, after = list[dict[str, Any]](), list[dict[str, Any]]()
    for name, members in subject.methods.items():
        steps = curves_of([subject.versions(run) for run in members], value, against)
        rows += [{"method": name, **point} for point in mean(steps)]
        after += [
            {"method": name, "seed": run.seed, **point}
            for run, points in zip(members, rests(steps), strict=False)  # none where one run says nothing
            for point in points
        ]
    return lines(subject, rows, options, measure, against, of, after=after, height=height)


def lines(
    subject: Subject,
    rows: Sequence[Mapping[str, Any]],
    options: Options,
    measure: str,
    against: Against,
    of: Range = Range(),  # noqa: B008
    *,
    after: Sequence[Mapping[str, Any]] = (),
    height: int = HEIGHT,
    axis: str | None = None,
) -> Chart:
    """The same from points that are known already: `method`, `x`, `y`, `low`, `high`.

    Args:
        subject: the runs.
        rows: the points of the means.
        options: how it is drawn.
        measure: the title of the vertical axis.
        against: the horizontal axis.
        of: what the values can be.
        after: points of single seeds behind the end of their mean: `method`, `seed`, `x`, `y`.
        height: of the panel, pixels.
        axis: another title of the horizontal axis.
    """
    import altair as alt

    color, dash = methods(subject.styles(options.theme), shown=len(subject.methods) > 1)
    # Against versions all seeds have the same places; elsewhere the mean itself is made of steps.
    shape: Any = "linear" if against == "version" else "step-after"
    x = along(against) if axis is None else along(against).title(axis)
    y, leaving, logarithmic = upright(measure, rows, of)
    tips = ["method:N", *told("x:Q", "y:Q")]
    few = len(rows) <= FEW * len(subject.methods) and against == "version" and options.width >= WIDE
    marks = chart(rows, options.width, height).mark_line(interpolate=shape, point={"size": 18} if few else False)
    if leaving:
        marks = marks.mark_line(interpolate=shape, clip=True)
    layers = [marks.encode(x=x, y=y, color=color, strokeDash=dash, tooltip=tips)]
    wide = {row["method"] for row in rows if row["high"] > row["low"]}
    if wide and not logarithmic:
        area = chart([row for row in rows if row["method"] in wide], options.width, height)
        bands = area.mark_area(interpolate=shape, opacity=0.18, clip=True).encode(
            x=x, y=alt.Y("low:Q", title=measure), y2="high:Q", color=color
        )
        layers.insert(0, bands)
    if after:
        alone = chart(after, options.width, height).mark_line(interpolate=shape, strokeWidth=0.8, clip=True)
        tips = ["method:N", "seed:N", *told("x:Q", "y:Q")]
        layers.append(alone.encode(x=x, y=y, color=color, detail="seed:N", tooltip=tips))
    if leaving:
        words = chart(leaving, options.width, height).mark_text(align="left", baseline="top", dx=4, fontSize=11)
        layers.append(words.encode(x=x, y=y, text="said:N", color=color))
    return layers[0] if len(layers) == 1 else alt.layer(*layers)


def column(row: Mapping[str, Any], name: str, after: int = -1) -> float | None:
    """What a column of a version says; None up to some version."""
    return None if row[name] is None or row["version"] <= after else float(row[name])


def _accuracy(subject: Subject, options: Options) -> Chart:
    value = functools.partial(score, headline=subject.headline, on=options.on)
    _check_set(subject, options, value)
    measure = f"{in_words(subject.headline)} on the {SETS[options.on]}"
    return curves(subject, value, options, measure, range_of(subject))


def _loss(subject: Subject, options: Options) -> Chart:
    value = functools.partial(score, headline="loss", on=options.on)
    _check_set(subject, options, value)
    return curves(subject, value, options, f"loss on the {SETS[options.on]}", LOSS)


def _training(subject: Subject, options: Options) -> Chart:
    return curves(subject, functools.partial(column, name="train_loss"), options, "loss while clients train", LOSS)


def _rate(subject: Subject, options: Options) -> Chart:
    return curves(subject, functools.partial(column, name="rate"), options, "local learning rate", COUNT)


def _costs(subject: Subject, options: Options) -> Chart:
    import altair as alt

    narrow = dataclasses.replace(options, width=max(160, (options.width - 60) // len(COSTS)))
    value = functools.partial(score, headline=subject.headline, on=options.on)
    _check_set(subject, options, value)
    measure = f"{in_words(subject.headline)} on the {SETS[options.on]}"
    of = range_of(subject)
    return alt.hconcat(
        *(
            curves(subject, value, narrow, "" if place else measure, of, against=cost, height=240)
            for place, cost in enumerate(COSTS)
        )
    )


def range_of(subject: Subject) -> Range:
    """What the headline metric can be."""
    return SHARE if is_between_0_and_1(subject.headline) else Range()


def _check_set(subject: Subject, options: Options, value: Value) -> None:
    if any(value(row) is not None for run in subject.runs for row in subject.versions(run)):
        return
    raise UserError(
        f"no version was judged on the {SETS[options.on]}",
        expected="runs that were",
        why="an empty picture would look like a result",
        fix='on="test", or run it with validation=0.1' if options.on == "validation" else 'on="validation"',
    )


_evaluated = needs(
    "versions",
    "test IS NOT NULL OR validation IS NOT NULL",
    "no version has been evaluated yet; wait for the first one",
)
FIGURES: Sequence[Figure] = (
    Figure(
        name="accuracy",
        title="Accuracy",
        about="The headline metric of the server's model as training goes on; the band is one standard deviation over "
        "seeds.",
        lacks=_evaluated,
        drawn=_accuracy,
        along=True,
        judged=True,
    ),
    Figure(
        name="loss",
        title="Loss",
        about="The loss of the server's model as training goes on; the band is one standard deviation over seeds.",
        lacks=_evaluated,
        drawn=_loss,
        along=True,
        judged=True,
    ),
    Figure(
        name="training_loss",
        title="Loss while training",
        about="The mean loss of the clients' models while they train, before the server puts them together.",
        lacks=needs("versions", "train_loss IS NOT NULL", "no client has trained yet"),
        drawn=_training,
        along=True,
    ),
    Figure(
        name="costs",
        title="What it costs",
        about="The headline metric over virtual time, energy and traffic, side by side.",
        lacks=_evaluated,
        drawn=_costs,
        judged=True,
    ),
    Figure(
        name="rate",
        title="Local learning rate",
        about="The learning rate that clients were given.",
        lacks=needs("versions", "rate IS NOT NULL", "no report has been accepted yet"),
        drawn=_rate,
        along=True,
    ),
)
