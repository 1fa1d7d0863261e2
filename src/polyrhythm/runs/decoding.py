"""Rows of the run database as values, and what in them cannot be read."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from typing import Any, NamedTuple, final

from polyrhythm.runs.schema import JSON


class Damage(Exception):
    """A value that cannot be read; says where, and what."""


def as_text(found: bytes) -> str | _Garbled:
    """A text of the database; of one that is none, why."""
    try:
        return found.decode()
    except UnicodeDecodeError as error:
        return _Garbled(str(error))


@final
class _Garbled(NamedTuple):
    """A text that is none, and why."""

    why: str


def decoded(row: sqlite3.Row) -> dict[str, Any]:
    """A row with its texts read.

    Raises:
        Damage: one of them cannot be.
    """
    # `clients` is a number in a run's row, a mapping in a version's, and bytes in an answer's.
    found, name, value = dict[str, Any](), "", None
    try:
        for name, value in zip(row.keys(), row, strict=True):
            if type(value) is _Garbled:
                raise ValueError(value.why)
            found[name] = json.loads(value) if name in JSON and isinstance(value, str) else value
            if name in JSON and not (
                found[name] is None or isinstance(found[name], _HOLDS.get(name, (dict, int, bytes)))
            ):
                raise ValueError(f"it holds {found[name]!r:.60}")
    except (ValueError, RecursionError) as error:
        which = next((f"{kind} {row[key]}, " for key, kind in _NAMED.items() if key in row.keys()), "")  # noqa: SIM118
        raise Damage(f"{which}{name}: a text in it cannot be read: {error}") from None
    return found


_NAMED = {"run_id": "run", "dispatch": "visit", "event": "event", "version": "version"}
_HOLDS: dict[str, type] = {
    **{"notices": list, "classes": list},
    **{"config": dict, "libraries": dict, "machine": dict, "summary": dict},
}
_STATUS = ("running", "finished", "stopped", "failed")
_TEXTS = ("run_id", "name", "status", "reason", "started", "headline", "recipe", "recipe_digest", "config_digest")


def check_kinds(row: Mapping[str, Any]) -> None:
    """Refuses a run's row whose values are of other kinds than those that are written.

    Raises:
        Damage: one is.
    """
    for name, value in row.items():
        if name in _TEXTS:
            fits = isinstance(value, str)
        elif name in _HOLDS:
            fits = isinstance(value, _HOLDS[name]) or (name == "summary" and value is None)
        elif name == "ended":
            fits = value is None or isinstance(value, str)
        else:
            fits = isinstance(value, int) or (name == "rounds" and value is None)
        if not fits or (name == "status" and value not in _STATUS):
            raise Damage(f"{name}: it holds {value!r:.60}")
    for name, value in (row["summary"] or {}).items():
        if name in _MEASURED and not (value is None or isinstance(value, (int, float))):
            raise Damage(f"summary: {name} holds {value!r:.60}")


_MEASURED = {"rounds", "final_accuracy", "best_accuracy", "best_version", "last20_mean", "last20_sd", "wall_seconds"}
