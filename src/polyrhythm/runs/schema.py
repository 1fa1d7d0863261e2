"""The tables of the run database, by the schema that brought them, and what of a record is in which column."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from polyrhythm.runs.records import AnswerRecord, EventRecord, VersionRecord, VisitRecord

APPLICATION = 0x504F4C59  # "POLY": tells our files from anybody else's
VERSION = 4
# What later schemas added to the first one, by table: 2, cost accounting; 3, the digest of every version's model; 4,
# what went wrong.
_ADDED: Mapping[int, Mapping[str, str]] = {
    2: {
        "versions": (
            "forward_flops INTEGER, backward_flops INTEGER, joules REAL, compute_seconds REAL, link_seconds REAL, "
            "waiting_seconds REAL, visits INTEGER, dropped_visits INTEGER, late_visits INTEGER, lost_visits INTEGER, "
            "utilisation REAL, fairness REAL, groups TEXT, staleness_mean REAL, staleness_max INTEGER"
        ),
        "visits": (
            "gradient_samples INTEGER, forward_flops INTEGER, backward_flops INTEGER, joules REAL, "
            "down_seconds REAL, compute_seconds REAL, up_seconds REAL"
        ),
    },
    3: {"versions": "digest TEXT"},
    4: {"versions": "faults TEXT", "visits": "fault TEXT"},
}
# And the tables that they added: the roster's answers; the order of events.
_TABLES: Mapping[int, str] = {
    2: """
CREATE TABLE answers (
    run INTEGER NOT NULL REFERENCES runs (number), event INTEGER NOT NULL, place INTEGER NOT NULL,
    question TEXT, clients BLOB,
    PRIMARY KEY (run, event, place)
) WITHOUT ROWID
""",
    3: """
CREATE TABLE events (
    run INTEGER NOT NULL REFERENCES runs (number), event INTEGER NOT NULL,
    kind TEXT, number INTEGER, time REAL,
    PRIMARY KEY (run, event)
) WITHOUT ROWID
""",
}
_FIRST = """
CREATE TABLE runs (
    number INTEGER PRIMARY KEY, run_id TEXT NOT NULL UNIQUE, name TEXT NOT NULL,
    status TEXT NOT NULL, reason TEXT NOT NULL DEFAULT '', started TEXT NOT NULL, ended TEXT,
    seed INTEGER NOT NULL, rounds INTEGER, headline TEXT NOT NULL,
    recipe TEXT NOT NULL, recipe_digest TEXT NOT NULL, parameters INTEGER NOT NULL, clients INTEGER NOT NULL,
    config TEXT NOT NULL, config_digest TEXT NOT NULL, notices TEXT NOT NULL,
    libraries TEXT NOT NULL, machine TEXT NOT NULL, summary TEXT
);
CREATE TABLE versions (
    run INTEGER NOT NULL REFERENCES runs (number), version INTEGER NOT NULL,
    time REAL, wall REAL, cohort INTEGER, accepted INTEGER, dropped INTEGER, rate REAL, train_loss REAL,
    test TEXT, validation TEXT, train TEXT, clients TEXT,
    client_updates INTEGER, local_steps INTEGER, samples INTEGER, flops INTEGER, bytes_up INTEGER, bytes_down INTEGER,
    note TEXT, measures TEXT,
    PRIMARY KEY (run, version)
) WITHOUT ROWID;
CREATE TABLE visits (
    run INTEGER NOT NULL REFERENCES runs (number), dispatch INTEGER NOT NULL,
    client INTEGER, version INTEGER, visit INTEGER, status TEXT, reason TEXT,
    steps INTEGER, epochs REAL, samples INTEGER, held INTEGER, forward_samples INTEGER, loss REAL, update_norm REAL,
    bytes_down INTEGER, bytes_up INTEGER, flops INTEGER, started REAL, finished REAL, measures TEXT,
    PRIMARY KEY (run, dispatch)
) WITHOUT ROWID;
CREATE INDEX visits_of_client ON visits (run, client)
"""
Table = Literal["versions", "visits", "answers", "events"]
Record = VersionRecord | VisitRecord | AnswerRecord | EventRecord
RECORDS: Mapping[Table, type[Record]] = {
    "versions": VersionRecord,
    "visits": VisitRecord,
    "answers": AnswerRecord,
    "events": EventRecord,
}
TABLES: Mapping[type[Record], Table] = {record: table for table, record in RECORDS.items()}
ORDER: Mapping[Table, str] = {
    "versions": "version",
    "visits": "dispatch",
    "answers": "event, place",
    "events": "event",
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
    *("test", "validation", "train", "clients", "groups", "measures", "faults"),
    *("config", "notices", "libraries", "machine", "summary"),
}
_BROUGHT_BY: Mapping[tuple[str, str], int] = {
    (table, column.split()[0]): schema
    for schema, tables in _ADDED.items()
    for table, columns in tables.items()
    for column in columns.split(", ")
}


def statements(schema: int) -> Iterator[str]:
    """What makes the present schema of an earlier one, 0 for an empty file. What was not kept then stays unknown."""
    if schema == 0:
        yield from _FIRST.split(";")
    for later in range(max(schema, 1) + 1, VERSION + 1):
        for table, columns in _ADDED[later].items():
            yield from (f"ALTER TABLE {table} ADD COLUMN {column}" for column in columns.split(", "))
        if later in _TABLES:
            yield _TABLES[later]


def select(table: Table, schema: int, columns: Sequence[str] = ()) -> str | None:
    """The query for the rows of one run in a file of some schema, in order; None if it has no such table."""
    if any(schema < later and f"CREATE TABLE {table} " in text for later, text in _TABLES.items()):
        return None
    names = [
        name if schema >= _BROUGHT_BY.get((table, name), 1) else f"NULL AS {name}" for name in columns or COLUMNS[table]
    ]
    return f"SELECT {', '.join(names)} FROM {table} WHERE run = ? ORDER BY {ORDER[table]}"
