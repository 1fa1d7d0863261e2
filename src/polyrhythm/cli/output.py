"""What commands print: text for people, and JSON for programs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from typing import Any, final

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from polyrhythm.base.plain import plain
from polyrhythm.cli.guard import silence
from polyrhythm.runs.json_text import to_json


@final
class Screen(Console):
    """A console that goes silent when its reader leaves. A run goes on then: its record is what counts."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The pieces of what is shown. What a name or a message holds gives no orders to the terminal."""
        for piece in super().render(renderable, options):
            yield piece if piece.control else Segment(plain(piece.text, ""), piece.style)

    def note(self, text: str) -> None:
        """Something that a reader of the results should know."""
        self.print(f"note: {text}", style="yellow", markup=False, highlight=False)

    @property
    def sees_no_width(self) -> bool:
        """Whether nobody sees how wide it is: a pipe, a file."""
        return not self.is_terminal and "COLUMNS" not in os.environ

    def print_table(self, table: Table) -> None:
        """A table: as wide as it is where nobody sees a width (a pipe, a file), and as lines where it does not fit."""
        if self.sees_no_width:
            before, self.width = self.width, max(self.width, _width(table, least=False))
            self.print(table)
            self.width = before
        elif self.fits(table):
            self.print(table)
        else:
            self._print_lines(table)

    def fits(self, table: Table) -> bool:
        """Whether a table can be printed without breaking numbers and names."""
        return self.sees_no_width or _width(table, least=True) <= self.width

    def _print_lines(self, table: Table) -> None:
        """Each row as lines, a cell in each."""
        if table.title:
            self.print(table.title)
        heads = [" ".join(_plain(column.header).split()) for column in table.columns]
        for row in zip(*(column.cells for column in table.columns), strict=True):
            for place, (head, cell) in enumerate(zip(heads, map(_plain, row), strict=True)):
                if cell:
                    self.print(Text(f"{'  ' if place else ''}{head}{': ' if head else ''}{cell}"))
        self.print()

    def on_broken_pipe(self) -> None:
        """Sends what follows nowhere, where rich would end the process."""
        self.quiet = True
        silence()


_BREAKS_AT = 16  # characters; a longer word may be broken


def _width(table: Table, *, least: bool) -> int:
    return sum(_needs(column, least) for column in table.columns) + 3 * len(table.columns) + 1


def _needs(column: Column, least: bool) -> int:
    """The width of a column: that of its longest cell, or the least at which no number and no short word is broken."""
    longest = column.min_width or 0
    for cell in (column.header, *column.cells):
        lines = _plain(cell).split("\n")
        if not least or column.no_wrap or column.justify == "right":
            longest = max(longest, *map(len, lines))
        else:
            longest = max(longest, *(min(len(word), _BREAKS_AT) for line in lines for word in line.split() or [""]))
    return longest


def _plain(cell: object) -> str:
    return cell.plain if isinstance(cell, Text) else Text.from_markup(str(cell)).plain


def print_json(value: Any) -> None:
    """One line of JSON, in ASCII, so that it is the same in every encoding."""
    sys.stdout.write(json.dumps(json.loads(to_json(value))) + "\n")
    sys.stdout.flush()
