"""What figures are made of: rows as values, scales with one legend below, axes with units."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, final

from polyrhythm.figures.axes import AXES, Against
from polyrhythm.figures.lens import PLAIN, Lens
from polyrhythm.figures.theme import HUES, Style, Theme

if TYPE_CHECKING:
    import altair as alt

    from polyrhythm.figures.subject import Subject
    from polyrhythm.runs.recorded import RecordedRun


COLUMN = 3
"""Panels that still stand under each other."""


def chart(rows: Sequence[Mapping[str, Any]], width: float, height: float, title: str | list[str] = "") -> alt.Chart:
    """An empty chart over rows. They are given as values and not as a frame, so that no limit on rows bites."""
    import altair as alt

    above: dict[str, Any] = {"title": alt.Title(title, fontSize=12, fontWeight="normal")} if title else {}
    return alt.Chart(_rows()(values=list(rows)), width=width, height=height, **above)


@functools.cache
def _rows() -> Any:
    """Rows that no step of making a chart copies or checks: Altair does both at each, a second for ten thousand."""
    import altair as alt

    class Rows(alt.InlineData):
        """Values that nobody changes."""

        _class_is_valid_at_instantiation = False

        def __deepcopy__(self, *_: Any) -> Rows:
            return self

    return Rows


@contextlib.contextmanager
def unchecked() -> Iterator[None]:
    """Charts that are made meanwhile are not held against Vega-Lite's schema part by part, a third of the time."""
    from altair.utils import schemapi

    with schemapi.debug_mode(False):
        yield


def titled(drawn: Any, title: str) -> alt.Title:
    """The title of a figure; under it what stands above its only panel, such as that not all of it is shown."""
    import altair as alt

    for part in (drawn, *getattr(drawn, "layer", ())):
        above = getattr(part, "title", None)
        if isinstance(above, alt.Title):
            return alt.Title(title, subtitle=above.text)
    return alt.Title(title)


NUMBER = "abs(datum.value) < 1000 ? format(datum.value, '~g') : format(datum.value, '~s')"
"""A number at an axis: as it is below a thousand, with k, M, G from there on; never with m or µ.

Each label by itself: as the axis's format, all would have the prefix of the largest, and 0 would be 0M.
"""


_DECADE = "datum.value / pow(10, floor(log(datum.value) / LN10 + 1e-9))"
DECADES = f"indexof([1, 2, 5], round({_DECADE})) < 0 ? '' : {NUMBER}"
"""The same at a logarithmic axis over many decades: at 1, 2, 5, 10 and so on, else 9 would stand and 10 would not."""
_FAR = 12.0  # times its least value that an axis goes to, from where it shows decades


def along(against: Against, lens: Lens = PLAIN) -> alt.X:
    """The horizontal axis of curves."""
    import altair as alt

    whole: dict[str, Any] = (
        {"tickMinStep": 1} if against in ("version", "client_updates", "visits", "local_steps") else {}
    )
    logarithmic = "x" in lens.log
    far = logarithmic and (lens.span is None or lens.span[0] <= 0 or lens.span[1] / lens.span[0] >= _FAR)
    words = DECADES if far else NUMBER
    axis = alt.Axis(labelExpr=words, tickCount=6, labelOverlap="greedy", **({} if logarithmic else whole))
    scale: dict[str, Any] = {"type": "log", "nice": False} if logarithmic else {}
    if lens.span is not None and not (logarithmic and lens.span[1] <= 0):
        start, end = lens.span
        scale |= {"domainMax": end} if logarithmic and start <= 0 else {"domain": [start, end]}
        scale |= {} if logarithmic else {"nice": False, "zero": False}
    placed: dict[str, Any] = {"scale": alt.Scale(**scale)} if scale else {}
    return alt.X("x:Q", title=AXES[against], axis=axis, **placed)


def told(place: str, value: str) -> tuple[alt.Tooltip, alt.Tooltip]:
    """What is said of a point, `x` and `y`, under the pointer: the titles of its axes and its numbers."""
    import altair as alt

    return alt.Tooltip("x:Q", title=place, format=",.6~g"), alt.Tooltip("y:Q", title=value, format=".4~g")


def seconds_axis() -> alt.Axis:
    """Of virtual seconds."""
    import altair as alt

    return alt.Axis(labelExpr=NUMBER, tickCount=8)


def named(method: str, run: RecordedRun, subject: Subject, *, note: str = "") -> str:
    """Above a panel of one run: its method where there are several, its seed where they have several, and a note."""
    parts = [method] if len(subject.methods) > 1 or len(subject.runs) > 1 else []
    parts += [f"seed {run.seed}"] if len(subject.runs) > len(subject.methods) else []
    return ", ".join([*parts, *([note] if note else [])])


def methods(
    styles: Mapping[str, Style], *, shown: bool = True, stroke: bool = True, told: Sequence[str] = ()
) -> tuple[alt.Color, alt.StrokeDash]:
    """Colour and dashes of methods, told in one legend, or those of them that are `told`; in none if there is but one
    method."""
    import altair as alt

    names = list(styles)
    some: dict[str, Any] = {"values": list(told)} if told else {}
    legend = (
        alt.Legend(
            columns=_columns(list(told) or names),
            **some,
            symbolType="stroke" if stroke else "square",
            symbolStrokeWidth=3 if stroke else 0,
            symbolOpacity=1,
        )
        if shown
        else None
    )
    scale = alt.Scale(domain=names, range=[look.colour for look in styles.values()])
    dashes = alt.Scale(domain=names, range=[list(look.dash) for look in styles.values()])
    color = alt.Color("method:N", title=None, scale=scale, legend=legend)
    return color, alt.StrokeDash("method:N", title=None, scale=dashes, legend=legend)


def filled(styles: Mapping[str, Style], *, shown: bool = True) -> dict[str, Any]:
    """The channels of areas of methods: colours, and from the ninth on paler ones with an edge, told in one legend."""
    import altair as alt

    color, _ = methods(styles, shown=shown, stroke=False)
    if all(look.fill == look.colour for look in styles.values()):
        return {"color": color}
    legend = alt.Legend(columns=_columns(list(styles)), symbolType="square", symbolStrokeWidth=1.5) if shown else None
    fills, edges = (
        alt.Scale(domain=list(styles), range=[getattr(look, of) for look in styles.values()])
        for of in ("fill", "colour")
    )
    return {
        "fill": alt.Fill("method:N", title=None, scale=fills, legend=legend),
        "stroke": alt.Stroke("method:N", title=None, scale=edges, legend=legend),
    }


def shaped(styles: Mapping[str, Style], color: alt.Color) -> dict[str, Any]:
    """The channel of points of methods that tells the ninth from the first; none where all are among the first.

    Args:
        styles: of the methods.
        color: their channel, whose legend is that of the shapes, too.
    """
    import altair as alt

    if all(look.shape == "circle" for look in styles.values()):
        return {}
    scale = alt.Scale(domain=list(styles), range=[look.shape for look in styles.values()])
    return {"shape": alt.Shape("method:N", title=None, scale=scale, legend=color["legend"])}


@final
@dataclass(frozen=True, kw_only=True)
class Range:
    """What values can be, so that an axis goes no further although a band may.

    Args:
        least: no value is smaller.
        most: none is larger.
        zero: whether the axis begins at zero.
        explodes: whether it grows without end where training diverges, as a loss does.
    """

    least: float | None = None
    most: float | None = None
    zero: bool = False
    explodes: bool = False


SHARE, COUNT, LOSS = Range(least=0, most=1), Range(least=0, zero=True), Range(least=0, explodes=True)
_EXPLODED = 10.0  # times what it began with
_FINE, _LARGE = 1e-3, 1e6


class Upright(NamedTuple):
    """A vertical axis, and what a figure must heed for it."""

    axis: alt.Y
    leaving: list[dict[str, Any]]
    """The curves that leave the picture: `method`, where, as `x` and `y`, and how far they go, as it is `said`."""
    logarithmic: bool
    refused: str = ""
    """Why it is not logarithmic although it should be."""


def upright(
    measure: str,
    rows: Sequence[Mapping[str, Any]],
    of: Range = Range(),
    lens: Lens = PLAIN,
    after: Sequence[Mapping[str, Any]] = (),
) -> Upright:
    """The vertical axis of curves.

    Where one method of several diverges, the axis ends above the others, which would be flat lines beside it; where
    all do, it is logarithmic.

    Args:
        measure: its title.
        rows: what is drawn, with `x`, `y`, `low` and `high`, and its `method` where there are several.
        of: what the values can be.
        lens: how closely they are looked at: a part of them has an axis of its own, and it may be logarithmic.
        after: other points on the same axis, with `x` and `y`.
    """
    import altair as alt

    if lens.span is not None:
        rows = _seen(rows, lens)
    scale: dict[str, Any] = {"zero": of.zero}
    low, high = min((row["low"] for row in rows), default=0.0), max((row["high"] for row in rows), default=0.0)
    least = min((row["y"] for row in rows), default=0.0)
    if of.least is not None and (of.zero or low < of.least <= least):
        scale["domainMin"] = of.least
    if of.most is not None and high > of.most:
        scale["domainMax"] = of.most
    leaving: list[dict[str, Any]] = []
    logarithmic, refused = "y" in lens.log and least > 0, ""
    others = [row["y"] for row in after if lens.shows(row["x"])]
    if logarithmic and min(others, default=1.0) <= 0:
        logarithmic = False
    if "y" in lens.log and not logarithmic:
        refused = "the vertical axis is not logarithmic: values of 0 or less have no place on one"
    if logarithmic:
        scale = {"type": "log", "nice": False}
        low = least
    elif of.explodes and (wild := exploded(rows)):
        calm = [row["high"] for row in rows if row.get("method") not in wild]
        if calm:
            scale["domainMax"] = high = max(calm)
            for name, highest in wild.items():
                out = next(row for row in rows if row.get("method") == name and row["y"] > high)
                leaving.append({"method": name, "x": out["x"], "y": high, "said": f"↑ {highest:.2g}"})
        elif least > 0:
            scale, logarithmic = {"type": "log"}, True
            low = least
    if lens.span is not None and high > low and not leaving:
        ends = [0.0] if of.zero and not logarithmic else []
        least = max(scale.pop("domainMin", low), min([low, *others, *ends]))
        most = min(scale.pop("domainMax", math.inf), max([high, *others, *ends]))
        scale = {"nice": True, **{key: value for key, value in scale.items() if key != "zero"}, "domain": [least, most]}
    axis: dict[str, Any] = {}
    if high >= _LARGE or 0 < high < _FINE:
        axis["axis"] = alt.Axis(labelExpr="datum.value === 0 ? '0' : format(datum.value, '.1~e')")
    elif "y" in lens.log and logarithmic:
        axis["axis"] = alt.Axis(labelExpr=DECADES if high >= _FAR * least else NUMBER, labelOverlap="greedy")
    return Upright(alt.Y("y:Q", title=measure, scale=alt.Scale(**scale), **axis), leaving, logarithmic, refused)


def _seen(rows: Sequence[Mapping[str, Any]], lens: Lens) -> Sequence[Mapping[str, Any]]:
    """The rows that a lens shows, and where each line comes in from the left; all of them if it shows none."""
    found, before = list[Mapping[str, Any]](), dict[str, Mapping[str, Any]]()
    for row in rows:
        if lens.shows(row["x"]):
            found.append(row)
        elif lens.span is not None and row["x"] < lens.span[0]:
            before[row.get("method", "")] = row
    return [*before.values(), *found] if found or before else rows


def exploded(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The methods whose curve rose above ten times what it began with, and how far."""
    curves: dict[str, list[float]] = {}
    for row in rows:
        curves.setdefault(row.get("method", ""), []).append(row["y"])
    return {name: max(ys) for name, ys in curves.items() if max(ys) > _EXPLODED * max(abs(ys[0]), 1.0)}


def in_turn(place: int, of: int, length: int) -> tuple[int, int]:
    """The dashes of the line that lies as second, third, … on others, so that each shows for the same length in turn.

    >>> [in_turn(place, 3, 5) for place in (1, 2)]
    [(10, 5), (5, 10)]
    """
    return length * (of - place), length * place


def grouped(field: str, names: Sequence[str], colours: Sequence[str], *, above: bool = False) -> alt.Color:
    """One colour for each line that is no method, told below; above where it would be below many panels."""
    import altair as alt

    where: dict[str, Any] = {"orient": "top"} if above else {}
    legend = alt.Legend(columns=_columns(names), symbolType="stroke", symbolStrokeWidth=3, symbolOpacity=1, **where)
    scale = alt.Scale(domain=list(names), range=list(colours))
    return alt.Color(f"{field}:N", title=None, scale=scale, legend=legend)


def hues(
    field: str, colours: Mapping[str, str], theme: Theme, *, title: str | None = None, above: bool = False
) -> alt.Color:
    """One colour for each value of a field, told below; above where it would be below many panels."""
    import altair as alt

    scale = alt.Scale(domain=list(colours), range=[HUES[hue][theme] for hue in colours.values()])
    where: dict[str, Any] = {"orient": "top"} if above else {}
    legend = alt.Legend(columns=_columns(list(colours)), symbolType="square", **where)
    return alt.Color(f"{field}:N", title=title, scale=scale, legend=legend)


def wide(count: int, width: int) -> int:
    """How wide each of so many panels is: half the room where they stand in two columns."""
    return (width - 60) // 2 if count > COLUMN else width


def panelled(panels: Sequence[Any]) -> Any:
    """Panels of methods under each other; of many, in two columns."""
    import altair as alt

    if len(panels) == 1:
        return panels[0]
    return alt.concat(*panels, columns=2) if len(panels) > COLUMN else alt.vconcat(*panels)


def _columns(names: Sequence[str]) -> int:
    """As many columns of a legend as fit under a figure."""
    longest = max((len(name) for name in names), default=1)
    # Pixels: of a letter; of a symbol and the gap behind a name.
    return max(1, min(len(names), int(440 / (6.5 * longest + 45))))
