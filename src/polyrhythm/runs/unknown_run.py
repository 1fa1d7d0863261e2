"""The error for a run that nobody can find, with those that there are."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from polyrhythm.base.errors import UserError
from polyrhythm.runs.database import FILE

_MOST = 10  # runs that are named
_NEAR = 0.6


def unknown_run(reference: str, folder: Path, rows: Sequence[Mapping[str, Any]]) -> UserError:
    """The error, with the ids and names of the newest runs and those near to what was asked for.

    Args:
        reference: what was asked for.
        folder: the output folder.
        rows: of its runs, oldest first.
    """
    why = "there is no record under that id, name or beginning of an id"
    if Path(reference).name == reference and (folder / reference).is_dir():
        why = f"its folder is there, but its rows are missing from {folder / FILE}; in a backup they may be"
    near = _near(reference, rows)
    advice = "run something first" if not rows else f"`polyrhythm runs{_out(folder)}` lists all of them"
    if (Path(reference) / FILE).is_file():
        near, why = [], "it is a folder of runs, and none of the runs in it"
        here = Path(reference).resolve() == folder.resolve()
        advice = f"{advice}; that folder is looked in as it is" if here else f"say it with --out {reference}"
    return UserError(
        f"unknown run {reference!r} in {folder}",
        expected=_listed(rows),
        why=why,
        fix=f"did you mean {' or '.join(map(repr, near))}?" if near else advice,
    )


def _near(reference: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names and ids like it, names first; of a path into the folder the id that it ends in."""
    ids = [str(row["run_id"]) for row in rows]
    if (end := Path(reference).name) != reference and end in ids:
        return [end]
    names = list(dict.fromkeys(str(row["called"]) for row in rows if row["called"]))
    by_case = {name.lower(): name for name in names}
    close = difflib.get_close_matches(reference.lower(), by_case, n=3, cutoff=_NEAR)
    return [by_case[name] for name in close] or difflib.get_close_matches(reference, ids, n=3, cutoff=_NEAR)


def _listed(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return "a run, of which there is none yet"
    newest = [f"{row['run_id']} ({row['called']})" if row["called"] else str(row["run_id"]) for row in rows[-_MOST:]]
    more = f", and {len(rows) - _MOST:,} older ones" if len(rows) > _MOST else ""
    return f"an id, its beginning, or a name: {', '.join(reversed(newest))}{more}"


def _out(folder: Path) -> str:
    return "" if str(folder) == "runs" else f" --out {folder}"
