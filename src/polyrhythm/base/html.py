"""Tables as notebooks show them: small, in the colours of the notebook's theme, with all text escaped."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from itertools import count

# Nothing but the text's own colour, so that it is right on light and dark.
_LINE = "border:0;border-bottom:1px solid rgba(128,128,128,.35);padding:.2em 1.2em .2em 0;vertical-align:top"
_TABLE = "border-collapse:collapse;font-variant-numeric:tabular-nums;background:none;color:inherit"
_CAPTION = "caption-side:top;text-align:left;color:inherit;opacity:.75;padding:0 0 .3em;max-width:44em"


def framed(inside: str) -> str:
    """HTML that scrolls by itself where it is wider than the page."""
    return f'<div style="overflow-x:auto;max-width:100%">{inside}</div>'


def facts(title: str, lines: Mapping[str, str]) -> str:
    """A table of labels and what they say, under a title."""
    body = "".join(_row((label, value), number=False) for label, value in lines.items())
    return f'<table style="{_TABLE}"><caption style="{_CAPTION}">{escape(title)}</caption><tbody>{body}</tbody></table>'


def table(
    caption: str,
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    marked: Collection[tuple[int, int]] = (),
) -> str:
    """A table whose columns but the first hold numbers; of those the marked ones, by row and column, are bold."""
    columns = "".join(
        f'<th scope="col" style="{_LINE};text-align:{"right" if i else "left"}">{escape(text)}</th>'
        for i, text in enumerate(head)
    )
    bold = [frozenset(column for line, column in marked if line == place) for place in range(len(rows))]
    body = "".join(_row(row, number=True, bold=bold[place]) for place, row in enumerate(rows))
    return (
        f'<table style="{_TABLE};margin-bottom:1em"><caption style="{_CAPTION}">{escape(caption)}</caption>'
        f"<thead><tr>{columns}</tr></thead><tbody>{body}</tbody></table>"
    )


def _row(cells: Iterable[str], *, number: bool, bold: Collection[int] = ()) -> str:
    first, *others = cells
    align = "right;white-space:nowrap" if number else "left"
    styles = (f"{_LINE};text-align:{align}" + (";font-weight:bold" if place in bold else "") for place in count(1))
    rest = "".join(f'<td style="{style}">{escape(text)}</td>' for style, text in zip(styles, others, strict=False))
    return f'<tr><th scope="row" style="{_LINE};text-align:left">{escape(first)}</th>{rest}</tr>'
