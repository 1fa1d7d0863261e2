"""Charts as files: PNG, SVG, PDF, or a page that needs no network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyrhythm.base.errors import UserError
from polyrhythm.base.output_file import check_output
from polyrhythm.base.plain import plain
from polyrhythm.figures.page import page

if TYPE_CHECKING:
    import altair as alt

FORMATS = (".png", ".svg", ".pdf", ".html")


def check_file(path: Path | str) -> None:
    """Goes on if a chart could be written there, which is asked before it is drawn.

    Raises:
        UserError: another ending, or a file that cannot be written.
    """
    check_ending(Path(path))
    check_output(path, "the chart")


def check_ending(path: Path) -> str:
    """The format of a file, by its ending.

    Raises:
        UserError: there is no such format.
    """
    ending = path.suffix.lower()
    if ending not in FORMATS:
        raise UserError(
            f"cannot save a chart as {path.name!r}",
            expected=f"a name that ends in {', '.join(FORMATS)}",
            why="the ending decides the format",
            fix=f"save it as {path.stem or 'figure'}.png, for example",
        )
    return ending


def save(chart: alt.TopLevelMixin, path: Path | str) -> None:
    """Writes a chart as .png (twice the size, for print), .svg, .pdf, or .html with everything it needs inside (1 MB).

    Raises:
        UserError: another ending, or a file that cannot be written.
    """
    path = Path(path)
    ending = check_ending(path)
    try:
        if ending == ".html":
            path.write_text(page(drawable(chart.to_dict())), encoding="utf-8")
        else:
            _like(chart).save(str(path), scale_factor=2 if ending == ".png" else 1)
    except OSError as error:
        raise UserError(
            f"{path} cannot be written: {error.strerror or error}",
            expected="a folder that exists and can be written",
            why="the chart would be lost",
            fix="make the folder, or give another file",
        ) from error


def drawable(value: Any) -> Any:
    """A specification whose texts can be drawn: what XML has no place for ends the program that draws, unannounced.

    Args:
        value: the specification, or a part of it.
    """
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, dict):
        return {drawable(key): drawable(part) for key, part in value.items()}
    return [drawable(part) for part in value] if isinstance(value, list) else value


def _like(chart: alt.TopLevelMixin) -> Any:
    """The chart, or one with the texts that can be drawn in place of its own."""
    import altair as alt

    specification = chart.to_dict()
    texts = drawable(specification)
    return chart if texts == specification else alt.Chart.from_dict(texts)
