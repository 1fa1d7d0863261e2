"""Lines of methods with their bands, and what a reader needs to tell them apart: notes, dashes, single seeds."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from polyrhythm.figures.axes import Against
from polyrhythm.figures.crowd import in_words, set_apart
from polyrhythm.figures.ends import named_ends
from polyrhythm.figures.figure import Chart, Options
from polyrhythm.figures.lens import Lens
from polyrhythm.figures.live import explorable
from polyrhythm.figures.marks import Range, along, chart, in_turn, methods, told, upright
from polyrhythm.figures.subject import Subject
from polyrhythm.figures.theme import Style

WIDE = 400  # pixels of a panel that still has room for marks
FEW = 50  # points that still leave room for a mark at each
HEIGHT = 300
_NEAR = 0.007  # of what is drawn from top to bottom: about the width of a line
_PLACES = 60  # at which two lines are compared
_DASH = 7  # pixels
_LINE = 13  # pixels from one line of small words to the next

Points = Sequence[Mapping[str, Any]]


def lines(
    subject: Subject,
    rows: Points,
    options: Options,
    measure: str,
    against: Against,
    of: Range = Range(),  # noqa: B008
    *,
    after: Points = (),
    height: int = HEIGHT,
    axis: str | None = None,
    notes: Sequence[str] = (),
    turns: bool = True,
    chosen: Sequence[str] = (),
) -> Chart:
    """One line for each method, with its band where it has several seeds; of very many, some stand out.

    Args:
        subject: the runs.
        rows: the points of the means: `method`, `x`, `y`, `low`, `high`, and `raw` where they are smoothed.
        options: how it is drawn.
        measure: the title of the vertical axis.
        against: the horizontal axis.
        of: what the values can be.
        after: points of single seeds: `method`, `seed`, `x`, `y`.
        height: of the panel, pixels.
        axis: another title of the horizontal axis.
        notes: what stands above it.
        turns: whether lines on each other are told apart by dashes; panels with one legend have the same ones.
        chosen: the methods that stand out where there are very many, without bands; all of them, if none is given.
    """
    import altair as alt

    lens, baseline = options.lens, options.baseline or next(iter(subject.methods))
    whole, behind = rows, [row for row in rows if chosen and row["method"] not in chosen]
    styles, together = in_dashes(subject.styles(options.theme), alike(rows) if turns and not chosen else [])
    if chosen:
        styles = set_apart(styles, chosen, options.theme)
        rows = [{**row, "low": row["y"], "high": row["y"]} for row in rows if row["method"] in chosen]
        after = [row for row in after if lens.seeds and row["method"] in chosen]
        notes = [*notes, in_words(chosen, len(styles), baseline)]
    # Against versions all seeds have the same places; elsewhere the mean itself is made of steps.
    shape: Any = "linear" if against == "version" else "step-after"
    x = along(against, lens) if axis is None else along(against, lens).title(axis)
    y, leaving, logarithmic, refused = upright(measure, whole, of, lens, after)
    wordy = not (options.legend or options.live or lens.span or leaving) and options.width >= WIDE
    ends = named_ends(rows, height, logarithmic=logarithmic) if wordy else []
    color, dash = methods(styles, shown=len(subject.methods) > 1 and not ends, told=chosen)
    clip: dict[str, Any] = {"clip": True} if leaving or lens.span or options.live else {}
    room = len(rows) <= FEW * len(subject.methods) and options.width >= WIDE and not chosen
    few = room and against == "version" and lens.smooth < 2
    marks = chart(rows, options.width, height)
    tips = [*telling(x, measure), "n:Q"] if any(row.get("n", 1) > 1 for row in rows) else telling(x, measure)[:-1]
    line = marks.mark_line(interpolate=shape, point={"size": 18} if few else False, **clip)
    layers = [line.encode(x=x, y=y, color=color, strokeDash=dash, tooltip=tips)]
    wide = {row["method"] for row in rows if row["high"] > row["low"]}
    if wide:
        banded = [row for row in rows if row["method"] in wide]
        area = chart(floored(banded) if logarithmic else banded, options.width, height)
        bands = area.mark_area(interpolate=shape, opacity=0.18, clip=True).encode(
            x=x, y=alt.Y("low:Q", title=measure, scale=y["scale"]), y2="high:Q",
            color=color,
        )  # fmt: skip
        layers.insert(0, bands)
    if lens.smooth > 1:
        faint = marks.mark_line(interpolate=shape, strokeWidth=1, opacity=0.3, clip=True)
        layers.insert(len(layers) - 1, faint.encode(x=x, y=alt.Y("raw:Q", title=measure), color=color))
        notes = [*notes, smoothly(lens)]
    if behind:
        faint = chart(behind, options.width, height).mark_line(interpolate=shape, strokeWidth=1, **clip)
        layers.insert(0, faint.encode(x=x, y=y, color=color, detail="method:N", tooltip=telling(x, measure)[:-1]))
    if after:
        alone = chart(after, options.width, height).mark_line(interpolate=shape, strokeWidth=0.8, clip=True)
        tips = ["method:N", "seed:N", *telling(x, measure)[1:3]]
        layers.append(alone.encode(x=x, y=y, color=color, detail="seed:N", tooltip=tips))
    # Each below the one before: methods diverge at the same place.
    for i, row in enumerate(leaving):
        words = chart([row], options.width, height).mark_text(
            align="left", baseline="top", dx=4, dy=_LINE * i, fontSize=11
        )
        layers.append(words.encode(x=x, y=y, text="said:N", color=color))
    for last, below in ends:
        words = chart([last], options.width, height).mark_text(align="left", baseline="middle", dx=6, dy=below)
        layers.append(words.encode(x=x, y=y, text="method:N", color=color))
    notes = [*notes, *([refused] if refused else []), *together]
    if options.live:
        layers = explorable(layers, rows, f"{against} {measure}", x, (options.width, height))
    drawn: Any = layers[0] if len(layers) == 1 else alt.layer(*layers)
    return drawn.properties(title=alt.Title(notes, fontSize=12, fontWeight="normal")) if notes else drawn


def smoothly(lens: Lens) -> str:
    """That lines are smoothed, in words."""
    return f"lines: mean of {lens.smooth} neighbouring places; faint: as recorded"


def floored(rows: Points) -> list[dict[str, Any]]:
    """The rows of a band on a logarithmic axis: it ends where the lowest of the lines is."""
    floor = min((row["y"] for row in rows), default=0.0)
    return [{**row, "low": max(row["low"], floor)} for row in rows]


def telling(x: Any, measure: str) -> list[Any]:
    """What is said of a point under the pointer."""
    import altair as alt

    return ["method:N", *told(x["title"], measure or "mean"), alt.Tooltip("sd:Q", format=".3~g")]


def taken(drawn: Chart) -> list[str]:
    """The notes above a panel, which it then has no more: for a figure of several panels, above all of them."""
    import altair as alt

    if not isinstance(drawn.title, alt.Title):
        return []
    notes = list(drawn.title.text)
    drawn.title = alt.Undefined
    return notes


def alike(rows: Points) -> list[list[str]]:
    """The methods whose lines lie on each other at half of their places or more, group by group, in their order."""
    lines_of: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        lines_of.setdefault(row["method"], []).append((row["x"], row["y"]))
    values = [row["y"] for row in rows]
    near = _NEAR * (max(values) - min(values)) if values else 0.0
    groups = list[list[str]]()
    for name, line in lines_of.items():
        for group in groups:
            if _meet(lines_of[group[0]], line, near):
                group.append(name)
                break
        else:
            groups.append([name])
    return [group for group in groups if len(group) > 1]


def _meet(one: Sequence[tuple[float, float]], two: Sequence[tuple[float, float]], near: float) -> bool:
    start, end = max(one[0][0], two[0][0]), min(one[-1][0], two[-1][0])
    places = sorted({x for x, _ in (*one, *two) if start <= x <= end})
    if len(places) < 2:
        return False
    places = [places[i * (len(places) - 1) // _PLACES] for i in range(_PLACES + 1)]
    found = [[line[bisect.bisect_right(line, (x, math.inf)) - 1][1] for x in places] for line in (one, two)]
    met: int = sum(abs(a - b) <= near for a, b in zip(*found, strict=True))
    return met > len(places) / 2


def in_dashes(styles: Mapping[str, Style], groups: Sequence[Sequence[str]]) -> tuple[dict[str, Style], list[str]]:
    """The looks of methods, with dashes that take turns where lines lie on each other; and that they do, in words."""
    looks, words = dict(styles), list[str]()
    for group in groups:
        for place, name in enumerate(group):
            # Those with dashes of their own let the one below through already.
            if place and looks[name].dash == (1, 0):
                looks[name] = looks[name]._replace(dash=in_turn(place, len(group), _DASH))
        few = list(itertools.islice(group, 3))
        more = f" and {len(group) - len(few)} more" if len(group) > len(few) else ""
        words.append(f"{', '.join(few)}{more}: one line on the other, their dashes take turns")
    return looks, words
