"""Tables as people have them, and what must come out of each: the drawer knows, since it wrote the cells."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from drawn.case import Case, Draw, Rows, apart, apart_in_any_order, rows_of
from drawn.columns import NAMES, NUMBERED, TYPED, Column, Table, client_of, numbers, target_of, texts
from drawn.oddities import ODDITIES
from polyrhythm import data


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
    shown = {
        name: value if not isinstance(value, pd.DataFrame) else "a DataFrame" for name, value in table.settings.items()
    }
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
    names, inputs = matrix(table, range(len(table.target.read)), found.features)
    if names != list(found.features):
        return f"features {list(found.features)}, not {names}"
    labels, keys = table.target.read, table.client.read if table.client else None

    def of(places: Sequence[int]) -> Rows:
        return Rows(
            inputs[list(places)], [labels[i] for i in places], None if keys is None else [keys[i] for i in places]
        )

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
