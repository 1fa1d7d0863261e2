"""Tables: text files, Parquet or DataFrames with a target column and, if there is one, a client column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from polyrhythm.base.errors import UserError, unknown
from polyrhythm.base.streams import stream
from polyrhythm.data.collection import Collection
from polyrhythm.data.holdout import check_share, held_out
from polyrhythm.data.labels import as_text
from polyrhythm.data.sources.cells import Reading, typed
from polyrhythm.data.sources.features import features_of, named_features
from polyrhythm.data.sources.memory import arrays, no_test
from polyrhythm.data.sources.table_files import Frame, Raw, raw_table
from polyrhythm.data.sources.table_notes import notes_of
from polyrhythm.data.targets import strata

if TYPE_CHECKING:
    import pandas as pd


def table(
    path: str | Path | Frame,
    *,
    target: str,
    client: str = "",
    test: str | Path | float | Frame = 0.2,
    scaling: str = "train",
    task: str | None = None,
    classes: Sequence[object] | None = None,
    threshold: float | None = None,
    drop: Sequence[str] = (),
    missing: str = "refuse",
    missing_values: Sequence[object] = (),
    separator: str = "",
    decimal: str = ".",
    encoding: str = "",
    name: str = "",
    features: Sequence[str] | None = None,
) -> Collection:
    """A table, one row a sample: CSV, Parquet, a DataFrame; text columns become one 0/1 feature for each value.

    Nothing is guessed about cells: a column of a text file holds numbers if each of its cells is one, and text
    otherwise. Names of clients and classes are as they are written, 007 and NA too.

    Args:
        path: the file (.csv, .tsv, .csv.gz, .parquet, .feather), told by how it begins, or a DataFrame.
        target: column to predict.
        client: column that names the client; partition with `by_column`. It is no feature.
        test: a second table with the same columns, or the share of rows to hold out, of each client where there is a
            client column, spread over the classes, the same for every seed.
        scaling: "train" for zero mean and unit variance of each feature over the training rows of all clients together
            (which a real federation would have to compute first), or "none".
        task: "classification" or "regression"; None goes by the target: fractions are regression.
        classes: the labels in the order of class numbers; None sorts those that occur.
        threshold: makes two classes of a number: 0 at most the threshold, 1 above it.
        drop: columns to leave out.
        missing: "refuse" tables with empty cells, or "drop" their rows.
        missing_values: cells that count as empty beside empty ones, such as ["NA", "?"].
        separator: what stands between cells of a text file: a character, "tab" or "space"; "" finds it.
        decimal: what stands before the fraction in a text file, "." or ",".
        encoding: of a text file, such as "cp1252"; "" for UTF-8, and UTF-16 with its mark.
        name: of the collection; the file's name by default.
        features: the inputs in order, such as ["age", "colour=blue", "colour=green"]: columns, and values of text
            columns; None takes all columns as they stand, and the values that occur. A real federation needs the same
            ones at every node.

    Raises:
        UserError: no such column, empty cells, cells of several kinds in a column, text that is another one in nearly
            each row, a value that no feature stands for, rows wider or narrower than the header, equal names, a damaged
            file.

    Reference: the file's own.
    """
    if scaling not in ("none", "train"):
        raise unknown("scaling", scaling, ["none", "train"])
    drop, signs = _several(drop), _several(missing_values)
    reading = Reading(target=target, client=client, missing=missing, missing_values=signs, decimal=decimal)
    used = [target, *([client] if client else [])]
    raw = raw_table(path, separator=separator, encoding=encoding, wanted=[*used, *drop])
    frame, notes = typed(_without(raw, [*used, *drop], drop), reading)
    _check_size(frame, raw.where, reading)
    if isinstance(test, (str, Path, Frame)):
        other = raw_table(test, separator=separator, encoding=encoding, wanted=used)
        there = [column for column in drop if column in other.frame.columns]
        tested, said = typed(_in_step(_without(other, [*used, *there], there), frame), reading, like=frame)
        _check_size(tested, other.where, reading)
        notes = (*notes, *(f"test table: {note}" for note in said))
        if list(tested.columns) != list(other.frame.columns.drop(there)):
            notes = (*notes, "test table: its columns stand in another order, and are taken by their names")
    else:
        check_share("test", test)
        y, groups = _target(frame, target, threshold), np.zeros(len(frame), dtype=np.int64)
        if client:
            groups = np.unique(_keys(frame, client), return_inverse=True)[1]
        out = held_out(groups, strata(y, task, named=classes is not None), test, stream(0, "split", "table"))
        if not out.any():
            raise no_test(f"test = {test!r} of {len(frame):,} rows")
        frame, tested = frame[~out], frame[out]
    if features is None:
        found = features_of(frame, tested, used, raw.where)
    else:
        found = named_features(frame, tested, used, raw.where, [*map(str, features)])
    made = arrays(
        found.train,
        _target(frame, target, threshold),
        test=(found.test, _target(tested, target, threshold)),
        task=task,
        classes=classes,
        scaling=scaling,
        columns={client: _keys(frame, client)} if client else None,
        test_columns={client: _keys(tested, client)} if client else None,
        name=name or _name(path),
        notes=(*notes, *found.notes, *notes_of(frame, target, client)),
        features=[feature.text for feature in found.features],
    )
    assert made.preprocessing is not None
    return replace(
        made,
        target=target if threshold is None else f"{target} > {threshold:g}",
        preprocessing=replace(
            made.preprocessing, features=found.features, target=target, threshold=threshold, decimal=decimal
        ),
    )


def _several(values: Sequence[object]) -> tuple[str, ...]:
    """A list of settings as text; one text alone is one, not its letters."""
    return (values,) if isinstance(values, str) else tuple(as_text(value) for value in values)


def _name(path: str | Path | Frame) -> str:
    if not isinstance(path, (str, Path)):
        return "table"
    stem = Path(path).stem
    return stem.split(".")[0] or stem


def _without(raw: Raw, needed: Sequence[str], drop: Sequence[str]) -> Raw:
    """The table without some columns.

    Raises:
        UserError: one of the columns that are needed is not there.
    """
    for column in needed:
        if column not in raw.frame.columns:
            raise unknown("column", column, (name[:60] for name in raw.frame.columns), where=raw.where)
    return raw._replace(frame=raw.frame.drop(columns=list(drop)))


def _check_size(frame: pd.DataFrame, where: str, reading: Reading) -> None:
    if frame.empty or len(frame.columns) < 2 + bool(reading.client):
        raise UserError(
            f"{where}: leaves {len(frame)} rows of {len(frame.columns)} columns",
            expected="rows with features, beside the target and the client",
            why="a model predicts the target from features",
            fix="look at drop, missing and missing_values, and whether it is this file you mean",
        )


def _in_step(tested: Raw, train: pd.DataFrame) -> Raw:
    """The test table with the columns of the training one, in their order."""
    if odd := sorted(set(tested.frame.columns) ^ set(train.columns)):
        shown = ", ".join(name[:40] for name in odd[:20]) + (f" and {len(odd) - 20} more" if len(odd) > 20 else "")
        raise UserError(
            f"{tested.where}: columns {shown} are in one table only",
            expected="the training table's columns",
            why="a model that was trained on some columns cannot be tested on others",
            fix=f"drop={odd[:5]} leaves them out of both; or add what is missing",
        )
    return tested._replace(frame=tested.frame[list(train.columns)])


def _target(frame: pd.DataFrame, target: str, threshold: float | None) -> np.ndarray:
    values: np.ndarray = frame[target].to_numpy()
    if values.dtype.kind not in "biuf":
        if threshold is not None:
            raise UserError(
                f"threshold = {threshold!r} for the text column {target!r}",
                expected="a column of numbers",
                why="text is neither above nor below a number",
                fix="leave threshold out: each text is a class of its own",
            )
        return values.astype(str)
    if threshold is not None:
        return (values > threshold).astype(np.int64)
    return values


def _keys(frame: pd.DataFrame, client: str) -> np.ndarray:
    values: np.ndarray = frame[client].to_numpy()
    return values if values.dtype.kind in "biu" else values.astype(str)
