"""Figures inside a page: as pictures, which run no script, load nothing, and follow the reader's theme."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final
from urllib.parse import quote

from polyrhythm import figures
from polyrhythm.figures import Against, Figure, Theme
from polyrhythm.results import Run
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
        about: what it shows.
        light, dark: as addresses that hold the whole picture.
        width: of the picture, in pixels.
        height: likewise.
    """

    name: str
    title: str
    about: str
    light: str
    dark: str
    width: int
    height: int


def pictures(runs: Sequence[Run], on: On) -> Iterator[Picture]:
    """All figures that have something to show for these runs."""
    for figure in figures.applicable(runs):
        yield _picture(figure, runs, on, "version")
        if figure.name == "accuracy" and not any(f.name == "costs" for f in figures.applicable(runs)):
            yield from (_picture(figure, runs, on, axis) for axis in _AXES)


def _picture(figure: Figure, runs: Sequence[Run], on: On, against: Against) -> Picture:
    light, dark = _svg(figure.name, runs, on, against, "light"), _svg(figure.name, runs, on, against, "dark")
    width, height = _size(light)
    return Picture(
        name=figure.name if against == "version" else f"{figure.name}-{against}",
        title=figure.title,
        about=figure.about,
        light=_address(light),
        dark=_address(dark),
        width=width,
        height=height,
    )


def _svg(name: str, runs: Sequence[Run], on: On, against: Against, theme: Theme) -> str:
    import altair
    import vl_convert

    chart: Any = figures.draw(name, runs, against=against, on=on, theme=theme, width=_WIDTH)
    specification = figures.drawable(chart.to_dict())
    specification.pop("title", None)  # it stands above the picture
    version = ".".join(altair.SCHEMA_VERSION.lstrip("v").split(".")[:2])
    return shorter(vl_convert.vegalite_to_svg(specification, vl_version=version))


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
