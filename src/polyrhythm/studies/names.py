"""Names in a study: of itself, of its rows, columns and cells; where they lead, and whether they are there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from polyrhythm.base.errors import UserError, unknown
from polyrhythm.runs.labels import LONGEST_NAME
from polyrhythm.studies.claims import MEASURES

Defined = Any
"""A `Study`, whose module imports this one."""


def named(row: str, column: str) -> str:
    """A cell, in words."""
    return f"{row}, {column}" if row and column else row or column


def wrong_names(study: Defined) -> Iterator[UserError]:
    """Names that lead elsewhere than into the study's folder, that no run can have, or that two cells would share."""
    rows = [row for row in study.rows if row or len(study.rows) > 1]
    columns = [column for column in study.columns if column or len(study.columns) > 1]
    for name in (study.name, *rows) if not study.apart else ():
        if not name or any(sign in name for sign in "/\\") or name.startswith(".") or name == "best":
            yield _refused_name(
                name,
                "a name without slashes, that does not begin with a dot, and is not best",
                "runs are called by study, row and trial, with slashes between",
            )
    parts = study.name.split("/")
    if study.apart and not all(part and not part.startswith(".") and "\\" not in part for part in parts):
        yield _refused_name(
            study.name,
            "names with slashes between them, none of which begins with a dot",
            "its runs and its page lie in a folder of this name",
        )
    for name in (study.name, *rows, *columns):
        if not name or not name.isprintable() or name != name.strip():
            yield _refused_name(
                name,
                "printable characters, without spaces at the ends",
                "it is written on pages, and runs are called by it",
            )
    cells: dict[str, tuple[str, str]] = {}
    for cell in ((row, column) for column in study.columns for row in study.rows):
        name = named(*cell)
        if name in cells:
            yield _refused_name(
                name,
                f"one cell of this name: it would be that of {cells[name]} and of {cell}",
                "runs are told apart by the names of their row and column",
            )
        elif len(name) + len(study.name) + 20 > LONGEST_NAME:
            yield _refused_name(name, f"at most {LONGEST_NAME - 20 - len(study.name)} characters", "a run is called so")
        cells[name] = cell


def _refused_name(name: str, expected: str, why: str) -> UserError:
    return UserError(f"the name {name!r:.120}", expected=expected, why=why, fix="give another name")


def unknown_names(study: Defined) -> Iterator[UserError]:
    """Names of rows and columns that are not there, wherever one is meant."""
    if study.measure not in MEASURES:
        yield unknown("measure", study.measure, MEASURES)
    named: list[tuple[str, Sequence[str], Sequence[str]]] = [
        (f"the claim {claim.says!r}", claim.rows, (*claim.columns, *claim.grows_over)) for claim in study.claims
    ]
    named += [(f"the scale {name}", scale.rows, scale.columns) for name, scale in study.scales.items()]
    named += [("the paper's numbers", [row], [column]) for row, column in study.numbers]
    cells = [*study.rows, *study.columns]
    for item, shown_by in study.shown_by.items():
        if item not in study.items:
            yield unknown("item", item, study.items, where="shown_by")
        yield from (unknown("row or column", one, cells, where=item) for one in shown_by if one not in cells)
    searches = [study.search, *(study.search.at(scale) for scale in study.scales.values())] if study.search else []
    for search in searches:
        of_rows = [*search.rows, *(row for own in search.columns.values() for row in own.rows)]
        named.append(("the search", of_rows, [*([search.column] if search.column else []), *search.columns]))
    for where, rows, columns in named:
        for kind, names, known in (("row", rows, study.rows), ("column", columns, study.columns)):
            yield from (unknown(kind, name, known, where=where) for name in names if name not in known)
