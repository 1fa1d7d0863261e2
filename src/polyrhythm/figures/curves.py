"""Accuracy, loss and rate: what the server's model was worth, over what it had cost by then."""

from __future__ import annotations

import dataclasses
import functools
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from polyrhythm.base.errors import UserError
from polyrhythm.base.metric_names import FALLING, in_words, is_between_0_and_1
from polyrhythm.figures.axes import SETS, Against
from polyrhythm.figures.bands import Value, curves_of, mean, rests, single
from polyrhythm.figures.crowd import foremost
from polyrhythm.figures.figure import Chart, Figure, Options, needs
from polyrhythm.figures.lens import Log
from polyrhythm.figures.lines import HEIGHT, lines, taken
from polyrhythm.figures.marks import COUNT, LOSS, SHARE, Range
from polyrhythm.figures.subject import Subject
from polyrhythm.runs.costs import score

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
    turns: bool = True,
    falling: bool | None = None,
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
        turns: whether lines on each other are told apart by dashes.
        falling: whether less is better; None where neither is.
    """
    against = against or options.against
    steps = {
        name: curves_of([subject.versions(run) for run in members], value, against)
        for name, members in subject.methods.items()
    }
    notes = list[str]()
    if "x" in options.lens.log:
        if all(curve[-1][0] <= 0 for curves in steps.values() for curve in curves):
            log: Log = "y" if "y" in options.lens.log else ""
            options = dataclasses.replace(options, lens=dataclasses.replace(options.lens, log=log))
            notes.append("the horizontal axis is not logarithmic: all lies at 0")
        elif any(curve[0][0] <= 0 and options.lens.reaches(0.0) for curves in steps.values() for curve in curves):
            notes.append("what lies at 0 has no place on a logarithmic axis")
    rows, after = list[dict[str, Any]](), list[dict[str, Any]]()
    for name, members in subject.methods.items():
        rows += [{"method": name, **point} for point in mean(steps[name], options.lens)]
        apart = options.lens.seeds and len(members) > 1
        after += [
            {"method": name, "seed": run.seed, **point}
            for run, points in zip(
                members, (single if apart else rests)(steps[name], options.lens), strict=False
            )  # none where one run says nothing
            for point in points
        ]
    chosen = list[str]()
    if falling is not None and not options.live:
        ends = {name: statistics.fmean(c[-1][1] for c in curves) for name, curves in steps.items() if curves}
        chosen = foremost(ends, falling, options.baseline or next(iter(subject.methods)))
    notes += ["thin: single seeds"] if options.lens.seeds and after else []
    return lines(
        subject, rows, options, measure, against, of, after=after, height=height, notes=notes, turns=turns,
        chosen=chosen,
    )  # fmt: skip


def column(row: Mapping[str, Any], name: str, after: int = -1) -> float | None:
    """What a column of a version says; None up to some version."""
    return None if row[name] is None or row["version"] <= after else float(row[name])


def _accuracy(subject: Subject, options: Options) -> Chart:
    value = functools.partial(score, headline=subject.headline, on=options.on)
    _check_set(subject, options, value)
    measure = f"{in_words(subject.headline)} on the {SETS[options.on]}"
    return curves(subject, value, options, measure, range_of(subject), falling=subject.headline in FALLING)


def _loss(subject: Subject, options: Options) -> Chart:
    value = functools.partial(score, headline="loss", on=options.on)
    _check_set(subject, options, value)
    return curves(subject, value, options, f"loss on the {SETS[options.on]}", LOSS, falling=True)


def _training(subject: Subject, options: Options) -> Chart:
    value = functools.partial(column, name="train_loss")
    return curves(subject, value, options, "loss while clients train", LOSS, falling=True)


def _rate(subject: Subject, options: Options) -> Chart:
    return curves(subject, functools.partial(column, name="rate"), options, "local learning rate", COUNT)


def _costs(subject: Subject, options: Options) -> Chart:
    import altair as alt

    lens = dataclasses.replace(options.lens, span=None, log="y" if "y" in options.lens.log else "")
    narrow = dataclasses.replace(options, width=max(160, (options.width - 60) // len(COSTS)), lens=lens)
    value = functools.partial(score, headline=subject.headline, on=options.on)
    _check_set(subject, options, value)
    measure = f"{in_words(subject.headline)} on the {SETS[options.on]}"
    of = range_of(subject)
    how: dict[str, Any] = {"height": 240, "turns": False, "falling": subject.headline in FALLING}
    panels = [
        curves(subject, value, narrow, "" if place else measure, of, against=cost, **how)
        for place, cost in enumerate(COSTS)
    ]
    notes = dict.fromkeys(line for panel in panels for line in taken(panel))
    drawn: Chart = alt.hconcat(*panels)
    return drawn.properties(title=alt.Title([*notes])) if notes else drawn


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


def _one_rate(subject: Subject) -> str:
    rate = subject.only("rate")
    return "" if rate is None else f"{rate:g} in every version"


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
        curved=True,
        judged=True,
    ),
    Figure(
        name="loss",
        title="Loss",
        about="The loss of the server's model as training goes on; the band is one standard deviation over seeds.",
        lacks=_evaluated,
        drawn=_loss,
        along=True,
        curved=True,
        judged=True,
    ),
    Figure(
        name="training_loss",
        title="Loss while training",
        about="The mean loss of the clients' models while they train, before the server puts them together.",
        lacks=needs("versions", "train_loss IS NOT NULL", "no client has trained yet"),
        drawn=_training,
        along=True,
        curved=True,
    ),
    Figure(
        name="costs",
        title="What it costs",
        about="The headline metric over virtual time, energy and traffic, side by side.",
        lacks=_evaluated,
        drawn=_costs,
        judged=True,
        curved=True,
    ),
    Figure(
        name="rate",
        title="Local learning rate",
        about="The learning rate that clients were given.",
        lacks=needs("versions", "rate IS NOT NULL", "no report has been accepted yet"),
        drawn=_rate,
        flat=_one_rate,
        along=True,
        curved=True,
    ),
)
