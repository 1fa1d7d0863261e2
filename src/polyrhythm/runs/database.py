"""The run database: one SQLite file per output folder, which anybody may read at any time.

Its runs write it, with `database_writer`. In WAL mode a reader never waits for a writer, nor a writer for a reader;
with `synchronous=NORMAL` a killed process loses nothing that was committed (a power cut may lose the last commits, but
never damages the file).
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyrhythm.base.errors import UserError
from polyrhythm.runs import schema as schemas
from polyrhythm.runs.decoding import Damage, as_text, check_kinds, decoded
from polyrhythm.runs.disk_faults import is_locked
from polyrhythm.runs.labels import NONE, labels_in
from polyrhythm.runs.schema import COLUMNS, JSON, LABELS, RECORDS, Table, select

if TYPE_CHECKING:  # whoever lists runs needs none of it
    import numpy as np

FILE = "runs.sqlite"
LOG = f"{FILE}-wal"
"""What was committed and is not in that file yet."""
_HEARD = (
    "SELECT version, client, finished FROM visits WHERE run = ? AND (status = 'trained' OR "
    "(status = 'skipped' AND reason <> 'silent')) ORDER BY dispatch"
)
_LOOKED_AT = 20_000  # records, to know whether there is anything of a kind


def read_runs(folder: Path) -> list[dict[str, Any]]:
    """The rows of a folder's runs, oldest first, without those that are damaged.

    Raises:
        UserError: there is no run database, or it cannot be read.
    """
    return [row for row, damage in _rows_of_runs(folder) if not damage]


def read_run(folder: Path, run_id: str) -> dict[str, Any] | None:
    """The row of the run with this id; None if there is none.

    Raises:
        UserError: it is damaged, there is no run database, or it cannot be read.
    """
    for row, damage in _rows_of_runs(folder, run_id):
        if damage:
            raise damaged_run(folder, row["run_id"], damage)
        return row
    return None


def damaged_runs(folder: Path, reference: str | None = None) -> dict[str, str]:
    """What cannot be read in the rows of runs that `read_runs` leaves out, by the run's id.

    Args:
        folder: the output folder.
        reference: a name, an id or the beginning of one, of the runs that are meant; None for all.

    Raises:
        UserError: there is no run database, or it cannot be read.
    """
    return {row["run_id"]: damage for row, damage in _rows_of_runs(folder) if damage and _fits(row, reference)}


def _fits(row: Mapping[str, Any], reference: str | None) -> bool:
    return reference is None or (reference != "" and (row["name"] == reference or row["run_id"].startswith(reference)))


def damaged_run(folder: Path, run_id: str, damage: str) -> UserError:
    """The error for a run whose row cannot be read."""
    return UserError(
        f"the row of the run {run_id} in {folder / FILE} is damaged ({damage})",
        expected="the row as the run has written it",
        why="what the run was, or what came of it, is not known from it; other runs are not touched by that",
        fix="put a backup of the database there, or run it again",
    )


def suspects(folder: Path) -> frozenset[int]:
    """The numbers of runs in whose versions or visits a text is no JSON, found without reading any of them.

    Raises:
        UserError: there is no run database, or it cannot be read.
    """
    found = set[int]()
    with reading(folder) as connection:
        if connection is None:
            return frozenset()
        for table in ("versions", "visits"):
            texts = (name for name in COLUMNS[table] if name in JSON)
            records = " OR ".join(f"{name} IS NOT NULL AND NOT json_valid({name})" for name in texts)
            found |= {run for (run,) in connection.execute(f"SELECT DISTINCT run FROM {table} WHERE {records}")}
    return frozenset(found)


def checked(folder: Path, number: int) -> tuple[list[dict[str, Any]], str]:
    """The versions of a run, and what cannot be read in them and in its visits, in words; empty if all of it can be.

    Raises:
        UserError: there is no run database, or it cannot be read.
    """
    try:
        versions = _rows(folder, select("versions"), (number,))
        with reading(folder) as connection:
            whole = " AND ".join(f"json_valid(coalesce({name}, 'null'))" for name in COLUMNS["visits"] if name in JSON)
            query = f"SELECT dispatch FROM visits WHERE run = ? AND NOT ({whole}) LIMIT 1"
            found = [] if connection is None else connection.execute(query, (number,)).fetchall()
    except Damage as damage:
        return [], str(damage)
    return versions, f"visit {found[0][0]} has a text that is none of JSON" if found else ""


def read_records(
    folder: Path, table: Table, run_number: int, columns: Sequence[str] = (), *, last: int | None = None
) -> list[dict[str, Any]]:
    """The rows of one of a run's tables, in order: all columns, or some; or so many of the last ones, newest first.

    Raises:
        UserError: there is no run database, or it cannot be read.
    """
    if last is not None:
        return _read(folder, f"{select(table, columns)} DESC LIMIT ?", (run_number, last))
    return _read(folder, select(table, columns), (run_number,))


def read_versions(folder: Path, run_number: int, first: int, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Some columns of a run's versions from one on, in order, found without reading those before it.

    Raises:
        UserError: there is no run database, or it cannot be read.
    """
    return _read(folder, select("versions", columns, "run = ? AND version >= ?"), (run_number, first))


def read_heard(folder: Path, run_number: int) -> np.ndarray:
    """The version that each update of a run started from, and its client, in the order they came in, [updates, 2].

    Updates that count, trained or sent in place of training; without a look at each row, for millions of them.

    Raises:
        UserError: there is no run database, or it cannot be read.
    """
    import numpy as np

    with reading(folder) as connection:
        rows = [] if connection is None else connection.execute(_HEARD, (run_number,)).fetchall()
    try:
        found = np.array(rows, dtype=np.float64).reshape(-1, 3)  # whole numbers up to 2 ** 53
        order = np.argsort(found[:, 2], kind="stable")  # of those that came together the one that set out first
        return found[order, :2].astype(np.int64)
    except (TypeError, ValueError, OverflowError) as error:
        raise damaged(folder / FILE, f"visits: {error}") from None


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
    rows = read_records(folder, "versions", run_number, last=1)
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
    if not os.path.isfile(path):  # also of a name that is too long
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
    try:
        return _rows(folder, query, values)
    except Damage as damage:
        raise damaged(folder / FILE, str(damage)) from None


def _rows(folder: Path, query: str, values: tuple[Any, ...]) -> list[dict[str, Any]]:
    """The same.

    Raises:
        Damage: a text in a row cannot be read.
    """
    with reading(folder) as connection:
        if connection is None:
            return []
        connection.row_factory = sqlite3.Row
        connection.text_factory = as_text
        return [decoded(row) for row in connection.execute(query, values)]


def _rows_of_runs(folder: Path, run_id: str | None = None) -> list[tuple[dict[str, Any], str]]:
    """Of each run its row, of one that is damaged its id and name alone, and what is damaged in it.

    Beside the columns a row has what the run is `called` now, and whether it is `archived`.
    """
    found = list[tuple[dict[str, Any], str]]()
    with reading(folder) as connection:
        if connection is None:
            return []
        connection.row_factory = sqlite3.Row
        connection.text_factory = as_text
        query = "SELECT * FROM runs WHERE run_id = coalesce(?, run_id) ORDER BY number"
        labels = labels_in(connection)
        for number, row in enumerate(connection.execute(query, (run_id,)), start=1):
            run, name = (text if isinstance(text := row[key], str) else "" for key in ("run_id", "name"))
            try:
                whole = decoded(row)
                check_kinds(whole)
            except Damage as damage:
                found.append(({"run_id": run or f"in row {number}", "name": name}, str(damage)))
            else:
                of_run = labels.get(run, NONE)
                found.append((whole | {"called": of_run.name or name, "archived": bool(of_run.archived)}, ""))
    return found


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
    if gone := sorted({"runs", *RECORDS, *LABELS} - found):
        raise damaged(path, f"no table {gone[0]}")


def check_log(path: Path) -> None:
    """Refuses an empty file beside a log that is not: SQLite would take it for a new database, and remove the log."""
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_size == 0 and path.with_name(LOG).stat().st_size:
            raise damaged(path, f"it is empty, and {LOG} beside it is not")


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
        raise damaged(path, " ".join(str(found).split()))


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
        reason = "it is a file" if os.path.isfile(path.parent) else error.strerror or str(error)
        raise _not_writable(path.parent, reason) from error
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
            raise damaged(path, str(error)) from error
        raise _not_writable(path, str(error)) from error


def damaged(path: Path, found: str) -> UserError:
    """The error for a database whose rows cannot be trusted.

    Args:
        path: its file.
        found: what is wrong.
    """
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


def unpacked(numbers: bytes) -> tuple[int, ...]:
    """Whole numbers from a column that holds several, such as `clients` of the table `answers`."""
    return struct.unpack(f"<{len(numbers) // 4}I", numbers)


def unpacked_floats(numbers: bytes) -> tuple[float, ...]:
    """Numbers from a column that holds several, such as `scores` of the table `client_results`."""
    return struct.unpack(f"<{len(numbers) // 8}d", numbers)
