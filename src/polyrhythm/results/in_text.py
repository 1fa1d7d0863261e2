"""A comparison at a prompt: its tables in characters, with a small curve for each method."""

from __future__ import annotations

import bisect
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING

from polyrhythm.base.metric_names import in_words
from polyrhythm.figures.bands import band
from polyrhythm.results import result_tables, tables
from polyrhythm.results.chart import spark
from polyrhythm.results.tables import Table
from polyrhythm.results.verdict import verdict
from polyrhythm.runs.costs import On, score

if TYPE_CHECKING:
    from polyrhythm.runs.comparison import ComparedRuns
    from polyrhythm.runs.recorded import RecordedRun

CURVE = 16  # characters
FEW = 12  # settings that are listed without being asked for
_WIDTH = 80


def curves(found: ComparedRuns[RecordedRun], on: On = "test") -> tuple[Mapping[str, str], str]:
    """A small curve of each method's mean over its versions, all to one scale, and what that is, in words.

    A method that ended earlier ends earlier; of one without a curve the text is empty.
    """
    value = functools.partial(score, headline=found.headline, on=on)
    points = {name: band(rows, value, "version") for name, rows in found.versions.items()}
    known = [point["y"] for of in points.values() for point in of]
    if not known:
        return dict.fromkeys(points, ""), ""
    low, high, end = min(known), max(known), max(of[-1]["x"] for of in points.values() if of)
    drawn = {}
    for name, of in points.items():
        at, values = [point["x"] for point in of], list[float | None]()
        for place in range(CURVE if of else 0):
            x = end * place / (CURVE - 1)
            here = bisect.bisect_right(at, x + 1e-9) - 1
            values.append(of[here]["y"] if here >= 0 and x <= at[-1] + 1e-9 else None)
        drawn[name] = spark(values, low, high).rstrip()
    return drawn, f"curves: {low:.2f} to {high:.2f} over {end:,.0f} versions"


def comparison_text(found: ComparedRuns[RecordedRun]) -> str:
    """All that a reader needs: results with curves, the sentence that sums up, differences, and what to know first."""
    drawn, scale = curves(found)
    results = result_tables.accuracy(found, "test")
    head = (*results.head[:2], f"final {in_words(found.headline)}", "curve")
    rows = [(*row[:3], drawn[name]) for name, row in zip(found.methods, results.rows, strict=True)]
    parts = [*(f"note: {note}" for note in found.notes), plain(head, rows)]
    parts.append(f"{verdict(found)} {scale[:1].upper()}{scale[1:]}." if scale else verdict(found))
    if (apart := differences(found, "test")) is not None:
        parts.append(f"{in_words(found.headline)} minus that of {found.baseline}, paired by seed")
        parts.append(plain(apart.head, apart.rows))
        parts.append(f"{apart.caption}")
    if lines := settings(found):
        more = [f"and {len(lines) - FEW} more in `.settings`"] if len(lines) > FEW else []
        parts.append("\n".join(["what differs", *(f"  {line}" for line in [*lines[:FEW], *more])]))
    return "\n\n".join(parts)


def differences(found: ComparedRuns[RecordedRun], on: On) -> Table | None:
    """The paired differences of the final result, narrow enough for a terminal; None if there are none."""
    if len(found.methods) == 1:
        return None
    by = found.differences(on=on)
    return Table(
        name="differences",
        caption=f"95 % intervals; {tables.HOLDS_ZERO} holds 0. {result_tables.corrected_words(by)}",
        head=(result_tables.row_head(found), "n", "difference", "p", "Holm"),
        rows=tables.rows(
            (
                *(tables.marked(name, found.unfinished[name]), str(one.n)),
                *(tables.gain(one), tables.chance(one.p), tables.chance(one.holm)),
            )
            for name, one in by.items()
        ),
    )


def settings(found: ComparedRuns[RecordedRun]) -> list[str]:
    """A line for each setting in which methods differ: what most have, and what others have, with their names."""
    lines = []
    for key, values in found.settings.items():
        if key == "method" and all(value and value in name for name, value in values.items()):
            continue  # which the rows are called by
        by: dict[str, list[str]] = {}
        for name, value in values.items():
            by.setdefault(tables.NONE if value is None else value, []).append(name)
        order = sorted(by, key=lambda value: -len(by[value]))
        rest = [f"{value} ({', '.join(by[value])})" for value in order[1:]]
        most = order[0] if len(by[order[0]]) > 1 else f"{order[0]} ({by[order[0]][0]})"
        lines.append(f"{key}: {'; '.join([most, *rest])}")
    return lines


def plain(head: tuple[str, ...], rows: list[tuple[str, ...]] | tuple[tuple[str, ...], ...], width: int = _WIDTH) -> str:
    """A table in characters; where it is too wide, the cells of a row in lines of their own."""
    widths = [max(len(line[place]) for line in (head, *rows)) for place in range(len(head))]
    if sum(widths) + 2 * (len(widths) - 1) > width:
        return "\n".join(
            "\n".join([row[0], *(f"  {name}: {cell}" for name, cell in zip(head[1:], row[1:], strict=True) if cell)])
            for row in rows
        )
    lines = [head, tuple("─" * one for one in widths), *rows]
    left = {0, *(place for place, name in enumerate(head) if name == "curve")}
    return "\n".join(
        "  ".join(
            cell.ljust(size) if place in left else cell.rjust(size)
            for place, (cell, size) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
