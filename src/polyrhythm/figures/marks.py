"""What figures are made of: rows as values, scales with one legend below, axes with units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from polyrhythm.figures.axes import AXES, Against
from polyrhythm.figures.theme import HUES, Style, Theme

if TYPE_CHECKING:
    import altair as alt


def chart(rows: Sequence[Mapping[str, Any]], width: float, height: float, title: str = "") -> alt.Chart:
    """An empty chart over rows. They are given as values and not as a frame, so that no limit on rows bites."""
    import altair as alt

    above: dict[str, Any] = {"title": alt.Title(title, fontSize=12, fontWeight="normal")} if title else {}
    return alt.Chart(alt.InlineData(values=list(rows)), width=width, height=height, **above)


def along(against: Against) -> alt.X:
    """The horizontal axis of curves."""
    import altair as alt

    whole: dict[str, Any] = (
        {"tickMinStep": 1} if against in ("version", "client_updates", "visits", "local_steps") else {}
    )
    # Each label by itself: as the axis's format, all would have the prefix of the largest, and 0 would be 0M.
    axis = alt.Axis(labelExpr="format(datum.value, '~s')", tickCount=6, **whole)
    return alt.X("x:Q", title=AXES[against], axis=axis)


def methods(styles: Mapping[str, Style], *, shown: bool = True) -> tuple[alt.Color, alt.StrokeDash]:
    """Colour and dashes of methods, told in one legend; in none if there is but one method."""
    import altair as alt

    names = list(styles)
    legend = (
        alt.Legend(columns=_columns(names), symbolType="stroke", symbolStrokeWidth=3, symbolOpacity=1)
        if shown
        else None
    )
    scale = alt.Scale(domain=names, range=[look.colour for look in styles.values()])
    dashes = alt.Scale(domain=names, range=[list(look.dash) for look in styles.values()])
    color = alt.Color("method:N", title=None, scale=scale, legend=legend)
    return color, alt.StrokeDash("method:N", title=None, scale=dashes, legend=legend)


def hues(field: str, colours: Mapping[str, str], theme: Theme, *, title: str | None = None) -> alt.Color:
    """One colour for each value of a field, told below."""
    import altair as alt

    scale = alt.Scale(domain=list(colours), range=[HUES[hue][theme] for hue in colours.values()])
    return alt.Color(
        f"{field}:N", title=title, scale=scale, legend=alt.Legend(columns=_columns(list(colours)), symbolType="square")
    )


def _columns(names: Sequence[str]) -> int:
    """As many columns of a legend as fit under a figure."""
    longest = max((len(name) for name in names), default=1)
    return max(1, min(len(names), 96 // (longest + 5)))
