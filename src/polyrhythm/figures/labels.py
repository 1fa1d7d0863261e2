"""The label picture: who holds how many samples of which class."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyrhythm.base.errors import UserError

if TYPE_CHECKING:
    import altair as alt

    from polyrhythm.data.federation import Federation


def bubbles(found: Mapping[str, Any], *, colour: str, width: float = 200) -> alt.Chart:
    """The label picture: one bubble for each client and class, its area the number of samples.

    Without classes the sizes are drawn as bars.

    Args:
        found: what `polyrhythm.data.picture.label_counts` gave.
        colour: of the bubbles.
        width: at least, pixels.
    """
    import altair as alt

    names, classes = found["clients"], found["classes"]
    wide = float(min(1100, max(width, 14 * len(names))))
    x = alt.X("client:N", sort=None, title="client", axis=alt.Axis(labelOverlap=True, labelAngle=0, ticks=False))
    if not classes:
        rows: list[dict[str, Any]] = [
            {"client": name, "samples": size} for name, size in zip(names, found["sizes"], strict=True)
        ]
        bars = alt.Chart(alt.InlineData(values=rows), title=found["title"]).mark_bar(color=colour)
        drawn: alt.Chart = bars.encode(x=x, y=alt.Y("samples:Q", title="samples")).properties(width=wide, height=240)
        return drawn
    rows = [
        {"client": name, "class": label, "samples": count}
        for name, counts in zip(names, found["counts"], strict=True)
        for label, count in zip(classes, counts, strict=True)
        if count
    ]
    step = 22 if len(classes) <= 20 else 14
    diameter = min(wide / len(names), step)
    size = alt.Size(
        "samples:Q",
        title="samples",
        scale=alt.Scale(type="linear", domainMin=0, range=[0, max(0.9 * diameter, 3) ** 2]),
        legend=alt.Legend(tickCount=4, symbolFillColor=colour, symbolStrokeWidth=0),
    )
    marks = alt.Chart(alt.InlineData(values=rows), title=found["title"]).mark_circle(color=colour, opacity=0.9)
    picture: alt.Chart = marks.encode(
        x=x.scale(domain=names),
        y=alt.Y("class:N", sort=classes, title=found["of"]).scale(domain=classes),
        size=size,
        tooltip=["client:N", "class:N", "samples:Q"],
    ).properties(width=wide, height=step * len(classes))
    return picture


def label_chart(federation: Federation) -> alt.Chart:
    """The label picture: one bubble for each client and class, its area the number of samples.

    Without classes the sizes are drawn as bars.
    """
    from polyrhythm.data.picture import label_counts  # with torch, which figures of a record do without

    return bubbles(label_counts(federation), colour=_BLUE)


def draw_labels(federation: Federation, path: str | Path) -> Path:
    """Draws the label picture into a file: .png, .svg, .pdf, or .html that needs no connection.

    Raises:
        UserError: another ending, or a folder that cannot be written to.
    """
    target = Path(path)
    suffix = target.suffix.lower()
    if suffix not in (".png", ".svg", ".pdf", ".html"):
        raise UserError(
            f"a picture named {target.name!r}",
            expected="a name ending in .png, .svg, .pdf or .html",
            why="the ending says what to draw",
            fix=f"{target.stem or 'labels'}.png",
        )
    chart = label_chart(federation).configure_view(stroke=None).configure_axis(grid=True, gridColor="#eeeeee")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if suffix == ".html":
            chart.save(target, inline=True)
        else:
            chart.save(target, **({"scale_factor": 2} if suffix == ".png" else {}))
    except OSError as error:
        raise UserError(
            f"cannot write {target}: {error.strerror or error}",
            expected="a folder that can be written to",
            why="the picture is a file",
            fix="give another path",
        ) from None
    return target


_BLUE = "#3b6fb6"
