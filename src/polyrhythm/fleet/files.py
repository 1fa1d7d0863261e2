"""Reading traces, with errors that say which file, where in it, and what belongs there."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from polyrhythm.base.errors import UserError
from polyrhythm.data.sources.files import content, existing


class Cell(NamedTuple):
    """What stands in a column: in words, and how to read it; a `ValueError` refuses it."""

    words: str
    read: Callable[[str], Any]


def _number(allowed: Callable[[float], bool]) -> Callable[[str], float]:
    def read(text: str) -> float:
        value = float(text)
        if not (math.isfinite(value) and allowed(value)):
            raise ValueError(text)
        return value

    return read


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError(text)
    return text.strip()


def _whole(text: str) -> int:
    value = int(text)
    if value < 0:
        raise ValueError(text)
    return value


ABOVE_ZERO = Cell("a number above 0", _number(lambda value: value > 0))
NOT_NEGATIVE = Cell("a number, 0 or more", _number(lambda value: value >= 0))
WHOLE = Cell("a whole number, 0 or more", _whole)
TEXT = Cell("a name", _text)
_CONVERT = "json.dump(pickle.load(open('trace', 'rb')), open('trace.json', 'w'))"


def read_csv(path: Path | str, columns: Mapping[str, Cell]) -> list[tuple[int, tuple[Any, ...]]]:
    """The named columns of a CSV file with a header, row by row with the number of its line; others are passed over.

    Raises:
        UserError: no such file, a column that is missing, or a cell that cannot be.
    """
    place = existing(path, what=f"a CSV file with the columns {','.join(columns)}")
    try:
        lines = csv.reader(io.StringIO(content(place).decode("utf-8-sig"), newline=""))
        header = [name.strip() for name in next(lines, [])]
        missing = [name for name in columns if name not in header]
        if missing:
            raise damaged(place, "line 1", f"no column {missing[0]}", f"a header with the columns {','.join(columns)}")
        where = [header.index(name) for name in columns]
        found = [(lines.line_num, _cells(place, lines.line_num, row, where, columns)) for row in lines if any(row)]
    except UnicodeDecodeError as error:
        raise _not_text(place, f"byte {error.start} is not text", "a CSV file in UTF-8") from None
    except csv.Error as error:
        raise damaged(place, f"line {lines.line_num}", str(error), "a CSV file in UTF-8") from None
    if not found:
        raise damaged(place, "line 2", "no rows", "at least one row under the header")
    return found


def _cells(place: Path, line: int, row: list[str], where: list[int], columns: Mapping[str, Cell]) -> tuple[Any, ...]:
    values = []
    for position, (name, cell) in zip(where, columns.items(), strict=True):
        text = row[position] if position < len(row) else ""
        try:
            values.append(cell.read(text))
        except ValueError:
            raise damaged(
                place, f"line {line}", f"{name} = {text[:80]!r}{'…' if len(text) > 80 else ''}", cell.words
            ) from None
    return tuple(values)


def read_json(path: Path | str, what: str) -> Any:
    """What a JSON file holds.

    Raises:
        UserError: no such file, or not JSON.
    """
    place = existing(path, what=what)
    try:
        return json.loads(content(place).decode("utf-8"))
    except UnicodeDecodeError as error:
        raise _not_text(place, f"byte {error.start} is not text", what) from None
    except json.JSONDecodeError as error:
        raise damaged(place, f"line {error.lineno}", error.msg, what) from None
    except (
        ValueError,
        RecursionError,
    ) as error:  # a number of thousands of digits, or brackets in brackets without end
        raise damaged(place, "line 1", str(error), what) from None


def read_clients(path: Path | str, what: str) -> Mapping[str, Any]:
    """What a JSON file holds of each client.

    Raises:
        UserError: no such file, not JSON, or nothing of any client.
    """
    found = read_json(path, what)
    if not isinstance(found, dict) or not found:
        raise damaged(Path(path), "line 1", f"a {type(found).__name__}" if found != {} else "no client", what)
    return found


def digest_of(path: Path | str) -> str:
    """The beginning of the SHA-256 of a file, for the record of a run."""
    return hashlib.sha256(content(existing(path, what="the trace that the fleet was made from"))).hexdigest()[:16]


def damaged(place: Path | str, where: str, found: str, expected: str) -> UserError:
    """The error for a trace that is not what it should be, with the place in it."""
    return UserError(
        f"{place}, {where}: {found}",
        expected=expected,
        why="the fleet follows this file, and clients would be other ones than those that were recorded",
        fix="correct the file at that place, or get it again",
    )


def _not_text(place: Path, found: str, expected: str) -> UserError:
    return UserError(
        f"{place}: {found}",
        expected=expected,
        why="nothing else is read; a pickle, as FedScale's own files are, could run any program when it is opened",
        fix=f"a pickle that you trust can be written as JSON: {_CONVERT}",
    )
