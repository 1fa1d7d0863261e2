"""Reads tables from files of text, Parquet and Feather, and takes DataFrames: columns of raw cells, nothing guessed.

Cells of text files stay text here, and what they mean is decided in `cells`. A file's form is told by how it begins,
not by its name.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Protocol, runtime_checkable

import numpy as np

from polyrhythm.base.errors import UserError
from polyrhythm.data.sources.files import check_unpacked, corrupt, existing, opened

if TYPE_CHECKING:
    import pandas as pd

MOST_COLUMNS = 50_000
_LONGEST_LINE = 2**23
_SAMPLE = 2**16
_SEPARATORS = (",", ";", "\t", "|", " ")
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_OTHERS = {
    b"PK\x03\x04": "an Excel workbook or a zip archive",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook",
    b"SQLite format 3": "a database",
    b"\x93NUMPY": "a NumPy array",
    b"\x89HDF": "an HDF5 file",
    b"\xfd7zXZ": "packed by xz",
}


@runtime_checkable
class Frame(Protocol):
    """A pandas DataFrame, or a table that becomes one by `to_pandas()`."""

    @property
    def columns(self) -> Any: ...

    @property
    def shape(self) -> Any: ...


class Raw(NamedTuple):
    """A table as it was found.

    Args:
        frame: its columns, under names that are text and differ.
        where: its name in messages.
        written: whether all cells are text that may stand for numbers, as in a CSV file.
        notes: what was left out.
    """

    frame: pd.DataFrame
    where: str
    written: bool
    notes: tuple[str, ...] = ()


def raw_table(given: str | Path | Frame, *, separator: str, encoding: str, wanted: Sequence[str]) -> Raw:
    """A table from a file or a DataFrame.

    Args:
        given: where it is.
        separator: what stands between cells; "" to see.
        encoding: of a text file; "" for UTF-8, and UTF-16 or -32 with a byte order mark.
        wanted: columns that must be there; one of an index is none unless it is wanted.

    Raises:
        UserError: no such file, another form, a header that cannot be, rows wider than it.
    """
    if not isinstance(given, (str, Path)):
        return Raw(_named(_as_frame(given), "the DataFrame"), "the DataFrame", written=False)
    place = existing(given, what="a .csv, .tsv, .parquet or .feather file, or a DataFrame")
    if place.is_dir():
        raise corrupt(place, "is a folder", "a file", fix="name the file in it; image_folder(path=...) reads pictures")
    with opened(place) as file:
        begin = file.read(16)
        file.seek(0)
        if begin.startswith((b"PAR1", b"ARROW1")):
            return _of_arrow(place, feather=not begin.startswith(b"PAR1"), wanted=wanted)
        other = next((what for magic, what in _OTHERS.items() if begin.startswith(magic)), None)
        if other is not None or place.suffix.lower() in (".parquet", ".pq", ".feather"):
            fix = "save it as .csv or .parquet, and give that file"
            raise corrupt(place, f"is {other or 'no Parquet or Feather file'}", "a table as text, or Parquet", fix=fix)
        return _of_text(place, file, separator, encoding, wanted)


def _as_frame(given: Any) -> pd.DataFrame:
    import pandas as pd

    frame = given.to_pandas() if hasattr(given, "to_pandas") else given
    if not isinstance(frame, pd.DataFrame):
        raise UserError(
            f"a table of type {type(given).__name__}",
            expected="the path of a file, or a DataFrame",
            why="a table has named columns",
            fix="pd.DataFrame(...) makes one; `arrays(...)` takes arrays",
        )
    if isinstance(frame.columns, pd.MultiIndex):
        frame = frame.set_axis([" ".join(map(str, names)).strip() for names in frame.columns], axis=1)
    return frame.reset_index(drop=True)


def _named(frame: pd.DataFrame, where: str) -> pd.DataFrame:
    names = [str(name).strip() for name in frame.columns]
    _check_names(names, where)
    return frame.set_axis(names, axis=1)


def _of_arrow(place: Path, *, feather: bool, wanted: Sequence[str]) -> Raw:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UserError(
            f"{place}: no package that reads Parquet is installed",
            expected="pyarrow",
            why="a Parquet file is a compressed binary format",
            fix='pip install "polyrhythm[parquet]", or give a .csv file',
        ) from None
    size = place.stat().st_size
    try:
        if feather:
            reader, batches = pyarrow.ipc.open_file(place), []
            for number in range(reader.num_record_batches):
                batches.append(reader.get_batch(number))
                check_unpacked(place, size, sum(batch.nbytes for batch in batches))
            table = pyarrow.Table.from_batches(batches, reader.schema)
        else:
            schema = pyarrow.parquet.read_schema(place)
            _check_width(len(schema.names), str(place))
            # As numbers and a list of what they stand for: a long text in each of many rows is held once.
            texts = [field.name for field in schema if pyarrow.types.is_string(field.type)]
            file = pyarrow.parquet.ParquetFile(place, read_dictionary=texts)
            groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
            cells = file.metadata.num_rows * len(schema.names)
            check_unpacked(place, size, max(cells, sum(group.total_byte_size for group in groups)))
            table = file.read()
        _check_names([name.strip() for name in table.column_names], str(place))
        held = (table.schema.pandas_metadata or {}).get("index_columns", [])
        index = [name for name in held if isinstance(name, str) and name in table.column_names and name not in wanted]
        frame = table.drop_columns(index).to_pandas(ignore_metadata=True, date_as_object=False)
    except UserError:
        raise
    except Exception as error:  # Arrow raises many kinds
        raise corrupt(place, f"cannot be read as a table ({str(error)[:200]})") from None
    notes = tuple(f"the index {name!r} of the saved DataFrame is left out" for name in index)
    return Raw(_named(frame, str(place)), str(place), written=False, notes=notes)


def _of_text(place: Path, file: BinaryIO, separator: str, encoding: str, wanted: Sequence[str]) -> Raw:
    import pandas as pd

    sample = file.read(_SAMPLE)
    file.seek(0)
    encoding = encoding or _encoding(place, sample)
    try:
        "".encode(encoding)  # refuses codecs that are none of text, which could unpack a bomb
        head = _head(sample, encoding)
        separator = _separator(place, separator) if separator else _seen(head)
        text = io.TextIOWrapper(file, encoding=encoding, newline="")
        try:
            reader = csv.reader(_lines(place, text, separator), delimiter=separator, skipinitialspace=True, strict=True)
            names = [name.strip() for name in next(filter(any, reader), [])]  # without empty lines above it
            _check_width(len(names), str(place))
            _check_header(place, names, head, separator, wanted)
            rows = list(_rows(place, reader, len(names)))
        finally:
            text.detach()  # or it would close the file, at some time
    except (UnicodeError, LookupError) as error:
        raise _not_encoded(place, encoding, error) from None
    except csv.Error as error:
        raise corrupt(place, f"cannot be read as a table ({error})", "rows of cells between quotes that end") from None
    cells = np.array(rows, dtype=object).reshape(len(rows), len(names))
    names, cells, notes = _without_nameless(place, names, cells)
    _check_names(names, str(place))
    return Raw(pd.DataFrame(cells, columns=names), str(place), written=True, notes=notes)


def _encoding(place: Path, sample: bytes) -> str:
    for mark, encoding in _MARKS:
        if sample.startswith(mark):
            return encoding
    if b"\0" in sample:
        raise UserError(
            f"{place}: no text in UTF-8, as there are zero bytes in it",
            expected="a table as text",
            why="cells would be other ones than those that were written",
            fix="encoding='utf-16' if it is such a file; or save it as CSV in UTF-8",
        )
    return "utf-8-sig"  # with a mark or without


def _head(sample: bytes, encoding: str) -> list[str]:
    """The first lines, without one that the sample cuts off."""
    text = codecs.getincrementaldecoder(encoding)().decode(sample)
    lines = [line for line in text.splitlines(keepends=True) if line.strip()]
    return lines[:-1] if len(sample) == _SAMPLE and len(lines) > 1 else lines


def _separator(place: Path, separator: str) -> str:
    named = {"tab": "\t", "\\t": "\t", "space": " ", "comma": ",", "semicolon": ";"}.get(separator, separator)
    if len(named) != 1 or named in '\r\n"':
        raise UserError(
            f"separator = {separator!r}",
            expected="one character, such as ',', ';', '|', or 'tab' or 'space'",
            why=f"cells of {place} are what stands between two of them",
            fix="leave it out: then the file's own one is looked for",
        )
    return named


def _seen(head: Sequence[str]) -> str:
    """The separator that cuts the first line, and as many others as can be, into the same number of cells."""

    def regular(separator: str) -> tuple[float, int]:
        try:
            lines = (line.strip(" \r\n") for line in head[:50])
            widths = [len(row) for row in csv.reader(lines, delimiter=separator, skipinitialspace=True)]
        except csv.Error:
            return 0.0, 0
        if not widths or widths[0] < 2:
            return 0.0, 0
        return sum(width == widths[0] for width in widths) / len(widths), widths[0]

    # Spaces only where nothing else does: they stand in names and texts.
    found = max(_SEPARATORS[:-1], key=regular)
    return found if regular(found)[1] else " " if regular(" ")[0] == 1.0 else ","


def _lines(place: Path, text: io.TextIOWrapper, separator: str) -> Iterator[str]:
    while line := text.readline(_LONGEST_LINE):
        if len(line) == _LONGEST_LINE:
            raise corrupt(place, f"has a line of {_LONGEST_LINE:,} characters or more", "a row of cells in each line")
        yield line if separator != " " else f"{line.strip()}\n"


def _rows(place: Path, reader: Any, width: int) -> Iterator[list[str]]:
    for row in reader:
        if not row or (len(row) == 1 < width and not row[0].strip()):
            continue
        if len(row) != width:
            raise UserError(
                f"{place}, line {reader.line_num}: {len(row):,} cells",
                expected=f"{width:,} cells, one for each name in the header",
                why="names and cells that are out of step would train on other columns than you meant",
                fix="correct the line or the header; a text with the separator in it stands between quotes",
            )
        yield row


def _check_header(
    place: Path, names: Sequence[str], head: Sequence[str], separator: str, wanted: Sequence[str]
) -> None:
    if not names or not any(names):
        raise corrupt(place, "cannot be read as a table (it is empty)", "a header with the columns' names, and rows")
    missing = next((name for name in wanted if name not in names), None)
    if missing is None:
        return
    numbers = sum(_is_number(name) for name in names)
    if numbers and 2 * numbers >= len(names):
        raise UserError(
            f"{place}: the first line holds {numbers:,} numbers, {names[0][:30]!r} first, and no column {missing!r}",
            expected=f"a header: a first line with the names of all {len(names):,} columns",
            why="target, clients and features are found by their names",
            fix="write one above the first row, such as target,f1,f2,…",
        )
    if len(names) == 1:
        raise UserError(
            f"{place}: one column, {names[0][:60]!r}",
            expected=f"columns with {separator!r} between them",
            why="a row needs a target and features",
            fix="separator=... says what stands between cells; or put a header above the rows",
        )


def _is_number(cell: str) -> bool:
    try:
        return bool(float(cell) + 1)
    except ValueError:
        return False


def _check_width(columns: int, where: str) -> None:
    if columns > MOST_COLUMNS:
        raise UserError(
            f"{where}: {columns:,} columns",
            expected=f"at most {MOST_COLUMNS:,}",
            why="each is a feature with a name; tables that are so wide are arrays",
            fix="give them as an array, with npz(path=...) or pr.data.arrays(...)",
        )


def _check_names(names: Sequence[str], where: str) -> None:
    _check_width(len(names), where)
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        more = f" and {len(twice) - 5:,} more" if len(twice) > 5 else ""
        raise UserError(
            f"{where}: several columns are named {', '.join(repr(name[:40]) for name in twice[:5])}{more}",
            expected="names that differ",
            why="if the target is one of them, its copy would be a feature and give the answer away",
            fix="rename or remove all but one",
        )


def _without_nameless(
    place: Path, names: list[str], cells: np.ndarray
) -> tuple[list[str], np.ndarray, tuple[str, ...]]:
    """Leaves out columns without a name that hold nothing, or count the rows, as pandas and R write them."""
    kept, notes = [], []
    for number, name in enumerate(names):
        column = cells[:, number]
        if name:
            kept.append(number)
        elif number == 0 and any(column.tolist() == [str(i + k) for i in range(len(column))] for k in (0, 1)):
            notes.append("the first column has no name and counts the rows; it is left out")
        elif not any(cell.strip() for cell in column):
            notes.append(f"column {number + 1} has no name and no cells; it is left out")
        else:
            raise UserError(
                f"{place}: column {number + 1} has no name",
                expected="a name for each column",
                why="features, target and clients are found by their names",
                fix="give it one in the header; drop=[...] then leaves it out",
            )
    return [names[number] for number in kept], cells[:, kept], tuple(notes)


def _not_encoded(place: Path, encoding: str, error: Exception) -> UserError:
    if isinstance(error, LookupError):
        found, fix = f"encoding = {encoding!r}, which nobody knows", "encoding='latin-1', 'cp1252' or 'utf-16'"
    else:
        found = f"{place}: no text in {encoding.removesuffix('-sig')} ({error})"
        fix = "encoding='cp1252' if it comes from Windows or Excel, 'latin-1' from elsewhere; or save it in UTF-8"
    return UserError(
        found, expected="the encoding that it was written in", why="names and texts would be other ones", fix=fix
    )
