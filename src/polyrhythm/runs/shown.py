"""A run as rich shows it: labels, and what they say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from polyrhythm.base.metric_names import in_words
from polyrhythm.runs import costs
from polyrhythm.runs.view import RunView

if TYPE_CHECKING:
    from rich.table import Table

_SHOWN = (
    *("rounds", "final_accuracy", "best_accuracy", "best_by", "last20_mean", "last20_sd"),
    *("client_updates", "local_steps", "samples", "wall_seconds", "digest"),
)


def numbers_of(view: RunView, headline: str) -> dict[str, str]:
    """What a run has come to so far, in words, by label."""
    known = {**view.summary, **view.numbers}
    accuracy = in_words(headline)  # which `accuracy` in the names of a summary stands for
    words = {name: name.replace("accuracy", accuracy).replace("_", " ") for name in _SHOWN}
    return {words[name]: _short(known[name]) for name in _SHOWN if known.get(name) is not None}


def table_of(title: str, lines: Mapping[str, str]) -> Table:
    """A table of two columns, all of it plain text: names and reasons may hold what rich would take for markup."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), show_header=False, title_justify="left")
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for label, value in lines.items():
        table.add_row(label, Text(value))
    return table


def _short(value: object) -> str:
    if isinstance(value, float):
        return costs.decimals(value)
    return f"{value:,}" if isinstance(value, int) else str(value)
