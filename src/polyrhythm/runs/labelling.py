"""Reads labels of runs from the run database, and changes them there, in a transaction of less than a millisecond."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from polyrhythm.base.errors import UserError
from polyrhythm.runs.database import FILE, check_log, check_schema, explained, reading
from polyrhythm.runs.decoding import as_text
from polyrhythm.runs.labels import NONE, Change, Labels, labels_in

_PATIENCE = 5.0  # seconds; a run that goes on holds the database for some thousandths of one
_THERE = "INSERT OR IGNORE INTO labels (run_id) SELECT run_id FROM runs WHERE run_id = ?"
_EMPTY = "DELETE FROM labels WHERE run_id = ? AND name IS NULL AND note = '' AND archived IS NULL AND pinned IS NULL"


def read_labels(folder: Path) -> dict[str, Labels]:
    """The labels of the runs of a folder, by id; runs without any are left out.

    Raises:
        UserError: there is no run database, or it cannot be read.
    """
    with reading(folder) as connection:
        if connection is None:
            return {}
        connection.text_factory = as_text
        return labels_in(connection)


def labels_of(folder: Path, run_id: str) -> Labels:
    """The labels of one run.

    Raises:
        UserError: there is no run database, or it cannot be read.
    """
    return read_labels(folder).get(run_id, NONE)


def baseline_of(folder: Path) -> str:
    """The id of the run that is pinned in a folder; "" if none is."""
    with contextlib.suppress(UserError):
        return next((run_id for run_id, labels in read_labels(folder).items() if labels.pinned), "")
    return ""


def label(folder: Path, run_ids: Sequence[str], change: Change) -> None:
    """Changes the labels of runs, of all or of none. Neither their rows nor any digest changes.

    Args:
        folder: the output folder.
        run_ids: of the runs.
        change: the change.

    Raises:
        UserError: the database is missing, locked, damaged, or may only be read.
    """
    fix = "correct the permissions of the file and its folder, or label a copy of the folder"
    why = "tags, notes, names, the archive and the baseline are kept in it, beside the runs"
    with changing(folder, why, fix) as connection:
        for run_id in run_ids:
            _apply(connection, run_id, change)


@contextlib.contextmanager
def changing(folder: Path, why: str, fix: str) -> Iterator[sqlite3.Connection]:
    """A transaction on a run database that is there, all of which is committed or nothing.

    Args:
        folder: the output folder.
        why: what is changed in it, for whoever may only read it.
        fix: what to do then.

    Raises:
        UserError: the database is missing, locked, damaged, or may only be read.
    """
    path = folder / FILE
    with reading(folder):  # refuses what is no run database
        pass
    check_log(path)
    with explained(path):
        try:
            with contextlib.closing(sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None)) as connection:
                check_schema(connection, path)
                connection.execute("BEGIN IMMEDIATE")  # closing takes back what was not committed
                yield connection
                connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF in {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN}:
                found = f"{path} may only be read"
                raise UserError(
                    found, expected="a run database that this process may write", why=why, fix=fix
                ) from error
            raise


def _apply(connection: sqlite3.Connection, run_id: str, change: Change) -> None:
    """One run's share of a change."""
    execute = connection.execute
    for tag in change.add:
        execute("INSERT OR IGNORE INTO tags (run_id, tag) SELECT run_id, ? FROM runs WHERE run_id = ?", (tag, run_id))
    for tag in change.remove:
        execute("DELETE FROM tags WHERE run_id = ? AND tag = ?", (run_id, tag))
    execute(_THERE, (run_id,))
    if change.name is not None:
        execute("UPDATE labels SET name = ? WHERE run_id = ?", (change.name or None, run_id))
    if change.note is not None:
        execute("UPDATE labels SET note = ? WHERE run_id = ?", (change.note, run_id))
    if change.archived is not None:
        since = datetime.now(UTC).isoformat(timespec="seconds") if change.archived else None
        execute("UPDATE labels SET archived = ? WHERE run_id = ?", (since, run_id))
    if change.pinned:
        execute("UPDATE labels SET pinned = NULL WHERE run_id <> ?", (run_id,))
    if change.pinned is not None:
        execute("UPDATE labels SET pinned = ? WHERE run_id = ?", (1 if change.pinned else None, run_id))
    execute(_EMPTY, (run_id,))
