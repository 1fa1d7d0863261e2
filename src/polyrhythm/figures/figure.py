"""What a figure is: a name, what it shows, when it has something to show, and how it is drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

from polyrhythm.figures.axes import Against
from polyrhythm.figures.lens import PLAIN, Lens
from polyrhythm.figures.subject import Subject
from polyrhythm.figures.theme import Theme
from polyrhythm.runs.costs import On
from polyrhythm.runs.schema import Table

Chart = Any
"""An Altair chart of any kind: Altair types layers and rows of charts each in its own way."""


@final
@dataclass(frozen=True, kw_only=True)
class Options:
    """How a figure is drawn.

    Args:
        against: the horizontal axis of curves.
        on: the set that results are of.
        theme: what it is drawn on.
        width: of a panel, in pixels.
        baseline: the method that others are compared with; None for the first.
        lens: how closely curves are looked at.
        live: whether a reader can explore it: hide methods, zoom, read values. For pages, never for pictures.
        legend: whether methods are told in a legend also where their names fit at the ends of lines.
    """

    against: Against = "version"
    on: On = "test"
    theme: Theme = "light"
    width: int = 560
    baseline: str | None = None
    lens: Lens = PLAIN
    live: bool = False
    legend: bool = False


def needs(table: Table, condition: str, words: str) -> Callable[[Subject], str]:
    """What a figure lacks, in words, if a condition in SQL holds for no record of a table."""
    return lambda subject: "" if subject.has(table, condition) else words


@final
@dataclass(frozen=True, kw_only=True)
class Figure:
    """One kind of figure.

    Args:
        name: in commands, and as `run.plot.NAME`.
        title: above it.
        about: one sentence for a person: what it shows and how to read it.
        lacks: why it has nothing to show for some runs and what to do; "" if it has something.
        drawn: draws it.
        along: whether it is a curve, whose horizontal axis can be chosen.
        judged: whether it depends on the set that results are of.
        curved: whether its curves can be smoothed, shown seed by seed, and over a logarithmic axis.
        flat: why it says nothing of some runs although it could be drawn, such as one value throughout; "" if it
            says something.
    """

    name: str
    title: str
    about: str
    lacks: Callable[[Subject], str]
    drawn: Callable[[Subject, Options], Chart]
    along: bool = False
    judged: bool = False
    curved: bool = False
    flat: Callable[[Subject], str] = lambda _: ""
