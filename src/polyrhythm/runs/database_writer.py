"""Writes runs into the run database."""

from __future__ import annotations

import contextlib
import errno
import sqlite3
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from polyrhythm.base.errors import RunFailed
from polyrhythm.runs import schema as schemas
from polyrhythm.runs.database import FILE, check_log, check_pages, check_schema, explained, is_empty
from polyrhythm.runs.disk_faults import PATIENCE, Patience, is_full, is_locked
from polyrhythm.runs.json_text import to_json
from polyrhythm.runs.records import AnswerRecord, EventRecord
from polyrhythm.runs.schema import INSERT, RECORDS, TABLES, VALUES, Record, Table

_AS_THEY_ARE = frozenset({float, str, type(None)})
_END = "UPDATE runs SET status = ?, reason = ?, ended = ?, summary = ? WHERE number = ?"
_HALF_A_SECOND = 0.5
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
        self._path, self.patience = folder / FILE, Patience()
        self._saved = -1  # the last version that is in the database
        self.written: dict[Table, int] = dict.fromkeys(RECORDS, 0)
        """Rows of the run so far, committed or waiting, by table."""
        self._run: int | None = None
        self._pending: dict[Table, list[tuple[Any, ...]]] = {table: [] for table in RECORDS}
        self._ending: tuple[Any, ...] | None = None
        self._notices: str | None = None
        self._committed = self._heard = time.monotonic()
        with explained(self._path):
            if "\0" in str(folder):
                raise OSError(errno.EINVAL, "a null character in its name")
            folder.mkdir(parents=True, exist_ok=True)
            check_log(self._path)
            # The driver may tell its observers from another thread than the one that made them.
            self._connection = sqlite3.connect(
                self._path, timeout=patience, isolation_level=None, check_same_thread=False
            )
        try:
            with explained(self._path):
                self._prepare(patience)
                self._file = _identity(self._path)
        except BaseException:
            self._connection.close()
            raise

    def _prepare(self, patience: float) -> None:
        if not is_empty(self._connection):
            check_schema(self._connection, self._path)
            check_pages(self._connection, self._path, most=_LOOKED_THROUGH)
        _switch_to_wal(self._connection, patience)
        self._connection.execute("PRAGMA synchronous = NORMAL")
        with self._transaction():
            # Asked inside the transaction: two runs may start in an empty folder at the same moment.
            if is_empty(self._connection):
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
        with explained(self._path), self._transaction():
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
        with explained(self._path):
            check_pages(self._connection, self._path)
        with explained(self._path), self._transaction():
            execute = self._connection.execute
            self._run = int(execute("SELECT number FROM runs WHERE run_id = ?", (run_id,)).fetchone()[0])
            execute(update, [*(_cell(value) for value in changes.values()), run_id])
            for table in ("versions", "client_results", "class_results"):
                execute(f"DELETE FROM {table} WHERE run = ? AND version > ?", (self._run, cut.version))
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
        self.written[table] += 1
        self.replace(record)
        now = time.monotonic()
        due = now - self._committed >= _HALF_A_SECOND
        if table == "versions":
            due = due or now - self._heard >= _QUICK
            self._heard = now
        if due:
            self.commit()
        return due

    def replace(self, record: Record) -> None:
        """Takes a row in place of that of the same key."""
        table = TABLES[type(record)]
        row = [v if type(v) in _AS_THEY_ARE else _of_record(v) for v in VALUES[table](record)]
        self._pending[table].append((self._run, *row))

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
        self._check_there()
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
            if may_pass and self.patience.bears():
                return False
            long = f" for {PATIENCE:g} s" if may_pass else ""
            raise RunFailed(
                f"the run database {self._path} could not be written{long} ({error}). What was committed is kept: "
                + (f"all versions up to {self._saved}" if self._saved >= 0 else "no version yet")
            ) from error
        self.patience.over()
        if versions := self._pending["versions"]:
            self._saved = versions[-1][1]
        for rows in self._pending.values():
            rows.clear()
        self._notices = None
        self._committed = time.monotonic()
        return True

    def _check_there(self) -> None:
        # SQLite would go on writing into a file that has no name any more.
        if (found := _identity(self._path)) != self._file:
            what = "has been put in the place of" if found else "has removed"
            raise RunFailed(
                f"somebody {what} {self._path} while the run went on: what was recorded before, and all since, is not "
                "in that folder"
            )

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
        return self.patience.times

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
        self._check_there()

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


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file that is, under whatever name; None if there is none."""
    try:
        about = path.stat()
    except FileNotFoundError:
        return None
    return about.st_dev, about.st_ino


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


def _packed(numbers: tuple[int, ...] | tuple[float, ...]) -> bytes:
    """Whole numbers in four bytes each, others in eight, little-endian: less than as text, and made at once."""
    kind = "d" if numbers and isinstance(numbers[0], float) else "I"
    return struct.pack(f"<{len(numbers)}{kind}", *numbers)


def _of_record(value: Any) -> Any:
    """A value of a record as SQLite keeps it; several numbers, packed."""
    return _packed(value) if type(value) is tuple else _cell(value)


def _cell(value: Any) -> Any:
    """A value as SQLite keeps it: mappings and lists as JSON, NumPy's and torch's numbers as Python's."""
    if type(value) is int and -(2**63) < value < 2**63:
        return value
    if isinstance(value, (Mapping, list, tuple)):
        return to_json(value)
    number = value.item() if hasattr(value, "item") else value
    # Beyond 64 bits only the size matters, and a float has it.
    return float(number) if isinstance(number, int) and abs(number) >= 2**63 else number
