"""What the cells of a table mean: which are missing, and whether a column holds numbers, truth values or text.

Only empty cells are missing, and those that the user names. A column of a text file holds numbers if each of its cells
is one, as it is written in a program. In other tables a column is what its type says; decimals are numbers, and times
become seconds.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np

from polyrhythm.base.errors import UserError, unknown
from polyrhythm.data.given import check_ends
from polyrhythm.data.labels import as_text
from polyrhythm.data.sources.exactness import check_whole
from polyrhythm.data.sources.table_files import Raw

if TYPE_CHECKING:
    import pandas as pd

# Of all cells of a column, one a line: quicker by far than one after the other.
_NUMBERS = re.compile(r"[0-9+\-.eE\n ]*")
_WHOLE = re.compile(r"[0-9+\-\n ]*")
_COMMAS = re.compile(r"[0-9+\-.,eE\n ]*")
_PADDED = re.compile(r"^[+-]?0[0-9]", re.MULTILINE)
_TRUTH = ({"True", "False"}, {"TRUE", "FALSE"}, {"true", "false"})  # the first is how classes of truth are named
_MARKS = {"NA", "N/A", "n/a", "NaN", "nan", "NAN", "NULL", "null", "None", "none", "?", "-", ".", "#N/A", "inf", "-inf"}
_SHOWN = 5


@final
@dataclass(frozen=True, kw_only=True)
class Reading:
    """How cells are read.

    Args:
        target: the column to predict.
        client: the column of clients, or "".
        missing: "refuse" or "drop".
        missing_values: cells that are missing, beside empty ones.
        decimal: what stands before the fraction in a text file, "." or ",".
    """

    target: str
    client: str
    missing: str
    missing_values: tuple[str, ...]
    decimal: str

    def __post_init__(self) -> None:
        if self.missing not in ("refuse", "drop"):
            raise unknown("missing", self.missing, ["refuse", "drop"])
        if self.decimal not in (".", ","):
            raise unknown("decimal", self.decimal, [".", ","])


def typed(raw: Raw, reading: Reading, like: pd.DataFrame | None = None) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """A table whose columns are int64, float64, bool, or text, and what must be said of how it came about.

    Clients are whole numbers if all of them are written as such, without zeros in front, and text otherwise.

    Args:
        raw: as it was found.
        reading: how to read it.
        like: the training table, for a table to test on: columns are read as there.

    Raises:
        UserError: missing cells, columns of several kinds, or of none that can be used.
    """
    import pandas as pd

    frame, notes = _without_missing(raw, reading)
    columns = {}
    for name in frame.columns:
        values = np.asarray(frame[name].to_numpy(dtype=object))
        of_client, of_target = name == reading.client, name == reading.target
        if raw.written:
            columns[name] = _of_text(values, name, raw.where, reading, as_names=of_client or of_target)
        else:
            columns[name], said = of_values(frame[name], values, name, raw.where)
            notes += () if of_client else said
        if columns[name].dtype.kind == "O":
            notes += _merged(values, name)
            check_ends(columns[name], f"{raw.where}: cells of {name!r}")
        if of_client:
            columns[name] = _clients(columns[name], values if raw.written else None)
        if like is not None:
            columns[name] = _as_in_training(columns[name], values, name, raw, like[name].to_numpy())
    return pd.DataFrame(columns, index=range(len(frame))), (*raw.notes, *notes)


def _merged(cells: np.ndarray, name: str) -> tuple[str, ...]:
    """A note on texts of a column that differ in blanks around them alone, and are taken for one."""
    forms: dict[str, list[str]] = {}
    for cell in dict.fromkeys(cell for cell in cells.tolist() if isinstance(cell, str)):
        forms.setdefault(cell.strip(), []).append(cell)
    several = [group for group in forms.values() if len(group) > 1]
    if not several:
        return ()
    shown = " and ".join(repr(text[:40]) for text in several[0][:3])
    more = f", as do the forms of {len(several) - 1:,} more" if len(several) > 1 else ""
    return (f"values of {name!r} {shown} differ only in blanks around them{more}, and are taken for one",)


def _without_missing(raw: Raw, reading: Reading) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """The rows without missing cells, and a note on the others."""
    frame = raw.frame
    empty = frame.isna().to_numpy(dtype=bool, copy=True)
    named = {"", *reading.missing_values}
    for place, kind in enumerate(frame.dtypes):
        if reading.missing_values or kind.kind not in "biufmM":
            cells = frame.iloc[:, place].tolist()
            empty[:, place] |= np.fromiter((written(cell) in named for cell in cells), dtype=bool, count=len(cells))
    if not empty.any():
        return frame, ()
    counts = {str(c): int(n) for c, n in zip(frame.columns, empty.sum(axis=0), strict=True) if n}
    shown = ", ".join(f"{name} ({count})" for name, count in list(counts.items())[:20])
    if reading.missing == "refuse":
        raise UserError(
            f"{raw.where}: empty cells in {shown}",
            expected="a value in every cell that is used",
            why="an empty cell becomes NaN, and that makes every weight it touches NaN",
            fix='missing="drop" leaves those rows out, drop=[...] leaves columns out; or fill the cells',
        )
    kept = ~empty.any(axis=1)
    note = f"{int((~kept).sum()):,} of {len(kept):,} rows with empty cells are left out, in {shown}"
    for what, column in (("class", reading.target), ("client", reading.client)):
        lost = _lost(frame[column], kept, empty[:, frame.columns.get_loc(column)]) if column else []
        if lost and (what == "client" or len(lost) <= max(20, len(kept) // 10)):
            more = f" and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else ""
            note += f"; with them went {what} {', '.join(lost[:_SHOWN])}{more}"
    return frame[kept].reset_index(drop=True), (note,)


def _lost(column: pd.Series, kept: np.ndarray, empty: np.ndarray) -> list[str]:
    """The values that no kept row has."""
    cells = column.to_numpy(dtype=object)
    return sorted({as_text(c) for c in cells[~kept & ~empty]} - {as_text(c) for c in cells[kept]})


def written(cell: Any) -> str:
    """A cell as text, as names and categories are compared: 3 for 3.0."""
    return cell.strip() if isinstance(cell, str) else as_text(cell)


def _of_text(cells: np.ndarray, name: str, where: str, reading: Reading, *, as_names: bool) -> np.ndarray:
    """A column of written cells. Names (of classes and clients) with zeros in front are text: 007 is not 7."""
    lines = "\n".join(cells)
    point, numbers = lines, cells
    if reading.decimal == "," and "." not in lines:
        point, numbers = lines.replace(",", "."), np.array([cell.replace(",", ".") for cell in cells], dtype=object)
    whole = bool(_WHOLE.fullmatch(point))
    if _NUMBERS.fullmatch(point) and not (as_names and whole and _PADDED.search(point)):
        with contextlib.suppress(ValueError):  # what consists of the same signs and is no number, such as 1-2
            if whole and (read := _as_whole(numbers)) is not None:
                return read
            if whole and not as_names:
                check_whole(np.array([int(number) for number in numbers], dtype=object), name, where)
            if not (whole and as_names):  # numbers of more than 18 digits are names, which floats would make one
                return numbers.astype(np.float64)
    texts = np.array([cell.strip() for cell in cells], dtype=object)
    distinct = set(texts)
    if any(distinct <= pair for pair in (_TRUTH[:1] if as_names else _TRUTH)):
        return np.array([text[0] in "Tt" for text in texts], dtype=bool)
    if name == reading.client:
        return texts
    _check_commas(lines, name, where, reading)
    marks = sorted(text for text in distinct if not _is_number(text, reading.decimal))
    if 0 < len(marks) < len(distinct) and _MARKS.issuperset(marks):
        raise UserError(
            f"{where}: column {name!r} holds numbers, and {', '.join(map(repr, marks))} in "
            f"{sum(text in marks for text in texts):,} rows",
            expected="numbers in each row, or text that is no sign for a missing number",
            why="as text, each number would be a category of its own",
            fix=f"missing_values=[{', '.join(map(repr, marks))}] says that these cells are missing",
        )
    return texts


def _as_whole(cells: np.ndarray) -> np.ndarray | None:
    try:
        return np.array([int(cell) for cell in cells], dtype=np.int64)
    except OverflowError:
        return None


def _is_number(text: str, decimal: str) -> bool:
    point = text.replace(",", ".") if decimal == "," and "." not in text else text
    try:
        return bool(_NUMBERS.fullmatch(point)) and float(point) is not None
    except ValueError:
        return False


def _check_commas(lines: str, name: str, where: str, reading: Reading) -> None:
    if not ("," in lines and _COMMAS.fullmatch(lines) and re.search(r"[0-9],[0-9]", lines)):
        return
    point, points = reading.decimal == ".", "." in lines
    if point or points:
        example = next(line for line in lines.split("\n") if "," in line)
        signs = "commas and points" if points else "commas"
        raise UserError(
            f"{where}: column {name!r} holds numbers with {signs}, {example[:40]!r} for instance",
            expected=f"one sign before the fraction, as in {'1.5' if point else '1,5'}, and none between thousands",
            why="as text, each number would be a category of its own",
            fix="decimal=',' reads 1,5 as one and a half; signs between thousands have to be taken out",
        )


def of_values(column: pd.Series, values: np.ndarray, name: str, where: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """A column of typed values, none of them missing, and what must be said of how they are taken.

    Raises:
        UserError: values of several kinds, or of none that is a number, a text or a time.
    """
    import pandas as pd

    kind = column.dtype.kind
    if kind == "b":
        return values.astype(bool), ()
    if kind in "iu" and (not len(values) or (min(values) >= -(2**63) and max(values) < 2**63)):
        return values.astype(np.int64), ()
    if kind in "iuf":
        if kind != "f":
            check_whole(values, name, where)
        return values.astype(np.float64), ()
    if kind == "M" or _all_of(values, ("datetime", "date", "Timestamp", "datetime64")):
        moments = pd.to_datetime(pd.Series(values), utc=True)
        seconds = (moments - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(1, "s")
        return seconds.to_numpy(dtype=np.float64), (f"time column {name!r} became seconds since 1970",)
    if kind == "m" or _all_of(values, ("timedelta", "Timedelta", "timedelta64")):
        seconds = pd.to_timedelta(pd.Series(values)) / pd.Timedelta(1, "s")
        return seconds.to_numpy(dtype=np.float64), (f"column {name!r} of durations became seconds",)
    if _all_of(values, ("time",)):
        seconds = [v.hour * 3600 + v.minute * 60 + v.second + v.microsecond / 1e6 for v in values]
        return np.array(seconds, dtype=np.float64), (f"time column {name!r} became seconds since midnight",)
    if _all_of(values, ("str", "str_")):
        return np.array([value.strip() for value in values], dtype=object), ()
    if _all_of(values, ("bool", "bool_")):
        return values.astype(bool), ()
    whole = all(isinstance(v, (int, np.integer)) for v in values)
    if whole or _all_of(values, ("int", "float", "Decimal", "bool", "bool_", *_NUMPYS)):
        try:
            return values.astype(np.int64 if whole else np.float64), ()
        except OverflowError:
            if whole:
                check_whole(values, name, where)
            return values.astype(np.float64), ()
    kinds = sorted({type(value).__name__ for value in values})
    raise UserError(
        f"{where}: column {name!r} holds {' and '.join(kinds[:3])} values, {str(values[0])[:40]!r} for instance",
        expected="numbers, text, truth values or times, of one kind in a column",
        why="a feature is a number, or a text that becomes 0 or 1 for each value",
        fix=f"drop=[{name!r}] leaves it out; or make columns of numbers of it",
    )


_NUMPYS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64")


def _all_of(values: np.ndarray, names: Sequence[str]) -> bool:
    return len(values) > 0 and {type(value).__name__ for value in values} <= set(names)


def _clients(values: np.ndarray, cells: np.ndarray | None) -> np.ndarray:
    """Names of clients: whole numbers, so that 2 comes before 10, or text as it is written."""
    if cells is not None:
        names = np.array([cell.strip() for cell in cells], dtype=object)
        return values if values.dtype.kind == "i" and [str(v) for v in values.tolist()] == names.tolist() else names
    if values.dtype.kind == "i":
        return values
    if values.dtype.kind == "f" and (values == np.rint(values)).all() and np.abs(values).max(initial=0) < 2**53:
        return values.astype(np.int64)
    return np.array([str(value) for value in values.tolist()], dtype=object)


def _as_in_training(values: np.ndarray, cells: np.ndarray, name: str, raw: Raw, training: np.ndarray) -> np.ndarray:
    """The column of a test table as the training table has it: text of what looks like numbers here."""
    if training.dtype.kind == "O":
        return np.array([written(cell) for cell in (cells if raw.written else values.tolist())], dtype=object)
    if values.dtype.kind == "O":
        odd = [cell for cell in dict.fromkeys(values) if not _is_number(str(cell), ".")]
        raise UserError(
            f"{raw.where}: column {name!r} holds text here, {str((odd or [values[0]])[0])[:40]!r} for instance",
            expected="numbers, as in the training table",
            why="a model reads a column in one way",
            fix="correct these cells, or missing_values=[...] with missing='drop' if they stand for missing ones",
        )
    return values
