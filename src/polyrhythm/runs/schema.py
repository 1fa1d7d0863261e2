"""The tables of the run database: their columns are the fields of the records that are kept in them."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Mapping, Sequence
from typing import Literal

from polyrhythm.runs.records import (
    AnswerRecord,
    ClassResultsRecord,
    ClientRecord,
    ClientResultsRecord,
    EventRecord,
    VersionRecord,
    VisitRecord,
)

APPLICATION = 0x504F4C59  # "POLY": tells our files from anybody else's
VERSION = 8
Table = Literal["versions", "visits", "answers", "events", "clients", "client_results", "class_results"]
Record = (
    VersionRecord | VisitRecord | AnswerRecord | EventRecord | ClientRecord | ClientResultsRecord | ClassResultsRecord
)
RECORDS: Mapping[Table, type[Record]] = {
    "versions": VersionRecord,
    "visits": VisitRecord,
    "answers": AnswerRecord,
    "events": EventRecord,
    "clients": ClientRecord,
    "client_results": ClientResultsRecord,
    "class_results": ClassResultsRecord,
}
TABLES: Mapping[type[Record], Table] = {record: table for table, record in RECORDS.items()}
ORDER: Mapping[Table, str] = {
    "versions": "version",
    "visits": "dispatch",
    "answers": "event, place",
    "events": "event",
    "clients": "client",
    "client_results": "version",
    "class_results": "version",
}
COLUMNS: Mapping[Table, list[str]] = {
    table: [f.name for f in dataclasses.fields(record)] for table, record in RECORDS.items()
}
VALUES = {table: operator.attrgetter(*names) for table, names in COLUMNS.items()}
# Replacing makes writing the same rows twice harmless: after Ctrl-C between a commit and forgetting what was committed.
INSERT = {
    table: f"INSERT OR REPLACE INTO {table} (run, {', '.join(names)}) VALUES (?{', ?' * len(names)})"
    for table, names in COLUMNS.items()
}
JSON = {
    *("test", "validation", "train", "clients", "groups", "spread", "measures", "faults"),
    *("config", "notices", "libraries", "machine", "summary", "classes"),
}
# Of columns, by the types of their fields; else text.
_NUMBERS = {"int": "INTEGER", "bool": "INTEGER", "float": "REAL"}
_TYPES = {**_NUMBERS, "tuple[int, ...]": "BLOB", "tuple[float, ...]": "BLOB"}
_RUNS = """
CREATE TABLE runs (
    number INTEGER PRIMARY KEY, run_id TEXT NOT NULL UNIQUE, name TEXT NOT NULL,
    status TEXT NOT NULL, reason TEXT NOT NULL DEFAULT '', started TEXT NOT NULL, ended TEXT,
    seed INTEGER NOT NULL, rounds INTEGER, headline TEXT NOT NULL,
    recipe TEXT NOT NULL, recipe_digest TEXT NOT NULL, parameters INTEGER NOT NULL, clients INTEGER NOT NULL,
    config TEXT NOT NULL, config_digest TEXT NOT NULL, notices TEXT NOT NULL,
    libraries TEXT NOT NULL, machine TEXT NOT NULL, summary TEXT, classes TEXT NOT NULL DEFAULT '[]'
)
"""


def _created(table: Table) -> str:
    fields = dataclasses.fields(RECORDS[table])
    columns = ", ".join(f"{f.name} {_TYPES.get(str(f.type).removesuffix(' | None'), 'TEXT')}" for f in fields)
    run = "run INTEGER NOT NULL REFERENCES runs (number)"
    return f"CREATE TABLE {table} ({run}, {columns}, PRIMARY KEY (run, {ORDER[table]})) WITHOUT ROWID"


# By id and not by number: no row of a run that was removed hands its labels on to another.
LABELS: Mapping[str, str] = {
    "labels": "CREATE TABLE labels (run_id TEXT PRIMARY KEY, name TEXT, note TEXT NOT NULL DEFAULT '', archived TEXT, "
    "pinned INTEGER UNIQUE CHECK (pinned = 1)) WITHOUT ROWID",
    "tags": "CREATE TABLE tags (run_id TEXT NOT NULL, tag TEXT NOT NULL, PRIMARY KEY (run_id, tag)) WITHOUT ROWID",
}
"""What makes the tables of what people say of runs."""
STATEMENTS = (
    *(_RUNS, *map(_created, RECORDS), *LABELS.values()),
    "CREATE INDEX visits_of_client ON visits (run, client)",
)
"""What makes the tables in an empty file."""


def select(table: Table, columns: Sequence[str] = (), where: str = "run = ?") -> str:
    """The query for the rows of one run, in order."""
    return f"SELECT {', '.join(columns or COLUMNS[table])} FROM {table} WHERE {where} ORDER BY {ORDER[table]}"
