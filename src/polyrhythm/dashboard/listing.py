"""All runs of a folder in little: a row and a small curve each, from queries that read a few pages of each run."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import Any, final

from polyrhythm.base.metric_names import is_between_0_and_1
from polyrhythm.runs.database import FILE, reading
from polyrhythm.runs.labels import NONE, Labels, labels_in
from polyrhythm.runs.view import as_it_stands

POINTS = 32
"""Of a small curve, at most."""

_NOTE = 200  # characters of a note that are searched
_PATIENCE = 0.3  # seconds; a page that says "locked" is better than one that hangs
_RUNS = """
SELECT number, run_id AS id, name, status, reason, started, ended, seed, rounds, headline, recipe,
    CASE WHEN json_valid(config) THEN json_extract(config, '$.data') END AS data,
    CASE WHEN json_valid(config) THEN json_extract(config, '$.method') END AS method,
    CASE WHEN json_valid(config) THEN json_type(config, '$.method') END AS written,
    CASE WHEN json_valid(config) THEN json_extract(config, '$.clients') END AS clients,
    (SELECT max(version) FROM versions WHERE run = number) AS version
FROM runs ORDER BY number
"""
_END = "SELECT status, reason, ended FROM runs WHERE number = ?"
# Of each of so many equal stretches of a run, the first version that was evaluated; found by the primary key.
_CURVE = """
WITH RECURSIVE stretch (k) AS (SELECT 0 UNION ALL SELECT k + 1 FROM stretch WHERE k + 1 < min(:points, :last))
SELECT (
    SELECT CASE WHEN json_valid(test) THEN json_extract(test, :metric) END FROM versions
    WHERE run = :run AND version >= k * :last / min(:points, :last)
        AND version < (k + 1) * :last / min(:points, :last) AND test IS NOT NULL
    ORDER BY version LIMIT 1
) FROM stretch
"""
_LATEST = """
SELECT CASE WHEN json_valid(test) THEN json_extract(test, :metric) END FROM versions
WHERE run = :run AND test IS NOT NULL ORDER BY version DESC LIMIT 1
"""


@final
class Listing:
    """The runs of a folder. What has ended is read once.

    Args:
        folder: the output folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._curves: dict[tuple[Any, ...], list[float]] = {}

    def stamp(self) -> tuple[tuple[int, int], ...]:
        """Is another one as soon as anything has been written into the database; costs two system calls."""
        found = []
        for name in (FILE, f"{FILE}-wal"):
            try:
                about = (self.folder / name).stat()
            except OSError:
                found.append((0, 0))
            else:
                found.append((about.st_mtime_ns, about.st_size))
        return tuple(found)

    def runs(self) -> list[dict[str, Any]]:
        """Every run, oldest first: what its row says, how it stands now, its last version and score, a small curve.

        Raises:
            UserError: there is no run database, or it cannot be read now.
        """
        with reading(self.folder, patience=_PATIENCE) as connection:
            if connection is None:
                return []
            connection.row_factory = sqlite3.Row
            connection.text_factory = lambda found: found.decode(errors="replace")
            labels = labels_in(connection)
            rows = connection.execute(_RUNS).fetchall()
            return [self._run(connection, dict(row), labels.get(row["id"], NONE)) for row in rows]

    def _run(self, connection: sqlite3.Connection, row: dict[str, Any], labels: Labels) -> dict[str, Any]:
        written, method = row.pop("written"), row.pop("method")
        again = connection.execute
        row = as_it_stands(self.folder, row["id"], row, lambda: dict(again(_END, (row["number"],)).fetchone()))
        curve = self._curve(connection, row)
        return {
            **row,
            "name": labels.name or row["name"],
            **labels.plain(),
            "note": labels.note[:_NOTE],
            "method": method if written == "text" else row["recipe"],
            "score": curve[-1] if curve else None,
            "curve": curve,
            "share": is_between_0_and_1(str(row["headline"])),
        }

    def _curve(self, connection: sqlite3.Connection, row: dict[str, Any]) -> list[float]:
        key = (row["number"], row["status"], row["ended"], row["version"])
        if key not in self._curves:
            for old in [k for k in self._curves if k[0] == row["number"]] if row["status"] == "running" else ():
                del self._curves[old]
            self._curves[key] = curve_of(connection, row["number"], row["version"], row["headline"])
        return self._curves[key]


def curve_of(connection: sqlite3.Connection, run: int, last: int | None, headline: str) -> list[float]:
    """The headline metric on the test set at a few versions, evenly apart, and at the last one that was evaluated."""
    if not isinstance(last, int) or not re.fullmatch(r"\w+", str(headline)):
        return []
    at = {"run": run, "metric": f'$."{headline}"'}
    found = connection.execute(_CURVE, {**at, "last": last, "points": POINTS - 1}).fetchall() if last else []
    found += connection.execute(_LATEST, at).fetchall()
    return [float(row[0]) for row in found if isinstance(row[0], (int, float))]
