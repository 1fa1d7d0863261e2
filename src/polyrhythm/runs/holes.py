"""What is missing from the record of a run: by what the rest of it says, or by what one of its checkpoints says.

A log that was damaged, or a file of another day, loses rows without an error: SQLite reads on with what is left. So the
tables are held against each other. All of it is read at one moment, and quick: rows are counted, and only where there
are too few of them their numbers are read.
"""

from __future__ import annotations

import contextlib
import heapq
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, final

from polyrhythm.runs.database import reading
from polyrhythm.runs.database_writer import Cut
from polyrhythm.runs.schema import ORDER, Table

_SHOWN = 3  # spans of numbers that are named
_SINGLE = ("version ", "visit ", "event ", "the event of ", "the report of ", "all of it")
_OF_THE_LOG = "the report{s} of visit{s} {numbers} in the log of updates"
_OVER = "SELECT count(*) FROM visits WHERE run = ? AND status <> 'unfinished'"
_UNHEARD = (
    "SELECT number FROM events WHERE run = ? AND kind = 'visit' AND event <= ? AND NOT EXISTS "
    "(SELECT 1 FROM visits WHERE visits.run = events.run AND dispatch = number) ORDER BY number"
)
_UNLOGGED = (
    "SELECT dispatch FROM visits WHERE run = ? AND status <> 'unfinished' AND NOT EXISTS "
    "(SELECT 1 FROM events WHERE events.run = visits.run AND kind = 'visit' AND number = dispatch) ORDER BY dispatch"
)
_REPORTED = "SELECT dispatch FROM visits WHERE run = ? AND status NOT IN ('lost', 'unfinished') ORDER BY dispatch"


def missing(
    folder: Path,
    run_number: int,
    *,
    reached: int = -1,
    finished: bool = False,
    recorded: Mapping[Table, int] | None = None,
) -> tuple[str, ...]:
    """What a run's tables lack of what the others have, in words, such as "versions 61 to 80".

    Args:
        folder: of the database.
        run_number: of the run in it.
        reached: a version that is known to have been recorded.
        finished: whether its end is on record as it was planned; else the last that was heard may be half written.
        recorded: rows that were written until its end, by table, if that is known.

    Raises:
        UserError: the database cannot be read.
    """
    with _at_one_moment(folder, run_number) as record:
        if record is None:
            return ("all of it",)
        found: dict[Table, list[str]] = {
            "versions": _named("version{s} {numbers}", record.gaps("versions", 0, max(reached, record.reached()) + 1)),
            "visits": _visits(record, finished=finished),
            "events": _events(record),
            "answers": _answers(record),
        }
        for table, written in (recorded or {}).items():
            there = record.rows(table) if table in ORDER else written
            if not found.get(table) and there < written:
                found[table] = [f"{written - there:,} of {written:,} {table}"]
    return tuple(words for of_table in found.values() for words in of_table)


def lacking(folder: Path, run_number: int, cut: Cut) -> tuple[str, ...]:
    """What a run's tables lack of what they held at a checkpoint, in words; rows from after it do not matter.

    Args:
        folder: of the database.
        run_number: of the run in it.
        cut: what they held.

    Raises:
        UserError: the database cannot be read.
    """
    with _at_one_moment(folder, run_number) as record:
        if record is None:
            return ("all of it",)
        under_way = sorted(cut.under_way)
        found = [
            *_named("version{s} {numbers}", record.gaps("versions", 0, cut.version + 1)),
            *_named("visit{s} {numbers}", record.gaps("visits", 0, cut.dispatched, under_way)),
            *_named("event{s} {numbers}", record.gaps("events", 1, cut.events)),
        ]
        if (there := record.rows("answers", "event < ?", cut.events)) < cut.answers:
            found.append(f"{cut.answers - there:,} of {cut.answers:,} answers")
    return tuple(found)


def unlike(folder: Path, run_number: int, cut: Cut) -> str:
    """Where a run's tables hold other numbers than at a checkpoint, in words; empty if they are the same.

    Compared are the last version's digest, and the sums of what visits have cost that are whole numbers.

    Args:
        folder: of the database.
        run_number: of the run in it; it lacks nothing of the checkpoint.
        cut: what they held.

    Raises:
        UserError: the database cannot be read.
    """
    with _at_one_moment(folder, run_number) as record:
        if record is None:
            return ""
        query = "SELECT 1 FROM versions WHERE run = ? AND version = ? AND coalesce(digest, '') = ?"
        if cut.version >= 0 and not record.numbers(query, cut.version, cut.digest):
            return f"version {cut.version} has another digest"
        for name, wanted in cut.sums.items():
            query = f"SELECT coalesce(sum({name}), 0) FROM visits WHERE run = ? AND dispatch "
            found = record.numbers(f"{query} < ?", cut.dispatched)[0]
            found -= sum(record.numbers(f"{query} = ?", dispatch)[0] for dispatch in cut.under_way)
            if isinstance(found, int) and found != wanted:  # beyond 64 bits they are kept as floats
                return f"{name.replace('_', ' ')} of its visits add up to {found:,}, and not to {wanted:,}"
    return ""


def unkept(folder: Path, run_number: int, logged: Iterable[int], before: Cut | None = None) -> tuple[str, ...]:
    """Reports that a run has heard and that its log of updates lacks, in words.

    Args:
        folder: of the database.
        run_number: of the run in it.
        logged: the dispatch numbers of reports that the log has.
        before: only of visits that were over at this checkpoint; of all if None.

    Raises:
        UserError: the database cannot be read.
    """
    with _at_one_moment(folder, run_number) as record:
        known = {*logged, *(() if before is None else before.under_way)}
        heard = [] if record is None else record.numbers(_REPORTED)
    lost = [n for n in heard if n not in known and (before is None or n < before.dispatched)]
    return tuple(_named(_OF_THE_LOG, _spans(lost)))


def in_words(missing: Sequence[str]) -> str:
    """What is missing, as the beginning of a sentence: "version 7 and 3 of 12 answers are missing from the record"."""
    one = len(missing) == 1 and missing[0].startswith(_SINGLE)
    return f"{_listed(missing)} {'is' if one else 'are'} missing from the record"


@contextlib.contextmanager
def _at_one_moment(folder: Path, run_number: int) -> Iterator[_Record | None]:
    with reading(folder) as connection:
        if connection is None:
            yield None
            return
        connection.execute("BEGIN")
        yield _Record(connection, run_number)


@final
class _Record:
    """The rows of one run."""

    def __init__(self, connection: sqlite3.Connection, run: int) -> None:
        self._connection, self._run = connection, run

    def numbers(self, query: str, *values: Any) -> list[Any]:
        """What a query gives whose first unknown is the run, one value a row."""
        return [row[0] for row in self._connection.execute(query, (self._run, *values))]

    def rows(self, table: Table, condition: str = "1", *values: Any) -> int:
        """How many there are in a table."""
        return int(self.numbers(f"SELECT count(*) FROM {table} WHERE run = ? AND {condition}", *values)[0])

    def last(self, table: Table, column: str) -> int:
        """The largest number in the column that a table is ordered by; -1 if it is empty."""
        return int(self.numbers(f"SELECT coalesce(max({column}), -1) FROM {table} WHERE run = ?")[0])

    def reached(self) -> int:
        """The last version that must have been there: of its own rows, or that a visit began from."""
        begun: list[int] = self.numbers(
            "SELECT coalesce(version, -1) FROM visits WHERE run = ? ORDER BY dispatch DESC LIMIT 1"
        )
        return max(self.last("versions", "version"), *(begun or [-1]))

    def gaps(self, table: Table, first: int, end: int, beside: Sequence[int] = ()) -> list[range]:
        """The numbers from `first` to before `end` that are neither in a table nor among others, which rise."""
        column = ORDER[table]
        condition = f"{column} >= ? AND {column} < ?"
        if not beside and self.rows(table, condition, first, end) == max(0, end - first):
            return []
        query = f"SELECT {column} FROM {table} WHERE run = ? AND {condition} ORDER BY {column}"
        gaps, due = [], first
        for number in heapq.merge(self.numbers(query, first, end), beside):
            if number > due:
                gaps.append(range(due, number))
            due = max(due, number + 1)
        return [*gaps, range(due, end)] if due < end else gaps


def _visits(record: _Record, *, finished: bool) -> list[str]:
    last = record.last("events", "event")
    if heard := record.numbers(_UNHEARD, last if finished else last - 1):
        return _named("visit{s} {numbers}", _spans(heard))
    counted = "SELECT visits FROM versions WHERE run = ? ORDER BY version DESC LIMIT 1"
    over = max(record.numbers(counted), default=0)
    there = record.numbers(_OVER)[0]
    return [f"{over - there:,} of {over:,} visits"] if over > there else []


def _events(record: _Record) -> list[str]:
    last = record.last("events", "event")
    if last < 0 and not record.rows("versions", "version > 0"):
        return []
    if gaps := record.gaps("events", 1, last + 1):
        return _named("event{s} {numbers}", gaps)
    return _named("the event{s} of visit{s} {numbers}", _spans(record.numbers(_UNLOGGED)))


def _answers(record: _Record) -> list[str]:
    gaps = "SELECT event FROM answers WHERE run = ? GROUP BY event HAVING count(*) <= max(place) ORDER BY event"
    return _named("answers in event{s} {numbers}", _spans(record.numbers(gaps)))


def _spans(numbers: Iterable[int]) -> list[range]:
    """Rising numbers as stretches without a gap."""
    spans: list[range] = []
    for number in numbers:
        if spans and spans[-1].stop == number:
            spans[-1] = range(spans[-1].start, number + 1)
        else:
            spans.append(range(number, number + 1))
    return spans


def _named(words: str, gaps: Sequence[range]) -> list[str]:
    """Spans of numbers put into words; nothing for none."""
    if not gaps:
        return []
    shown = [f"{gap[0]:,}" if gap[0] == gap[-1] else f"{gap[0]:,} to {gap[-1]:,}" for gap in gaps[:_SHOWN]]
    others = sum(gap.stop - gap.start for gap in gaps[_SHOWN:])
    shown = [*shown, f"{others:,} other{'s' if others > 1 else ''}"] if others else shown
    s = "" if len(gaps) == 1 and gaps[0][0] == gaps[0][-1] else "s"
    return [words.format(s=s, numbers=_listed(shown))]


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
