"""Labels and what they say, in two columns; loads nothing that trains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from polyrhythm.results.privacy_tables import answers


def print_rows(console: Console, rows: Mapping[str, str]) -> None:
    """Labels and what they say, in two columns."""
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for label, value in rows.items():
        table.add_row(label, Text(value))
    console.print(table)


def print_privacy(console: Console, statement: Mapping[str, Any]) -> None:
    """The privacy statement of a run: the paragraph, and the table."""
    console.print()
    console.print(str(statement["text"]), markup=False, highlight=False)
    console.print()
    print_rows(console, answers(statement))
