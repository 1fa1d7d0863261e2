"""A curve drawn with characters, for terminals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TextIO, final

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # a braille character is 4 dots high and 2 wide
_BLANK = 0x2800
_BLOCKS = "▁▂▃▄▅▆▇█"


@final
class _Canvas:
    """A grid of dots, `across` × `down` of them to a character."""

    def __init__(self, columns: int, rows: int, *, unicode: bool) -> None:
        self.unicode = unicode
        self.across, self.down = (2, 4) if unicode else (1, 1)
        self.width, self.height = columns * self.across, rows * self.down
        self._cells = [[0] * columns for _ in range(rows)]

    def line(self, start: tuple[int, int], end: tuple[int, int]) -> None:
        steps = max(abs(end[0] - start[0]), abs(end[1] - start[1]), 1)
        for i in range(steps + 1):
            x = round(start[0] + (end[0] - start[0]) * i / steps)
            y = self.height - 1 - round(start[1] + (end[1] - start[1]) * i / steps)
            self._cells[y // self.down][x // self.across] |= _DOTS[y % self.down][x % self.across]

    def rows(self) -> list[str]:
        return ["".join(self._character(cell) for cell in row) for row in self._cells]

    def _character(self, cell: int) -> str:
        if not cell:
            return " "
        return chr(_BLANK + cell) if self.unicode else "*"


def curve(
    points: Sequence[tuple[float, float]],
    *,
    title: str,
    axis: str = "round",
    width: int = 72,
    height: int = 10,
    least: float = 0.0,
    unicode: bool = True,
) -> str:
    """Draws a line through points, with axes.

    >>> print(curve([(0, 0.0), (1, 0.5), (2, 1.0)], title="accuracy", width=24, height=3, unicode=False))
    accuracy
     1.00 |            *****
     0.50 |     *******
     0.00 |*****
          +-----------------
           0               2
           round

    Args:
        points: (x, y) by increasing x; a point that is not finite breaks the line.
        title: above the chart.
        axis: what x is.
        width: of everything, in characters; at least 24 are used.
        height: of the drawing area, in characters.
        least: the least that the vertical axis spans, so that small changes look small.
        unicode: draw with braille dots and box characters; otherwise plain ASCII.

    Returns:
        The lines of the chart, or a line that says that there is nothing to draw.
    """
    good = [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]
    if not good:
        return f"{title}: nothing to draw yet"
    low, high = _padded(min(y for _, y in good), max(y for _, y in good), least)
    labels = _labels(low, high, height)
    margin = max(len(label) for label in labels.values()) + 2
    columns = max(width, 24) - margin - 1
    canvas = _Canvas(columns, height, unicode=unicode)
    first, last = good[0][0], good[-1][0]

    def place(x: float, y: float) -> tuple[int, int]:
        across = (x - first) / (last - first) if last > first else 0.0
        return round(across * (canvas.width - 1)), round((y - low) / (high - low) * (canvas.height - 1))

    previous: tuple[int, int] | None = None
    for x, y in points:
        here = place(x, y) if math.isfinite(x) and math.isfinite(y) else None
        if here is not None:
            canvas.line(previous or here, here)
        previous = here

    tick, bar, corner, floor = ("┤", "│", "└", "─") if unicode else ("|", "|", "+", "-")
    lines = [title]
    for row, drawn in enumerate(canvas.rows()):
        label = labels.get(row, "")
        lines.append(f"{label:>{margin - 1}} {tick if label else bar}{drawn}".rstrip())
    left, right = f"{first:g}", f"{last:g}" if last > first else ""
    lines.append(" " * margin + corner + floor * columns)
    lines.append(" " * (margin + 1) + left + right.rjust(columns - len(left)))
    lines.append(" " * (margin + 1) + axis)
    return "\n".join(lines)


def spark(values: Sequence[float | None], low: float, high: float) -> str:
    """A small curve of block characters, between a least and a greatest value that several curves share.

    >>> spark([0.1, 0.5, 0.9, None], 0.1, 0.9)
    '▁▅█ '

    Args:
        values: from left to right; None where there is none.
        low, high: what the lowest and the highest block stand for.
    """
    room = (high - low) or 1.0
    places = [None if v is None else round((v - low) / room * (len(_BLOCKS) - 1)) for v in values]
    return "".join(" " if place is None else _BLOCKS[max(0, min(len(_BLOCKS) - 1, place))] for place in places)


def takes_unicode(stream: TextIO) -> bool:
    """Whether a stream can print what `curve` draws with."""
    try:
        "⣿┤└─█".encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _padded(low: float, high: float, least: float) -> tuple[float, float]:
    if (high > low and high - low < least) or (low == high and least):
        room = (least - (high - low)) / 2
        return low - room, high + room
    if high > low:
        return low, high
    room = abs(high) * 0.05 or 0.5
    return low - room, high + room


def _labels(low: float, high: float, height: int) -> dict[int, str]:
    """The numbers beside the rows: top, bottom, and one between for every four rows or so, rounded alike."""
    count = max(2, min(height, round(height / 4) + 2))
    digits = max(0, 1 - math.floor(math.log10((high - low) / (count - 1))))
    labels = {}
    for i in range(count):
        row = round(i * (height - 1) / (count - 1))
        labels[row] = f"{high - (high - low) * row / max(height - 1, 1):.{min(digits, 12)}f}"
    return labels
