"""Removes runs from a folder for good: their rows, their labels, and their files."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from polyrhythm.base.errors import UserError
from polyrhythm.runs.labelling import changing
from polyrhythm.runs.run_lock import is_alive
from polyrhythm.runs.schema import LABELS, RECORDS


def delete(folder: Path, run_ids: Sequence[str]) -> None:
    """Removes runs, all or none. The room they took in the database is used by later runs.

    Their rows go first: a run that is in no list any more may leave files if this is killed, but never the reverse.

    Args:
        folder: the output folder.
        run_ids: of the runs.

    Raises:
        UserError: one of them goes on, or has an id that leads elsewhere; the database is missing, locked, damaged,
            or may only be read.
    """
    for run_id in run_ids:
        if Path(run_id).name != run_id or run_id in {"", ".", ".."}:  # in a stranger's database
            raise UserError(
                f"a run with the id {run_id!r:.80}",
                expected="an id that polyrhythm gave",
                why="its files would be outside the folder",
                fix=f"remove {folder} as a whole, if it is yours",
            )
        if is_alive(folder / run_id):
            raise UserError(
                f"run {run_id} goes on",
                expected="runs that have ended",
                why="it writes into what would be removed",
                fix=f"polyrhythm stop {run_id}",
            )
    with changing(
        folder, "the rows of runs are in it", "correct the permissions of the file and its folder"
    ) as connection:
        for run_id in run_ids:
            _forget(connection, run_id)
    for run_id in run_ids:
        _remove(folder / run_id)


def _forget(connection: sqlite3.Connection, run_id: str) -> None:
    """Removes all rows of a run."""
    for table in RECORDS:
        query = f"DELETE FROM {table} WHERE run IN (SELECT number FROM runs WHERE run_id = ?)"
        connection.execute(query, (run_id,))
    for other in (*LABELS, "runs"):
        connection.execute(f"DELETE FROM {other} WHERE run_id = ?", (run_id,))


def _remove(place: Path) -> None:
    """Removes a run's files; of a link that stands for them, the link."""
    if place.is_symlink():
        place.unlink()
    elif place.is_dir():
        shutil.rmtree(place)


def size_of(place: Path) -> int:
    """Bytes of a run's files."""
    if place.is_symlink():
        return 0
    return sum(file.lstat().st_size for file in place.rglob("*") if file.is_file() and not file.is_symlink())
