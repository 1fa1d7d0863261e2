"""Tables: CSV or Parquet files with a target column and, if there is one, a client column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from polyrhythm.base.errors import UserError, unknown
from polyrhythm.base.streams import stream
from polyrhythm.data.collection import Collection
from polyrhythm.data.holdout import check_share, held_out
from polyrhythm.data.preprocessing import features_of
from polyrhythm.data.sources.files import corrupt, existing
from polyrhythm.data.sources.memory import arrays

if TYPE_CHECKING:
    import pandas as pd


def table(
    path: str | Path,
    *,
    target: str,
    client: str = "",
    test: str | Path | float = 0.2,
    scaling: str = "train",
    task: str | None = None,
    classes: Sequence[object] | None = None,
    threshold: float | None = None,
    drop: Sequence[str] = (),
    missing: str = "refuse",
    name: str = "",
) -> Collection:
    """A CSV or Parquet table, one row a sample; text columns become one 0/1 feature for each value.

    Args:
        path: the file (.csv, .csv.gz, .tsv, .parquet).
        target: column to predict.
        client: column that names the client; partition with `by_column`. It is no feature.
        test: a second file with the same columns, or the share of rows to hold out, of each client where there is a
            client column, spread over the classes, the same for every seed.
        scaling: "train" for zero mean and unit variance of each feature over the training rows of all clients together
            (which a real federation would have to compute first), or "none".
        task: "classification" or "regression"; None goes by the target: fractions are regression.
        classes: the labels in the order of class numbers; None sorts those that occur.
        threshold: makes two classes of a number: 0 at most the threshold, 1 above it.
        drop: columns to leave out.
        missing: "refuse" tables with empty cells, or "drop" their rows.
        name: of the collection; the file's name by default.

    Raises:
        UserError: no such column, empty cells, a damaged file.

    Reference: the file's own.
    """
    place = existing(path, what="a .csv, .tsv or .parquet file")
    frame = _frame(place, target, client, drop, missing)
    held_file = isinstance(test, (str, Path))
    if isinstance(test, (str, Path)):
        tested = _frame(existing(test, what="a table like the training one"), target, client, drop, missing)
        if set(tested.columns) != set(frame.columns):
            odd = sorted(set(tested.columns) ^ set(frame.columns))
            raise corrupt(Path(test), f"columns {', '.join(odd)} are in one table only", "the training table's columns")
        tested = tested[list(frame.columns)]
    else:
        check_share("test", test)
        y, groups = _target(frame, target, threshold), np.zeros(len(frame), dtype=np.int64)
        if client:
            groups = np.unique(_keys(frame, client), return_inverse=True)[1]
        labels = None if y.dtype.kind == "f" else np.unique(y, return_inverse=True)[1]
        out = held_out(groups, labels, test, stream(0, "split", "table"))
        frame, tested = frame[~out], frame[out]
    features, test_features, dropped = _features(frame, tested, [target, *([client] if client else [])])
    made = arrays(
        features,
        _target(frame, target, threshold),
        test=(test_features, _target(tested, target, threshold)),
        task=task,
        classes=classes,
        scaling=scaling,
        columns={client: _keys(frame, client)} if client else None,
        test_columns={client: _keys(tested, client)} if client else None,
        name=name or (place.stem if held_file or "." not in place.stem else place.stem.split(".")[0]),
        notes=dropped,
    )
    assert made.preprocessing is not None
    columns = features_of(frame, [target, *([client] if client else [])])
    return replace(made, preprocessing=replace(made.preprocessing, columns=columns, target=target))


def _frame(place: Path, target: str, client: str, drop: Sequence[str], missing: str) -> pd.DataFrame:
    import pandas as pd

    if missing not in ("refuse", "drop"):
        raise unknown("missing", missing, ["refuse", "drop"])
    try:
        if place.suffix == ".parquet":
            frame = pd.read_parquet(place)
        else:
            frame = pd.read_csv(place, sep="\t" if ".tsv" in place.suffixes else ",")
    except ImportError:
        raise UserError(
            f"{place}: no package that reads Parquet is installed",
            expected="pyarrow",
            why="a Parquet file is a compressed binary format",
            fix='pip install "polyrhythm[parquet]", or give a .csv file',
        ) from None
    except Exception as error:  # parsers raise many kinds
        raise corrupt(place, f"cannot be read as a table ({error})") from None
    for column in (target, *([client] if client else []), *drop):
        if column not in frame.columns:
            raise unknown("column", column, map(str, frame.columns), where=str(place))
    frame = frame.drop(columns=list(drop))
    empty = frame.isna()
    if missing == "refuse" and empty.to_numpy().any():
        counts = {str(c): int(n) for c, n in empty.sum().items() if n}
        raise UserError(
            f"{place}: empty cells in {', '.join(f'{c} ({n})' for c, n in counts.items())}",
            expected="a value in every cell that is used",
            why="an empty cell becomes NaN, and that makes every weight it touches NaN",
            fix='missing="drop" leaves those rows out, drop=[...] leaves columns out; or fill the cells',
        )
    frame = frame[~empty.any(axis=1)]
    if frame.empty or len(frame.columns) < 2 + bool(client):
        raise corrupt(place, f"leaves {len(frame)} rows of {len(frame.columns)} columns", "rows with features")
    return frame


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
    # Whole numbers read as floats because a column once had an empty cell are still labels.
    whole = values.dtype.kind == "f" and bool((values == np.rint(values)).all())
    return values.astype(np.int64) if whole else values


def _keys(frame: pd.DataFrame, client: str) -> np.ndarray:
    values: np.ndarray = frame[client].to_numpy()
    return values if values.dtype.kind in "biu" else values.astype(str)


def _features(
    train: pd.DataFrame, test: pd.DataFrame, others: list[str]
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Numbers as they are, text as one column for each value in the training rows."""
    parts: list[Any] = []
    test_parts: list[Any] = []
    notes = []
    for column in (c for c in train.columns if c not in others):
        values, tested = train[column].to_numpy(), test[column].to_numpy()
        if values.dtype.kind in "biuf" and tested.dtype.kind in "biuf":
            parts.append(values.astype(np.float32)[:, None])
            test_parts.append(tested.astype(np.float32)[:, None])
            continue
        known = np.unique(values.astype(str))
        parts.append((values.astype(str)[:, None] == known).astype(np.float32))
        test_parts.append((tested.astype(str)[:, None] == known).astype(np.float32))
        notes.append(f"text column {str(column)!r} became {len(known)} features")
    return np.concatenate(parts, axis=1), np.concatenate(test_parts, axis=1), tuple(notes)
