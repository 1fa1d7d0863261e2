"""What a reader of a page can do with lines: hide methods, zoom, and read all values at one place."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from typing import Any

from polyrhythm.figures.thinning import evenly

PLACES = 200
"""Places at which values can be read, at most."""

WITH_A_KEY = "wheel![event.ctrlKey || event.metaKey || event.altKey]"
"""The wheel alone scrolls the page."""


def explorable(
    layers: Sequence[Any], rows: Sequence[Mapping[str, Any]], panel: str, x: Any, size: tuple[float, float]
) -> list[Any]:
    """The layers of a panel with selections of Vega-Lite: methods shown by the legend, zoom, a rule at the pointer.

    Args:
        layers: with methods as colours.
        rows: the points of the means, for their values.
        panel: a name that no other panel of the figure has.
        x: its channel.
        size: of the panel, in pixels.
    """
    import altair as alt

    from polyrhythm.figures.marks import chart

    names = list(dict.fromkeys(row["method"] for row in rows))
    key = "".join(letter for letter in panel if letter.isalnum())
    found = list(layers)
    if len(names) > 1:
        # All are chosen at first, so that a click takes one away.
        shown = alt.selection_point(
            name=f"shown_{key}", fields=["method"], bind="legend", toggle="true", clear=False,
            value=[{"method": name} for name in names],
        )  # fmt: skip
        found = [layer.encode(opacity=_while(shown, layer)) for layer in found]
        found[0] = found[0].add_params(shown)
    zoom = alt.selection_interval(name=f"zoom_{key}", encodings=["x"], bind="scales", zoom=WITH_A_KEY)
    found[0] = found[0].add_params(zoom)
    over = alt.selection_point(name=f"over_{key}", encodings=["x"], on="pointermove", clear="pointerout", nearest=True)
    title = "at" if "at" not in names else "at:"
    rule = chart(readings(rows, title), *size).mark_rule(tooltip={"content": "data"}, clip=True)
    here = alt.when(over, empty=False).then(alt.value(0.6)).otherwise(alt.value(0))
    place = alt.X(f"{title}:Q", title=x["title"], scale=x["scale"])
    return [*found, rule.encode(x=place, opacity=here).add_params(over)]


def settled(drawn: Any) -> Any:
    """The same figure, in which each selection is of one layer.

    Of a panel among others Altair gives it to every layer, which Vega-Lite takes for several selections of one name.
    """
    selections = getattr(drawn, "params", None)
    for selection in selections if isinstance(selections, list) else ():
        views = getattr(selection, "views", None)
        if isinstance(views, list) and len(views) > 1:
            selection.views = views[-1:] if str(selection.name).startswith("over_") else views[:1]
    return drawn


def _while(shown: Any, layer: Any) -> Any:
    import altair as alt

    usual = layer.mark.opacity if layer.mark.opacity is not alt.Undefined else 1
    return alt.when(shown).then(alt.value(usual)).otherwise(alt.value(0))


def readings(rows: Sequence[Mapping[str, Any]], title: str = "at") -> list[dict[str, Any]]:
    """At each of many places, under `title`, what each method was worth at its nearest recorded one, in words."""
    lines: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        lines.setdefault(row["method"], []).append(row)
    places = evenly(sorted({row["x"] for row in rows}), PLACES)
    xs = {name: [point["x"] for point in points] for name, points in lines.items()}
    return [
        {title: x, **{name: said(points[nearest(xs[name], x)], x) for name, points in lines.items()}} for x in places
    ]


def nearest(places: Sequence[float], x: float) -> int:
    """Which of some sorted places is the nearest."""
    after = bisect.bisect_left(places, x)
    if after in (0, len(places)):
        return min(after, len(places) - 1)
    return after if places[after] - x < x - places[after - 1] else after - 1


def said(point: Mapping[str, Any], x: float) -> str:
    """Mean as recorded, deviation and number of seeds of a place; and where it is, if it is another one.

    >>> said({"x": 4, "y": 0.91234, "sd": 0.0123, "n": 3}, 5)
    '0.9123 ± 0.0123, n = 3, at 4'
    """
    sd = point.get("sd")
    spread = "" if sd is None else f" ± {sd:.3g}"
    return f"{point.get('raw', point['y']):.4g}{spread}, n = {point.get('n', 1)}" + (
        "" if point["x"] == x else f", at {point['x']:,.6g}"
    )
