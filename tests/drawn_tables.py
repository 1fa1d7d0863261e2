"""Tables as people have them, and what must come out of each: the drawer knows, since it wrote the cells."""

from __future__ import annotations

import bz2
import csv
import datetime
import gzip
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, final

import numpy as np
import pandas as pd

from drawn_case import Case, Draw, Rows, apart, apart_in_any_order, rows_of
from polyrhythm import data

TEXTS = ("a", "b", "NA x", "None", "NaN", "null", "007", "7", "é", "ü", "日本", "a,b", "x;y", 'say "so"', "two words",
         "1e3", "1-2", "inf", "TRUE", "-", "?", "a=b", "Ünïcode", "e\u0301", "\u0663", "x|y", "1_000", "0x1F", "<b>", "#")  # fmt: skip
NAMES = ("age", "Age", "größe", "a b", "x=1", "class", "index", "no", "1", "it's", "q;r", "s,t", 'u"v', "level", "None",
         "nan", "count", "mean", "T", "columns")  # fmt: skip
NUMBERED = ("whole", "signed", "fraction", "exponent", "truth", "small", "apart", "wide", "constant")
TYPED = ("decimal", "moment", "zoned", "date", "duration", "nullable", "float32", "uint8")


@final
@dataclass(frozen=True)
class Column:
    """A column.

    Args:
        name: its name.
        values: as a typed table has them.
        cells: as a text file has them.
        read: what they mean: numbers, or texts.
    """

    name: str
    values: Sequence[Any]
    cells: Sequence[str]
    read: Sequence[Any]

    @property
    def text(self) -> bool:
        return bool(self.read) and isinstance(self.read[0], str)

    def at(self, rows: Sequence[int]) -> Column:
        return Column(self.name, *([part[r] for r in rows] for part in (self.values, self.cells, self.read)))


@final
@dataclass
class Table:
    """A table on its way: what is in it, how it is asked for, and what is known of what must become of it."""

    columns: list[Column]
    target: Column
    client: Column | None
    form: Literal["text", "parquet", "feather", "frame"]
    settings: dict[str, Any] = field(default_factory=dict)
    how: dict[str, Any] = field(default_factory=dict)
    must: Literal["", "refuse"] = ""
    odd: list[str] = field(default_factory=list)
    say: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def all(self) -> list[Column]:
        return [*self.columns, self.target, *([self.client] if self.client else [])]


def numbers(draw: Draw, kind: str, n: int, name: str, typed: bool) -> Column:
    """A feature of numbers."""
    many: dict[str, Callable[[], Any]] = {
        "whole": lambda: draw.randrange(100),
        "signed": lambda: draw.randrange(-50, 50),
        "fraction": lambda: draw.uniform(-5, 5),
        "exponent": lambda: draw.uniform(-5, 5) * 10 ** draw.randrange(-9, 9),
        "truth": lambda: draw.random() < 0.5,
        "small": lambda: draw.choice([0.0, -0.0, 1e-300, 1e-40, 5e-324, 1.0]),
        "apart": lambda: 1_700_000_000 + draw.randrange(64),
        "wide": lambda: draw.choice([2**53 + 1, -(2**62), 2**63 - 1, 10**17]),
        "constant": lambda: 3,
        "decimal": lambda: Decimal(draw.randrange(-999, 999)) / 4,
        "moment": lambda: datetime.datetime(2024, 1, 1) + datetime.timedelta(seconds=draw.randrange(10**6)),
        "zoned": lambda: datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(draw.randrange(99)),
        "date": lambda: datetime.date(1960, 1, 1) + datetime.timedelta(draw.randrange(30_000)),
        "duration": lambda: datetime.timedelta(milliseconds=draw.randrange(10**7)),
        "nullable": lambda: draw.randrange(9),
        "float32": lambda: float(np.float32(draw.random())),
        "uint8": lambda: draw.randrange(256),
    }
    values = [many[kind]() for _ in range(n)]
    read = [seconds(value) for value in values]
    how = draw.choice([str, str, lambda v: f"+{v}" if type(v) is int and v > 0 else str(v), lambda v: f" {v} "])
    if kind == "whole" and draw.random() < 0.2:
        how = "{:03d}".format
    if kind in ("fraction", "exponent") and draw.random() < 0.5:
        how = draw.choice(["{:.17e}".format, "{:.17E}".format, repr])
    return Column(name, values, [how(v) for v in values], read)


def seconds(value: Any) -> float:
    """A value as a number; of times, seconds since 1970."""
    if isinstance(value, datetime.timedelta):
        return value / datetime.timedelta(seconds=1)
    if isinstance(value, datetime.date):
        moment = value if isinstance(value, datetime.datetime) else datetime.datetime(value.year, value.month, value.day)
        return (moment.replace(tzinfo=None) - datetime.datetime(1970, 1, 1)) / datetime.timedelta(seconds=1)
    return float(value)


def texts(draw: Draw, n: int, name: str, pool: Sequence[str] = TEXTS) -> Column:
    """A column of texts, of which at least one is no number, so that none of them is one."""
    chosen = draw.sample(pool, draw.randrange(2, min(6, len(pool)) + 1))
    if all(_number_like(text) for text in chosen):
        chosen[0] = "word"
    values = [chosen[i % len(chosen)] for i in range(n)]
    draw.shuffle(values)
    return Column(name, values, values, values)


def _number_like(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return text in ("TRUE", "-", "?", "None", "null")
    return True


def target_of(draw: Draw, n: int, form: str) -> Column:
    """What is to be predicted, and its labels: texts for classes, numbers for amounts."""
    kind = draw.choice(["text", "text", "whole", "truth", "padded", "amount", "whole amounts", "one", "long", "odd truth"])
    name = draw.choice(["y", "label", "größe y", "target"])
    if kind == "text":
        column = texts(draw, n, name, [*TEXTS, "NA"])
        return replace(column, read=[text.strip() for text in column.values])
    if kind == "odd truth":
        pair = draw.choice([("TRUE", "FALSE"), ("true", "false"), ("True", "False"), ("yes", "no")])
        values: list[Any] = [pair[i % 2] for i in range(n)]
        return Column(name, values, values, values)
    if kind == "padded":
        values = [draw.choice(["01", "02", "10"]) for _ in range(n - 1)] + ["01"]
        return Column(name, values, values, values)
    if kind == "long":  # more digits than any number holds
        values = [f"1234567890123456789{i % 3}" for i in range(n)]
        return Column(name, values, values, values)
    values = [
        {
            "whole": lambda: draw.choice([-1, 0, 3, 10]),
            "truth": lambda: draw.random() < 0.5,
            "amount": lambda: draw.uniform(0, 9),
            "whole amounts": lambda: float(draw.randrange(4)),
            "one": lambda: 5,
        }[kind]()
        for _ in range(n)
    ]
    if kind == "amount":
        read: list[Any] = [float(np.float32(v)) for v in values]
    else:
        read = [str(int(v)) if not isinstance(v, bool) else str(v) for v in values]
    return Column(name, values, [str(v) for v in values], read)


def client_of(draw: Draw, n: int) -> Column:
    """The clients, as they are written."""
    pool: Sequence[Any] = draw.choice([("007", "7", "NA"), ("north", "süd", "None"), (2, 10, 1), ("1.0", "1", "01")])
    values = [pool[i % len(pool)] for i in range(n)]
    draw.shuffle(values)
    return Column("who", values, [str(v) for v in values], [str(v) for v in values])


def drawn_table(draw: Draw, folder: Path) -> Case:
    """A table, perhaps with something odd."""
    n = draw.randrange(16, 60)
    form = draw.choice(["text", "text", "text", "parquet", "feather", "frame"])
    names = draw.sample(NAMES, draw.randrange(1, 6))
    columns = []
    for name in names:
        kind = draw.choice([*NUMBERED, "text", "text", "text", *(TYPED if form != "text" else ())])
        columns.append(texts(draw, n, name) if kind == "text" else numbers(draw, kind, n, name, form != "text"))
    table = Table(columns, target_of(draw, n, form), client_of(draw, n) if draw.random() < 0.4 else None, form)
    table.settings |= {"target": table.target.name, "scaling": "none"}
    if table.client:
        table.settings["client"] = table.client.name
    for oddity in draw.sample(ODDITIES, draw.choice([0, 0, 1, 1, 2])):
        oddity(table, draw, n)
    second = draw.random() < 0.35
    if second:
        rows = [draw.randrange(n) for _ in range(draw.randrange(3, 12))]
        if draw.random() < 0.4:
            table.settings["scaling"] = "train"
        given_test, told_test = written(table, draw, folder, "test", rows)
        table.settings["test"] = given_test
        table.told.append(told_test)
    else:
        rows = []
        table.settings["test"] = draw.choice([0.2, 0.1, 0.5])
    given, told = written(table, draw, folder, "train", None)
    shown = {name: value if not isinstance(value, pd.DataFrame) else "a DataFrame" for name, value in table.settings.items()}
    missing = table.how.get("missing", ())
    return Case(
        told="\n".join([told, *table.told, f"{shown}", f"odd: {table.odd}"]),
        read=lambda: data.table(given, **table.settings),
        judge=lambda found: judged(found, table, [i for i in range(n) if i not in missing], rows, missing),
        must=table.must or ("take" if not table.odd and plain(table) and str(table.settings["test"]) != "0.1" else ""),
        say=tuple(table.say),
    )


def plain(table: Table) -> bool:
    """Whether there is nothing that could be read in two ways, so that it must be taken."""
    marks = {"-", "?", "None", "NaN", "null", "inf"}
    return table.settings.get("scaling") == "none" and not any(
        {text for text in column.read if isinstance(text, str)} & marks for column in table.all()
    )


def judged(found: Any, table: Table, rows: Sequence[int], test: Sequence[int], missing: Sequence[int]) -> str:
    """Holds a collection to the columns."""
    client = table.client.name if table.client else ""
    names, inputs = matrix(table, range(len(table.target.read)), [f for f in found.features])
    if names != list(found.features):
        return f"features {list(found.features)}, not {names}"
    labels, keys = table.target.read, table.client.read if table.client else None

    def of(places: Sequence[int]) -> Rows:
        return Rows(inputs[list(places)], [labels[i] for i in places], None if keys is None else [keys[i] for i in places])

    if not test:
        with np.errstate(over="ignore"):
            return apart_in_any_order([rows_of(found, part, client) for part in ("train", "test")], of(rows))
    test = [i for i in test if i not in missing]
    train, tested = of(rows), of(test)
    close = 0.0
    if table.settings["scaling"] == "train":
        mean, std = train.inputs.mean(axis=0), train.inputs.std(axis=0)
        std = np.where(std > 1e-12 * np.maximum(abs(mean), 1), std, 1.0)
        train, tested = (replace(part, inputs=(part.inputs - mean) / std) for part in (train, tested))
        close = 1e-5
    for part, right in (("train", train), ("test", tested)):
        with np.errstate(over="ignore"):
            right = replace(right, inputs=right.inputs.astype(np.float32))
        if wrong := apart(rows_of(found, part, client), right, close):  # type: ignore[arg-type]
            return f"{part}: {wrong}"
    return ""


def matrix(table: Table, rows: Sequence[int], features: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """The features by name, and their numbers; of a text, those of its values that are features."""
    names: list[str] = []
    parts: list[list[float]] = []
    for column in table.columns:
        if not column.text:
            names.append(column.name)
            parts.append([column.read[i] for i in rows])
            continue
        for value in sorted(set(column.read)):
            if f"{column.name}={value}" in features:
                names.append(f"{column.name}={value}")
                parts.append([float(column.read[i] == value) for i in rows])
    return names, np.array(parts, dtype=np.float64).reshape(len(names), len(rows)).T


def written(table: Table, draw: Draw, folder: Path, name: str, rows: Sequence[int] | None) -> tuple[Any, str]:
    """The table as a file or a DataFrame; some of its rows, or all."""
    columns = [column if rows is None else column.at(rows) for column in table.all()]
    if rows is not None or draw.random() < 0.5:
        draw.shuffle(columns)
        if rows is None:
            table.columns[:] = sorted(table.columns, key=lambda c: [o.name for o in columns].index(c.name))
    if table.form == "text":
        return _text(table, draw, folder, name, columns)
    frame = pd.DataFrame({column.name: _series(column.values, draw, table.form) for column in columns})
    told = f"{table.form} {dict(frame.dtypes.items())}\n{frame.head(8)!r}"
    for column, twice in table.how.get("twice", ()):
        frame.insert(len(frame.columns), twice, frame[column], allow_duplicates=True)
    if table.form == "frame":
        return frame, told
    path = folder / f"{name}.{draw.choice([table.form, table.form, 'csv', 'dat'])}"
    frame.to_parquet(path) if table.form == "parquet" else frame.to_feather(path)
    return path, told


def _series(values: Sequence[Any], draw: Draw, form: str) -> Any:
    kinds = {type(value) for value in values if value is not None}
    if kinds == {str} and draw.random() < 0.3:
        return pd.Categorical(values)
    if kinds == {int} and None not in values and max(map(abs, values)) < 100:
        return pd.Series(values, dtype=draw.choice(["int8", "int64", "Int16", "float32"]))
    if kinds == {str} and draw.random() < 0.3:
        return pd.Series(values, dtype="string")
    return pd.Series(values)


def _text(table: Table, draw: Draw, folder: Path, name: str, columns: Sequence[Column]) -> tuple[Path, str]:
    separator = table.how.get("separator") or draw.choice([",", ",", ";", "\t", "|"])
    encoding = table.settings.get("encoding") or draw.choice(["utf-8", "utf-8", "utf-8-sig", "utf-16", "utf-32"])
    out = io.StringIO()
    writer = csv.writer(
        out,
        delimiter=separator,
        lineterminator=draw.choice(["\n", "\r\n", "\n", "\r"]),
        quoting=draw.choice([csv.QUOTE_MINIMAL, csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
    )
    body = [[column.cells[i] for column in columns] for i in range(len(columns[0].cells))]
    for spoil in table.how.get("spoil", ()):
        spoil(body)
    writer.writerow(table.how.get("header", lambda names: names)([column.name for column in columns]))
    writer.writerows(body)
    text = out.getvalue()
    if draw.random() < 0.2:
        text = draw.choice([text.rstrip("\r\n"), text + "\n\n", "\n" + text])
    raw = text.encode(encoding)
    pack, end = draw.choice([(bytes, ""), (bytes, ""), (bytes, ""), (gzip.compress, ".gz"), (bz2.compress, ".bz2")])
    path = folder / f"{name}{draw.choice(['.csv', '.tsv', '.txt', '.CSV'])}{end}"
    path.write_bytes(pack(raw))
    return path, f"text, {separator!r}, {encoding}, {path.name}:\n{text[:500]!r}"


def empty_cells(table: Table, draw: Draw, n: int) -> None:
    """Cells without anything, or with a mark that stands for it."""
    column = draw.choice(table.all())
    if "missing" in table.how or column.name == table.how.get("dropped"):
        return
    mark = draw.choice(["", "", "NA", "?", "-999"])
    rows = draw.sample(range(n), draw.randrange(1, 4))
    if table.form != "text":
        mark = ""
    if mark and column.text:
        return
    values, cells = list(column.values), list(column.cells)
    for row in rows:
        values[row], cells[row] = None, mark
    _replace(table, column, replace(column, values=values, cells=cells))
    table.odd.append(f"{mark!r} in {column.name}")
    table.how["missing"] = rows
    if draw.random() < 0.6:
        table.settings |= {"missing": "drop", "missing_values": [mark] if mark else []}
        table.say.append("rows with empty cells")
    elif mark != "-999":
        table.must = "refuse"
    else:
        table.how["missing"] = ()
        if column in (table.target, table.client) or any(isinstance(v, str) for v in column.read):
            table.must = ""
        table.odd.pop()
        _replace(table, next(c for c in table.all() if c.name == column.name), column)


def _replace(table: Table, old: Column, new: Column) -> None:
    if old is table.target:
        table.target = new
    elif old is table.client:
        table.client = new
    else:
        table.columns[table.columns.index(old)] = new


def ragged(table: Table, draw: Draw, n: int) -> None:
    """Rows wider or narrower than the header."""
    if table.form != "text":
        return
    row, more = draw.randrange(n), draw.choice([True, False])

    def spoil(body: list[list[str]]) -> None:
        cells = body[row % len(body)]
        cells.append("1") if more else cells.pop()

    if not more and len(table.all()) < 3:
        return
    table.how["spoil"] = (spoil,)
    table.must = "refuse"
    table.odd.append("ragged")


def twice(table: Table, draw: Draw, n: int) -> None:
    """Two columns of one name."""
    column = draw.choice(table.all())
    other = draw.choice([column.name, f" {column.name} "])
    if table.form == "text":
        table.how["header"] = lambda names: [*names, other]
        table.how["spoil"] = (lambda body: [row.append("1") for row in body],)
    elif table.form == "frame" or other != column.name:
        table.how["twice"] = ((column.name, other),)
    else:
        return
    table.must = "refuse"
    table.odd.append(f"{other!r} twice")


def nameless(table: Table, draw: Draw, n: int) -> None:
    """A column without a name."""
    if table.form != "text" or "header" in table.how:
        return
    counts = draw.random() < 0.5
    table.how["header"] = lambda names: ["", *names]
    table.how["spoil"] = (
        lambda body: [row.insert(0, str(i) if counts else str(i % 2)) for i, row in enumerate(body)],
    )
    table.odd.append("nameless")
    if not counts:
        table.must = "refuse"
    else:
        table.say.append("has no name")


def commas(table: Table, draw: Draw, n: int) -> None:
    """Fractions with commas, said or not."""
    numbers = [c for c in table.columns if not c.text and any("." in cell for cell in c.cells)]
    if table.form != "text" or not numbers:
        return
    for column in [c for c in table.all() if not c.text or c is table.target]:
        if all(isinstance(v, (float, bool, int)) for v in column.values):
            _replace(table, column, replace(column, cells=[cell.replace(".", ",") for cell in column.cells]))
    table.odd.append("decimal commas")
    table.how["separator"] = draw.choice([";", "\t"])
    if draw.random() < 0.6:
        table.settings["decimal"] = ","


def infinite(table: Table, draw: Draw, n: int) -> None:
    """A number that is none."""
    numbers = [c for c in table.columns if not c.text and isinstance(c.values[0], float)]
    if not numbers:
        return
    column, row = draw.choice(numbers), draw.randrange(n)
    value, cell = draw.choice([(float("inf"), "1e400"), (-1e300, "-1e300"), (1e39, "1e39"), (float("inf"), "inf")])
    values, cells, read = list(column.values), list(column.cells), list(column.read)
    values[row], cells[row], read[row] = value, cell, value
    _replace(table, column, replace(column, values=values, cells=cells, read=read))
    table.must = "refuse"
    table.odd.append(f"{cell} in {column.name}")


def named_ids(table: Table, draw: Draw, n: int) -> None:
    """A text of its own in each row."""
    values = [f"id {i}" for i in range(n)]
    table.columns.append(Column("ident", values, values, values))
    table.odd.append("texts of their own")
    if draw.random() < 0.5:
        table.settings["drop"] = draw.choice([["ident"], "ident"])
        table.how["dropped"] = "ident"


def encoded(table: Table, draw: Draw, n: int) -> None:
    """Another encoding, said or not."""
    if table.form != "text":
        return
    table.odd.append("encoding")
    table.settings["encoding"] = draw.choice(["utf-16", "utf-32", "utf-8", "utf-16-le"])


def counted(table: Table, draw: Draw, n: int) -> None:
    """A column that counts rows: a feature like any other, but said."""
    values = list(range(n))
    table.columns.append(Column("row", values, [str(v) for v in values], [float(v) for v in values]))
    table.odd.append("counts rows")


ODDITIES = (empty_cells, ragged, twice, nameless, commas, infinite, named_ids, encoded, counted)
