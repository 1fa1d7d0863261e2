"""The figures of a page, as files beside it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from polyrhythm.figures import save
from polyrhythm.report.pictures import shorter
from polyrhythm.studies.page.findings import Picture

if TYPE_CHECKING:
    import altair as alt

_ALIKE = re.compile(r'<path d="[^"]*" fill="(#\w+)"/>(?:<path d="[^"]*" fill="\1"/>)+')


def saved(chart: alt.TopLevelMixin, folder: Path, name: str, *, title: str, about: str = "") -> Picture:
    """Puts a figure into the folder of a page, as a lean SVG: marks of one colour in a row are one mark.

    Args:
        chart: what is drawn.
        folder: of the page.
        name: of the file, without its ending.
        title: of the figure.
        about: how to read it.
    """
    file = folder / "pictures" / f"{name}.svg"
    file.parent.mkdir(parents=True, exist_ok=True)
    save(chart, file)
    file.write_text(lean(file.read_text(encoding="utf-8")), encoding="utf-8")
    return Picture(title=title, file=file.relative_to(folder), about=about)


def lean(svg: str) -> str:
    """The same picture in fewer bytes, without what every mark says of itself: a page has its tables for that."""
    return _ALIKE.sub(_as_one, shorter(re.sub(r' (?:aria-[a-z]+|role)="[^"]*"', "", svg)))


def _as_one(marks: re.Match[str]) -> str:
    ways = "".join(re.findall(r'd="([^"]*)"', marks[0]))
    return f'<path d="{ways}" fill="{marks[1]}"/>'
