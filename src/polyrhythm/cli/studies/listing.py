"""`polyrhythm study list`: every table and figure of the papers, and what makes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from polyrhythm.cli.output import Screen, print_json
from polyrhythm.studies.definition import PAPERS
from polyrhythm.studies.files import needs
from polyrhythm.studies.files.catalogue import items


def list_items(*, as_json: bool) -> None:
    """Every table and figure, and what reproduces it."""
    if as_json:
        for item, by in items():
            state: dict[str, Any] = {"unknown": by.unknown or None, "scales": [*by.scales, "paper"]}
            state |= {"data": needs.data(by), "slow": needs.slow(by)}
            print_json({"item": item, "by": by.name, "title": by.title, **state})
        return
    screen = Screen(stderr=False)
    for paper, words in PAPERS.items():
        table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), title_justify="left", title=Text(words))
        table.add_column("name", no_wrap=True)
        table.add_column("items", overflow="fold")
        table.add_column("what", overflow="fold")
        table.add_column("at the paper's size it needs", overflow="fold")
        for by in {by.name: by for _, by in items() if by.paper == paper}.values():
            what = by.title if not by.unknown else f"unknown: {by.unknown}"
            table.add_row(*map(Text, (by.name, _joined(by.items), what, needs.in_words(by))))
        if table.row_count:
            screen.print_table(table)
    screen.print("for example: polyrhythm study ccfl/table-2 --scale quick", highlight=False)


def _joined(items: Sequence[str]) -> str:
    """Tables and figures in few words.

    >>> _joined(["Table 1", "Figure 6", "Figure 8"])
    'Table 1, Figure 6, 8'
    """
    told, before = list[str](), ""
    for item in items:
        kind, _, number = item.rpartition(" ")
        told.append(number if kind and kind == before else item)
        before = kind
    return ", ".join(told)
