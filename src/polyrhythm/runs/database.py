"""The run database: one SQLite file per output folder, which anybody may read at any time.

Its runs write it, with `database_writer`. In WAL mode a reader never waits for a writer, nor a writer for a reader;
with `synchronous=NORMAL` a killed process loses nothing that was committed (a power cut may lose the last commits, but
never damages the file).
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from polyrhythm.base.errors import UserError
from polyrhythm.runs import schema as schemas
from polyrhythm.runs.disk_faults import is_locked
from polyrhythm.runs.schema import JSON, RECORDS, Table, select

FILE = "runs.sqlite"
LOG = f"{FILE}-wal"
"""What was committed and is not in that file yet."""
_LOOKED_AT = 20_000  # records, to know whether there is anything of a kind


def read_runs(folder: Path, run_id: str | None = None) -> list[dict[str, Any]]:
    """The rows of a folder's runs, oldest first; or of the one with this id.

    Raises:
        UserError: there is no run database, or it cannot be read.
    """
    return _read(folder, "SELECT * FROM runs WHERE run_id = coalesce(?, run_id) ORDER BY number", (run_id,))


def read_records(folder: Path, table: Table, run_number: int, columns: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The rows of one of a run's tables, in order: all columns, or some.

    Raises:
        UserError: there is no run database, or it cannot be read.
    """
    return _read(folder, select(table, columns), (run_number,))


def read_versions(folder: Path, run_number: int, first: int, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Some columns of a run's versions from one on, in order, found without reading those before it.

    Raises:
        UserError: there is no run database, or it cannot be read.
    """
    return _read(folder, select("versions", columns, "run = ? AND version >= ?"), (run_number, first))


def any_record(folder: Path, table: Table, run_number: int, condition: str) -> bool:
    """Whether a condition in SQL holds for one of a run's records; of its visits, for one of the first thousands.

    Raises:
        UserError: there is no run database, or it cannot be read.
    """
    records = select(table)
    query = f"SELECT 1 FROM ({records} LIMIT {_LOOKED_AT}) WHERE {condition} LIMIT 1"
    return bool(_read(folder, query, (run_number,)))


def read_last_version(folder: Path, run_number: int) -> dict[str, Any] | None:
    """The row of a run's newest version, found without reading those before it; None if it has none.

    Raises:
        UserError: there is no run database, or it cannot be read.
    """
    rows = _read(folder, f"{select('versions')} DESC LIMIT 1", (run_number,))
    return rows[0] if rows else None


@contextlib.contextmanager
def reading(folder: Path, *, patience: float = 5.0) -> Iterator[sqlite3.Connection | None]:
    """A connection that can only read; None while the first run of the database is just starting.

    A run that writes neither waits for it nor is waited for.

    Args:
        folder: the output folder.
        patience: seconds to wait for a process that lets nobody read, as a database browser may.

    Raises:
        UserError: there is no run database, or it cannot be read.
    """
    path = folder / FILE
    if not path.is_file():
        raise UserError(
            f"no run database in {folder}",
            expected=f"a file {path}, which every run writes",
            why="without it there are no runs to show",
            fix="give the output folder of your runs (--out FOLDER), or run something first",
        )
    check_log(path)
    with explained(path), contextlib.closing(_reader(path, patience)) as connection:
        if is_empty(connection):
            yield None
        else:
            check_schema(connection, path)
            yield connection


def _read(folder: Path, query: str, values: tuple[Any, ...]) -> list[dict[str, Any]]:
    """What a query gives; nothing if there are no tables yet."""
    with reading(folder) as connection:
        if connection is None:
            return []
        connection.row_factory = sqlite3.Row
        return [_decoded(row) for row in connection.execute(query, values)]


def _reader(path: Path, patience: float) -> sqlite3.Connection:
    """A read-only connection, also where nothing may be written (an archive): there SQLite needs to be told so."""
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=patience)
    try:
        _pragma(connection, "user_version")
    except sqlite3.OperationalError as error:
        connection.close()
        refused = error.sqlite_errorcode & 0xFF in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}
        if not refused or path.with_name(f"{FILE}-wal").exists():
            raise
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True)
    return connection


def check_schema(connection: sqlite3.Connection, path: Path) -> None:
    """Refuses a database of something else, of another schema, or without some of its tables."""
    if _pragma(connection, "application_id") != schemas.APPLICATION:
        raise UserError(
            f"{path} is a database, but not of runs",
            expected="a run database, or no file of that name",
            why="writing into somebody else's database would spoil it",
            fix="give another output folder (--out FOLDER)",
        )
    schema = _pragma(connection, "user_version")
    if schema != schemas.VERSION:
        raise UserError(
            f"{path} has schema {schema}",
            expected=f"schema {schemas.VERSION}, which this version of polyrhythm writes and reads",
            why="its columns are others, or mean something else",
            fix="use the version of polyrhythm that wrote it, or another output folder (--out FOLDER)",
        )
    found = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if gone := sorted({"runs", *RECORDS} - found):
        raise _damaged(path, f"no table {gone[0]}")


def check_log(path: Path) -> None:
    """Refuses an empty file beside a log that is not: SQLite would take it for a new database, and remove the log."""
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_size == 0 and path.with_name(LOG).stat().st_size:
            raise _damaged(path, f"it is empty, and {LOG} beside it is not")


def check_pages(connection: sqlite3.Connection, path: Path, most: int | None = None) -> None:
    """Refuses a database whose pages do not fit together, before anything is written into it.

    Args:
        connection: to it.
        path: its file.
        most: bytes; of a larger one only the list of runs is looked at, as the whole takes a second for 400 MB.
    """
    large = most is not None and path.stat().st_size > most
    found = connection.execute("PRAGMA quick_check(runs)" if large else "PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise _damaged(path, " ".join(str(found).split()))


def is_empty(connection: sqlite3.Connection) -> bool:
    """Whether it has no tables yet."""
    return not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turns what SQLite or the file system refuses into an error that says what to do."""
    try:
        yield
    except OSError as error:
        raise _not_writable(path.parent, error.strerror or str(error)) from error
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if is_locked(error):
            raise UserError(
                f"{path} is locked by another process",
                expected="a run database that this process may write",
                why="the run could not be recorded",
                fix="end the process that holds it (often a database browser), or use another folder (--out FOLDER)",
            ) from error
        # Our statements are right, so a table or a column that they do not find is gone; other texts have no code.
        if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, 0}:
            raise _damaged(path, str(error)) from error
        raise _not_writable(path, str(error)) from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise _damaged(path, f"a text in it cannot be read: {error}") from error


def _damaged(path: Path, found: str) -> UserError:
    return UserError(
        f"{path} is damaged ({found})",
        expected="an SQLite database",
        why="rows in it cannot be trusted",
        fix=f"move it and {LOG} away, and put a backup there, or what `sqlite3 {FILE} .recover | sqlite3 saved.sqlite` "
        "makes of it; or use another folder (--out FOLDER). The weights in the folders beside it are whole",
    )


def _not_writable(path: Path, reason: str) -> UserError:
    return UserError(
        f"{path} cannot be used: {reason}",
        expected="a folder in which files can be read and written",
        why="the run could not be recorded",
        fix="correct its permissions, free space, or use another folder (--out FOLDER)",
    )


def _decoded(row: sqlite3.Row) -> dict[str, Any]:
    # `clients` is a number in a run's row and a mapping in a version's.
    return {
        name: json.loads(value) if name in JSON and isinstance(value, str) else value
        for name, value in zip(row.keys(), row, strict=True)
    }


def unpacked(clients: bytes) -> tuple[int, ...]:
    """Clients from the column `clients` of the table `answers`."""
    return struct.unpack(f"<{len(clients) // 4}I", clients)
