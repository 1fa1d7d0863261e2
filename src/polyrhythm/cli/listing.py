"""`polyrhythm runs`: the runs of a folder, filtered and sorted; imports nothing that trains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from polyrhythm.cli.columns import COLUMNS, Entry, chosen, is_number, sorted_by
from polyrhythm.cli.output import Screen, print_json
from polyrhythm.cli.run_words import line_of
from polyrhythm.results import Run
from polyrhythm.runs.database import damaged_runs, suspects
from polyrhythm.runs.labelling import read_labels
from polyrhythm.runs.labels import NONE
from polyrhythm.runs.search import Search

Cells = Sequence[Mapping[str, str]]
_CUT = 12  # characters that are left of a text at least
_WIDE, _NARROW = 3, 2  # characters between two columns
_MAY_GO = ("last 20", "rounds", "tags")  # of the usual ones, in this order
_WHOLE = ("run", "name", "status", "seed", "rounds", "final", "best", "last 20", "baseline", "archived")


@final
@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Wanted: which runs are listed, and how.

    Args:
        tags: each of which a run must have.
        status: how it must stand; None for any.
        method, data: texts that its method, its data must hold; "" for any.
        search: words as in the dashboard.
        archived: whether those in the archive are listed, too.
        sort: a column, with "-" before it for the greatest first; "" for the oldest first.
        columns: of the table, with commas between; "" for the usual ones, "+a,b" for more.
    """

    tags: Sequence[str] = ()
    status: str | None = None
    method: str = ""
    data: str = ""
    search: str = ""
    archived: bool = False
    sort: str = ""
    columns: str = ""


def list_runs(out: str, wanted: Wanted, *, as_json: bool) -> None:
    """The runs of a folder that are wanted.

    Raises:
        UserError: no run database, or a column that no run has.
    """
    folder, screen = Path(out), Screen(stderr=as_json)
    found = Run.all(folder, archived=True)
    labels = read_labels(folder) if found else {}
    damaged, odd = damaged_runs(folder), suspects(folder)
    damaged |= {run.id: damage for run in found if run.number in odd and (damage := run.checked())}
    for run_id, damage in damaged.items():
        screen.note(f"the record of the run {run_id} is damaged ({damage})")
    whole = [Entry(run, labels.get(run.id, NONE)) for run in found if run.id not in damaged]
    fitting = [entry for entry in whole if _fits(entry, wanted)]
    columns = chosen(wanted.columns, whole)
    listed = sorted_by(wanted.sort, fitting, whole)
    filtered = wanted != Wanted(sort=wanted.sort, columns=wanted.columns, archived=wanted.archived)
    if as_json:
        for entry in listed:
            print_json({**line_of(entry.run), "name": entry.run.name, **entry.labels.plain()})
        for run_id, damage in damaged.items() if not filtered else ():
            print_json({"run_id": run_id, "status": "damaged", "reason": damage})
        return
    if not wanted.columns and any(entry.labels.tags for entry in listed):
        columns = {name: COLUMNS[name] for name in ("run", "name", "tags")} | columns
    cells = [{name: entry.cell(value) for name, value in columns.items()} for entry in listed]
    if not filtered:
        marks = [{"run": run_id, "status": "damaged"} for run_id in damaged]
        cells += [{name: known.get(name, "–") for name in columns} for known in marks]
    numbers = {name for name, value in columns.items() if is_number(value, listed)}
    _print(screen, list(columns), cells, numbers, _MAY_GO if wanted.columns[:1] in ("", "+") else ())
    left = sum(bool(entry.labels.archived) for entry in whole)
    if left and not wanted.archived:
        screen.print(f"{left:,} in the archive: polyrhythm runs --archived", style="dim", highlight=False)
    if filtered:
        screen.print(f"{len(listed):,} of {len(whole):,} runs", style="dim", highlight=False)


def _fits(entry: Entry, wanted: Wanted) -> bool:
    run, labels = entry.run, entry.labels
    if (labels.archived and not wanted.archived) or not set(wanted.tags) <= set(labels.tags):
        return False
    for text, sought in ((entry.method, wanted.method), (entry.data, wanted.data)):
        if sought.lower() not in text.lower():
            return False
    if wanted.status is not None and entry.view.status != wanted.status:
        return False
    words = (run.name, entry.method, entry.data, entry.view.status, *labels.tags, labels.note)
    return not wanted.search or Search(wanted.search).fits(run.id, run.seed, words)


def _print(screen: Screen, columns: list[str], cells: Cells, numbers: set[str], may_go: Sequence[str]) -> None:
    """The table. Where it is too wide, texts lose their ends, then columns go that may; no name or number is broken."""
    widths = {name: max(len(name), *(len(cell[name]) for cell in cells), 0) for name in columns}
    wide = _table(dict.fromkeys(columns), cells, numbers, (0, 1))
    if screen.sees_no_width:
        screen.print_table(wide)
    elif _needs(widths, _WIDE) <= screen.width:
        screen.print(wide)
    elif (cut := _fitted(widths, screen.width, may_go)) is not None:
        screen.print(_table(cut, cells, numbers, (0, 1, 0, 0)))
        if gone := [name for name in columns if name not in cut]:
            screen.print(f"without {' and '.join(gone)}, for want of width", style="dim", highlight=False)
    else:
        screen.print_table(wide)


def _fitted(widths: Mapping[str, int], room: int, may_go: Sequence[str]) -> dict[str, int] | None:
    """The widths of a narrow table, without as many columns as must go; None if there is no room for one."""
    for many in range(len(may_go) + 1):
        cut = _narrowed({name: width for name, width in widths.items() if name not in may_go[:many]}, room)
        if _needs(cut, _NARROW) <= room:
            return cut
    return None


def _needs(widths: Mapping[str, int], gap: int) -> int:
    return sum(widths.values()) + gap * (len(widths) - 1) + 2  # the frame's ends


def _narrowed(widths: Mapping[str, int], room: int) -> dict[str, int]:
    """Widths at which texts lose their ends, the longest first, as far as that helps and may be."""
    found = dict(widths)
    for name in sorted((name for name in found if name not in _WHOLE), key=lambda name: -found[name]):
        over = max(0, _needs(found, _NARROW) - room)
        found[name] = max(min(found[name], _CUT), found[name] - over)
    return found


def _table(widths: Mapping[str, int | None], cells: Cells, numbers: set[str], padding: tuple[int, ...]) -> Table:
    """A table whose columns have their names and cells, cut to some widths."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=padding)  # type: ignore[arg-type]
    for name in widths:
        table.add_column(name, no_wrap=True, justify="right" if name in numbers else "left")
    for cell in cells:
        table.add_row(*(Text(_cut(cell[name], width)) for name, width in widths.items()))
    return table


def _cut(text: str, width: int | None) -> str:
    return text if width is None or len(text) <= width else f"{text[: width - 1]}…"
