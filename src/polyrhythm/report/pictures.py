"""Figures inside a page: as pictures, which run no script, load nothing, and follow the reader's theme."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, final
from urllib.parse import quote

from polyrhythm import figures
from polyrhythm.figures import Against, Figure, Subject, Theme
from polyrhythm.figures.repainting import by_night, numbered
from polyrhythm.runs.costs import On

_WIDTH = 360  # of a panel: as wide as a phone, so that nothing is shrunk there
_AXES: tuple[Against, ...] = ("time", "bytes")  # beside versions, for what is compared by costs
_SAFE = "/:;,=()!*'@+$?[]~"


@final
@dataclass(frozen=True, kw_only=True)
class Picture:
    """A figure of some runs.

    Args:
        name: unique in a report.
        title: above it.
        note: under the title, such as that not all of it is shown.
        about: what it shows.
        light, dark: as addresses that hold the whole picture.
        width: of the picture, in pixels.
        height: likewise.
    """

    name: str
    title: str
    note: str
    about: str
    light: str
    dark: str
    width: int
    height: int


def pictures(
    subject: Subject,
    on: On,
    *,
    baseline: str | None = None,
    told: Callable[[int, int], None] = lambda done, of: None,
) -> Iterator[Picture]:
    """All figures that have something to show for these runs.

    Args:
        subject: what is drawn.
        on: the set that it is judged on.
        baseline: the method that the others are compared with.
        told: hears how many are done of how many.
    """
    wanted: list[tuple[Figure, Against]] = [(figure, "version") for figure in figures.applicable(subject)]
    if not any(figure.name == "costs" for figure, _ in wanted):
        wanted += [(figure, axis) for figure, _ in wanted if figure.name == "accuracy" for axis in _AXES]
    for done, (figure, against) in enumerate(wanted):
        told(done, len(wanted))
        yield _picture(figure, subject, on, against, baseline)
    told(len(wanted), len(wanted))


def left_out(subject: Subject) -> str:
    """The figures that would show one value throughout, and that value, in words; "" if there is none."""
    flat = "; ".join(f"{figure.title} ({why})" for figure, why in figures.flat(subject).items())
    return f"Left out, since they would say nothing else: {flat}." if flat else ""


def _picture(figure: Figure, subject: Subject, on: On, against: Against, baseline: str | None) -> Picture:
    light, note = _svg(figure.name, subject, on, against, "light", baseline)
    dark = by_night(light) or _svg(figure.name, subject, on, against, "dark", baseline)[0]
    width, height = _size(light)
    return Picture(
        name=figure.name if against == "version" else f"{figure.name}-{against}",
        title=figure.title,
        note=note,
        about=figure.about,
        light=_address(light),
        dark=_address(dark),
        width=width,
        height=height,
    )


def _svg(name: str, subject: Subject, on: On, against: Against, theme: Theme, baseline: str | None) -> tuple[str, str]:
    """A figure as a picture, and what stands under its title."""
    import altair
    import vl_convert

    chart: Any = figures.draw(name, subject, against=against, on=on, theme=theme, width=_WIDTH, baseline=baseline)
    specification = figures.drawable(chart.to_dict(validate=False))
    title = specification.pop("title", None)  # it stands above the picture
    inside = any("title" in layer for layer in specification.get("layer", ()))
    under = "" if inside or not isinstance(title, dict) else title.get("subtitle", "")
    note = under if isinstance(under, str) else "; ".join(under)
    version = ".".join(altair.SCHEMA_VERSION.lstrip("v").split(".")[:2])
    return numbered(shorter(vl_convert.vegalite_to_svg(specification, vl_version=version))), note


def shorter(svg: str) -> str:
    """The same picture with coordinates to a hundredth of a pixel; what is written in it stays as it is."""

    def rounded(found: re.Match[str]) -> str:
        return re.sub(r"(\.\d\d)\d+", r"\1", found[0])

    return re.sub(r' (?:d|transform|x|y|x1|x2|y1|y2|width|height)="[^"<>]*"', rounded, svg)


def _size(svg: str) -> tuple[int, int]:
    found = re.search(r'<svg [^>]*?width="([\d.]+)" height="([\d.]+)"', svg)
    return (round(float(found[1])), round(float(found[2]))) if found else (_WIDTH, _WIDTH)


def _address(svg: str) -> str:
    return f"data:image/svg+xml,{quote(svg, safe=_SAFE)}"
