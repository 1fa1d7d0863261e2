"""Figures of runs: one specification in Vega-Lite for PNG, SVG, PDF, pages, reports and the dashboard.

from polyrhythm import figures
runs = pr.compare("runs").runs
[figure.name for figure in figures.applicable(runs)]
figures.save(figures.draw("accuracy", runs, against="time"), "accuracy.png")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from polyrhythm.base.errors import UserError, unknown
from polyrhythm.figures import (
    classes,
    clients,
    clock,
    cohorts,
    curricula,
    curves,
    devices,
    effort,
    forest,
    groups,
    heard,
    own_models,
    pareto,
    participation,
    privacy,
    time_to,
    updates,
)
from polyrhythm.figures.axes import AXES, Against
from polyrhythm.figures.figure import Chart, Figure, Options
from polyrhythm.figures.lens import LOGS, Lens, Log
from polyrhythm.figures.live import settled
from polyrhythm.figures.marks import titled, unchecked
from polyrhythm.figures.saving import check_file, drawable, save
from polyrhythm.figures.subject import Subject, colours
from polyrhythm.figures.theme import THEMES, Theme, config
from polyrhythm.runs.costs import On
from polyrhythm.runs.recorded import RecordedRun

__all__ = [
    "AXES",
    "CATALOGUE",
    "LOGS",
    "Against",
    "Chart",
    "Figure",
    "Subject",
    "Theme",
    "applicable",
    "check_file",
    "colours",
    "draw",
    "drawable",
    "find",
    "flat",
    "save",
    "sorted_out",
    "why_not",
]

_ALL = (
    *(*curves.FIGURES, *cohorts.FIGURES, *participation.FIGURES, *heard.FIGURES, *effort.FIGURES),
    *(*clients.FIGURES, *own_models.FIGURES, *classes.FIGURES, *devices.FIGURES),
    *(*clock.FIGURES, *curricula.FIGURES, *groups.FIGURES, *updates.FIGURES),
    *privacy.FIGURES,
    *(*time_to.FIGURES, *pareto.FIGURES, *forest.FIGURES),
)
_ORDER = (
    *("accuracy", "loss", "costs", "to_accuracy", "pareto", "differences", "training_loss", "groups"),
    *("client_results", "own_models", "fairness", "client_gains", "worst_tenth", "client_map", "device_gap"),
    *("availability", "classes", "class_map", "confusion"),
    *("cohort", "critical_periods", "participation", "visits", "heard", "lorenz", "samples_behind", "samples_heard"),
    *("epochs", "drift", "timeline"),
    *("staleness", "staleness_over_time", "buffer", "energy", "battery"),
    *("labels", "pacing", "sample_losses", "samples"),
    *("budgets", "update_similarity", "estimation_error", "rate", "epsilon", "results_by_epsilon"),
)
CATALOGUE: Mapping[str, Figure] = {name: figure for name in _ORDER for figure in _ALL if figure.name == name}
"""Every figure by name, in the order in which a reader wants them."""


def find(name: str) -> Figure:
    """A figure by its name.

    Raises:
        UserError: there is none of that name; says which are near.
    """
    if name not in CATALOGUE:
        raise unknown("figure", name, CATALOGUE, why="the name decides what is drawn")
    return CATALOGUE[name]


def applicable(runs: Sequence[RecordedRun] | Subject) -> list[Figure]:
    """The figures that have something to show for these runs, in the order of the catalogue. Draws nothing.

    Those that would show one value throughout are left out, and can be drawn all the same; `flat` says which.

    Raises:
        UserError: no run, or runs that are judged by different metrics.
    """
    return sorted_out(runs)[0]


def flat(runs: Sequence[RecordedRun] | Subject) -> dict[Figure, str]:
    """The figures that could be drawn of these runs and would say nothing, and the one value that they would show.

    Raises:
        UserError: no run, or runs that are judged by different metrics.
    """
    return sorted_out(runs)[1]


def sorted_out(runs: Sequence[RecordedRun] | Subject) -> tuple[list[Figure], dict[Figure, str]]:
    """Both at once.

    Raises:
        UserError: no run, or runs that are judged by different metrics.
    """
    subject = _subject(runs)
    found = {figure: figure.flat(subject) for figure in CATALOGUE.values() if not figure.lacks(subject)}
    return [figure for figure, why in found.items() if not why], {figure: why for figure, why in found.items() if why}


def why_not(name: str, runs: Sequence[RecordedRun] | Subject) -> str:
    """Why a figure has nothing to show for these runs, and what to do; "" if it has something.

    Raises:
        UserError: no such figure, no run, or runs that are judged by different metrics.
    """
    return find(name).lacks(_subject(runs))


def draw(
    name: str,
    runs: Sequence[RecordedRun] | Subject,
    *,
    against: Against = "version",
    on: On = "test",
    theme: Theme = "light",
    width: int | None = None,
    group_by: str | None = None,
    baseline: str | None = None,
    log: Log = "",
    smooth: int = 1,
    span: tuple[float, float] | None = None,
    seeds: bool = False,
    live: bool = False,
    legend: bool = False,
) -> Chart:
    """Draws a figure of some runs: seeds of one method as mean and band, each method in its colour.

    Args:
        name: of the figure.
        runs: one or more; a `Subject` of them if several figures are drawn, so that each record is read once.
        against: the horizontal axis of curves; other figures have their own.
        on: the set that results are of, "test" or "validation".
        theme: "light" or "dark".
        width: of a panel, in pixels; None for what suits a page.
        group_by: the dotted key of a setting; then its values take the place of methods.
        baseline: the method that others are compared with, where a figure does that; None for the first.
        log: which axes of curves are logarithmic, where their values allow it: "x", "y" or "xy".
        smooth: how many neighbouring places each point of a curve is the mean of; what was recorded stays, faint.
        span: where the horizontal axis of curves begins and ends.
        seeds: whether each seed is drawn thin beside the mean of its method.
        live: whether a reader can hide methods, zoom, and read values, where the figure is of lines; for pages.
        legend: whether methods are told in a legend also where their names fit at the ends of lines.

    Raises:
        UserError: no such figure, axis, theme, setting or method, or nothing to show for these runs.
    """
    figure = find(name)
    _check(figure, against, on, theme)
    lens = Lens(log=log, smooth=smooth, span=span, seeds=seeds)
    _check_lens(figure, lens)
    subject = _subject(runs, group_by)
    if baseline is not None and baseline not in subject.methods:
        raise unknown("method", baseline, subject.methods, why="the others are compared with it")
    if missing := figure.lacks(subject):
        raise UserError(
            f"figure {name!r} has nothing to show: {missing.partition(';')[0]}",
            expected="runs in which it was recorded",
            why="an empty picture would look like a result",
            fix=missing.partition(";")[2].strip() or "draw another figure; without a name, those that apply are listed",
        )
    given: dict[str, Any] = {} if width is None else {"width": width}
    options = Options(
        against=against, on=on, theme=theme, baseline=baseline, lens=lens, live=live, legend=legend, **given
    )
    with unchecked():
        chart = figure.drawn(subject, options)
        chart = settled(chart) if live else chart
        return chart.properties(title=titled(chart, figure.title)).configure(**config(theme))


def _subject(runs: Sequence[RecordedRun] | Subject, group_by: str | None = None) -> Subject:
    return runs if isinstance(runs, Subject) else Subject(runs, group_by)


def _check(figure: Figure, against: str, on: str, theme: str) -> None:
    if against not in AXES:
        raise unknown("axis", against, AXES, why="the axis says what a result is compared over")
    if against != "version" and not figure.along:
        raise UserError(
            f"figure {figure.name!r} drawn against {against!r}",
            expected=f"a curve: {', '.join(f.name for f in CATALOGUE.values() if f.along)}",
            why="this figure has a horizontal axis of its own",
            fix="leave the axis out",
        )
    if on not in ("test", "validation"):
        raise unknown("set", on, ("test", "validation"), why="results are of one of them")
    if theme not in THEMES:
        raise unknown("theme", theme, THEMES, why="it decides every colour")


def _check_lens(figure: Figure, lens: Lens) -> None:
    asked = {"log": bool(lens.log), "smooth": lens.smooth > 1, "span": lens.span is not None, "seeds": lens.seeds}
    own = lens.span is not None or "x" in lens.log
    if lens.plain or (figure.curved and (figure.along or not own)):
        return
    which = [f.name for f in CATALOGUE.values() if f.curved and (f.along or not own)]
    raise UserError(
        f"figure {figure.name!r} drawn with {', '.join(name for name, given in asked.items() if given)}",
        expected=f"a curve: {', '.join(which)}",
        why="this figure has a horizontal axis of its own" if figure.curved else "this figure is no curve",
        fix="leave it out",
    )
