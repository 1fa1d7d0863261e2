"""The run database: one SQLite file per output folder, written by its runs and read by anybody at any time.

In WAL mode a reader never waits for a writer, nor a writer for a reader; with `synchronous=NORMAL` a killed process
loses nothing that was committed (a power cut may lose the last commits, but never damages the file).
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from polyrhythm.base.errors import RunFailed, UserError
from polyrhythm.runs import schema as schemas
from polyrhythm.runs.disk_faults import PATIENCE, Patience, is_full, is_locked
from polyrhythm.runs.json_text import to_json
from polyrhythm.runs.records import AnswerRecord, EventRecord
from polyrhythm.runs.schema import INSERT, JSON, RECORDS, TABLES, VALUES, Record, Table, select

FILE = "runs.sqlite"
LOG = f"{FILE}-wal"
"""What was committed and is not in that file yet."""
_AS_THEY_ARE = frozenset({float, str, type(None)})
_END = "UPDATE runs SET status = ?, reason = ?, ended = ?, summary = ? WHERE number = ?"
_HALF_A_SECOND = 0.5
_LOOKED_AT = 20_000  # records, to know whether there is anything of a kind
_LOOKED_THROUGH = 32_000_000  # bytes of a database that are read through before a run begins, in 0.1 s
_PAUSE = 0.05  # seconds between two tries when a run ends
_QUICK = 0.02  # seconds; a commit takes 0.1 ms, nothing beside a version slower than this


@final
@dataclass(frozen=True, kw_only=True)
class Cut:
    """What a run's record held at a checkpoint.

    Args:
        version: the last one; -1 for none.
        dispatched: visits that had been sent out, from the first.
        under_way: those of them that were not over.
        events: what the server had heard, and its start.
        answers: what it had been told of who is there.
        digest: of the last version's model, as its row has it.
        sums: of whole-numbered columns of the visits that were over, by column.
    """

    version: int = -1
    dispatched: int = 0
    under_way: tuple[int, ...] = ()
    events: int = 0
    answers: int = 0
    digest: str = ""
    sums: Mapping[str, int] = field(default_factory=dict)


@final
class Writer:
    """Writes one run. Rows are committed per version; quick versions share a transaction each half second.

    Args:
        folder: the output folder; made if missing.
        patience: seconds to wait for another process that holds the database.

    Raises:
        UserError: the folder or the database cannot be written, is locked, damaged, or somebody else's.
    """

    def __init__(self, folder: Path, *, patience: float = 5.0) -> None:
        self._path, self._patience = folder / FILE, Patience()
        self._saved = -1  # the last version that is in the database
        self.written: dict[Table, int] = dict.fromkeys(RECORDS, 0)
        """Rows of the run so far, committed or waiting, by table."""
        self._run: int | None = None
        self._pending: dict[Table, list[tuple[Any, ...]]] = {table: [] for table in RECORDS}
        self._ending: tuple[Any, ...] | None = None
        self._notices: str | None = None
        self._committed = self._heard = time.monotonic()
        with _explained(self._path):
            folder.mkdir(parents=True, exist_ok=True)
            _check_log(self._path)
            # The driver may tell its observers from another thread than the one that made them.
            self._connection = sqlite3.connect(
                self._path, timeout=patience, isolation_level=None, check_same_thread=False
            )
        try:
            with _explained(self._path):
                self._prepare(patience)
        except BaseException:
            self._connection.close()
            raise

    def _prepare(self, patience: float) -> None:
        if not _is_empty(self._connection):
            _check_schema(self._connection, self._path)
            _check_pages(self._connection, self._path, most=_LOOKED_THROUGH)
        _switch_to_wal(self._connection, patience)
        self._connection.execute("PRAGMA synchronous = NORMAL")
        with self._transaction():
            # Asked inside the transaction: two runs may start in an empty folder at the same moment.
            if _is_empty(self._connection):
                for statement in schemas.STATEMENTS:
                    self._connection.execute(statement)
                self._connection.execute(f"PRAGMA application_id = {schemas.APPLICATION}")
                self._connection.execute(f"PRAGMA user_version = {schemas.VERSION}")

    def start(self, row: Mapping[str, Any]) -> None:
        """Writes the row of a new run, by column.

        Raises:
            UserError: the database is locked, damaged or cannot be written.
        """
        insert = f"INSERT INTO runs ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})"
        with _explained(self._path), self._transaction():
            self._run = self._connection.execute(insert, [_cell(value) for value in row.values()]).lastrowid

    def resume(self, run_id: str, changes: Mapping[str, Any], cut: Cut) -> None:
        """Takes up a run that is in the database, as it was at a checkpoint: what was heard later is forgotten.

        Args:
            run_id: of the run.
            changes: to its row, by column.
            cut: what is kept.

        Raises:
            UserError: the database is locked, damaged or cannot be written.
        """
        update = f"UPDATE runs SET {', '.join(f'{column} = ?' for column in changes)} WHERE run_id = ?"
        with _explained(self._path):
            _check_pages(self._connection, self._path)
        with _explained(self._path), self._transaction():
            execute = self._connection.execute
            self._run = int(execute("SELECT number FROM runs WHERE run_id = ?", (run_id,)).fetchone()[0])
            execute(update, [*(_cell(value) for value in changes.values()), run_id])
            execute("DELETE FROM versions WHERE run = ? AND version > ?", (self._run, cut.version))
            for table in ("answers", "events"):
                execute(f"DELETE FROM {table} WHERE run = ? AND event >= ?", (self._run, cut.events))
            execute("DELETE FROM visits WHERE run = ? AND dispatch >= ?", (self._run, cut.dispatched))
            under_way = [(self._run, dispatch) for dispatch in cut.under_way]
            self._connection.executemany("DELETE FROM visits WHERE run = ? AND dispatch = ?", under_way)
            self.written = self._rows()

    def add(self, record: Record) -> bool:
        """Takes a row, and commits what is waiting if it is time. Says whether it was."""
        if isinstance(record, AnswerRecord):  # lazily: no answer is worth a commit
            known = None if record.clients is None else _packed(record.clients)
            self.written["answers"] += 1
            self._pending["answers"].append((self._run, record.event, record.place, record.question, known))
            return False
        if isinstance(record, EventRecord):
            self.written["events"] += 1
            self._pending["events"].append((self._run, record.event, record.kind, record.number, record.time))
            return False
        table = TABLES[type(record)]
        row = [v if type(v) in _AS_THEY_ARE else _cell(v) for v in VALUES[table](record)]
        self.written[table] += 1
        self._pending[table].append((self._run, *row))
        now = time.monotonic()
        due = now - self._committed >= _HALF_A_SECOND
        if table == "versions":
            due = due or now - self._heard >= _QUICK
            self._heard = now
        if due:
            self.commit()
        return due

    def note(self, notices: Sequence[str]) -> None:
        """Has these notices in place of the run's, from the next commit on."""
        self._notices = to_json(notices)

    def commit(self, *, patience: float = 1.0, durable: bool = False) -> bool:
        """Commits what is waiting. False if the database is locked or the disk full; the rows are kept for next time.

        Args:
            patience: seconds to wait for it.
            durable: whether all that was ever committed must also survive a power cut from now on.

        Raises:
            RunFailed: the database can no longer be written, or was locked or full for too long.
        """
        if not any(self._pending.values()) and self._ending is None and not durable:
            return True
        try:
            self._connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._connection.execute(f"PRAGMA busy_timeout = {int(patience * 1000)}")
            with self._transaction():
                for table, rows in self._pending.items():
                    self._connection.executemany(INSERT[table], rows)
                if durable:  # SQLite syncs its log only with something to commit
                    self._connection.execute("UPDATE runs SET status = status WHERE number = ?", (self._run,))
                if self._notices is not None:
                    self._connection.execute("UPDATE runs SET notices = ? WHERE number = ?", (self._notices, self._run))
                if self._ending is not None:
                    self._connection.execute(_END, self._ending)
        except sqlite3.Error as error:
            may_pass = is_locked(error) or is_full(error)
            if may_pass and self._patience.bears():
                return False
            long = f" for {PATIENCE:g} s" if may_pass else ""
            raise RunFailed(
                f"the run database {self._path} could not be written{long} ({error}). What was committed is kept: "
                + (f"all versions up to {self._saved}" if self._saved >= 0 else "no version yet")
            ) from error
        self._patience.over()
        if versions := self._pending["versions"]:
            self._saved = versions[-1][1]
        for rows in self._pending.values():
            rows.clear()
        self._notices = None
        self._committed = time.monotonic()
        return True

    @property
    def number(self) -> int:
        """The run's, in the database; after `start` or `resume`."""
        assert self._run is not None
        return self._run

    def is_whole(self) -> bool:
        """Whether every row that was written is there; to be asked after a commit."""
        return self._rows() == self.written

    def _rows(self) -> dict[Table, int]:
        counts = {table: f"SELECT count(*) FROM {table} WHERE run = ?" for table in self.written}
        return {table: self._connection.execute(query, (self._run,)).fetchone()[0] for table, query in counts.items()}

    @property
    def waits(self) -> int:
        """How often rows had to wait, since the database was locked or the disk full."""
        return self._patience.times

    def finish(self, *, status: str, reason: str, ended: str, summary: Mapping[str, Any]) -> None:
        """Commits everything, closes the run's row and the database; waits for it as long as for any other commit.

        Raises:
            RunFailed: the database stayed locked or full, or can no longer be written.
        """
        self._ending = (status, reason, ended, to_json(summary), self._run)
        try:
            while not self.commit():
                time.sleep(_PAUSE)
        finally:
            self.close()

    def close(self) -> None:
        """Closes the database. What is not committed is lost."""
        self._connection.close()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        # Ctrl-C may have come between a BEGIN and its block.
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        # IMMEDIATE takes the write lock at once, so that waiting for it happens here and never half-way.
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            # A full disk makes SQLite roll back by itself.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise


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
    _check_log(path)
    with _explained(path), contextlib.closing(_reader(path, patience)) as connection:
        if _is_empty(connection):
            yield None
        else:
            _check_schema(connection, path)
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


def _check_schema(connection: sqlite3.Connection, path: Path) -> None:
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


def _check_log(path: Path) -> None:
    """Refuses an empty file beside a log that is not: SQLite would take it for a new database, and remove the log."""
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_size == 0 and path.with_name(LOG).stat().st_size:
            raise _damaged(path, f"it is empty, and {LOG} beside it is not")


def _check_pages(connection: sqlite3.Connection, path: Path, most: int | None = None) -> None:
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


def _is_empty(connection: sqlite3.Connection) -> bool:
    return not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _switch_to_wal(connection: sqlite3.Connection, patience: float) -> None:
    # SQLite does not wait by itself when another process makes the same switch.
    end = time.monotonic() + patience
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if not is_locked(error) or time.monotonic() > end:
                raise
            time.sleep(0.01)
        else:
            return


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
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


def _packed(clients: tuple[int, ...]) -> bytes:
    """Clients in four bytes each, little-endian: half of what they take as text, and made at once."""
    return struct.pack(f"<{len(clients)}I", *clients)


def unpacked(clients: bytes) -> tuple[int, ...]:
    """Clients from the column `clients` of the table `answers`."""
    return struct.unpack(f"<{len(clients) // 4}I", clients)


def _cell(value: Any) -> Any:
    """A value as SQLite keeps it: mappings and lists as JSON, NumPy's and torch's numbers as Python's."""
    if type(value) is int and -(2**63) < value < 2**63:
        return value
    if isinstance(value, (Mapping, list, tuple)):
        return to_json(value)
    number = value.item() if hasattr(value, "item") else value
    # Beyond 64 bits only the size matters, and a float has it.
    return float(number) if isinstance(number, int) and abs(number) >= 2**63 else number
