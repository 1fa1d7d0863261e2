"""Removes runs from a folder for good: their rows, their labels, and their files."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from polyrhythm.base.errors import UserError
from polyrhythm.runs.database import FILE, check_log, check_schema, explained, reading
from polyrhythm.runs.run_lock import is_alive
from polyrhythm.runs.schema import LABELS, RECORDS

_PATIENCE = 5.0  # seconds; a run that goes on holds the database for some thousandths of one


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
    path = folder / FILE
    with reading(folder):  # refuses what is no run database
        pass
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
    check_log(path)
    with explained(path):
        try:
            with contextlib.closing(sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None)) as connection:
                check_schema(connection, path)
                connection.execute("BEGIN IMMEDIATE")  # closing takes back what was not committed
                for run_id in run_ids:
                    _forget(connection, run_id)
                connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF in {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN}:
                raise UserError(
                    f"{path} may only be read",
                    expected="a run database that this process may write",
                    why="the rows of runs are in it",
                    fix="correct the permissions of the file and its folder",
                ) from error
            raise
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
