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
from polyrhythm.data.sources.files import corrupt, existing
from polyrhythm.data.sources.memory import arrays
from polyrhythm.data.targets import strata

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
    features: Sequence[str] | None = None,
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
        task: "classification" or "regression"; None goes by the target, as for `arrays`: fractions are regression.
        classes: the labels in the order of class numbers; None sorts those that occur.
        threshold: makes two classes of a number: 0 at most the threshold, 1 above it.
        drop: columns to leave out.
        missing: "refuse" tables with empty cells, or "drop" their rows.
        name: of the collection; the file's name by default.
        features: the inputs in order, such as ["age", "colour=blue", "colour=green"]: columns, and values of text
            columns; None takes all columns as they stand, and the values that occur. A real federation needs the same
            ones at every node.

    Raises:
        UserError: no such column, empty cells, a value that no feature stands for, a damaged file.

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
        out = held_out(groups, strata(y, task, named=classes is not None), test, stream(0, "split", "table"))
        frame, tested = frame[~out], frame[out]
    columns = [c for c in frame.columns if c not in (target, client)]
    wanted, strict = _checked(features or _found_features(frame, tested, columns)), features is not None
    dropped = tuple(
        f"text column {str(column)!r} became {count} features"
        for column in columns
        if (count := sum(name.startswith(f"{column}=") for name in wanted)) and str(column) not in wanted
    )
    made = arrays(
        _inputs(frame, columns, wanted, place, strict=strict),
        _target(frame, target, threshold),
        test=(_inputs(tested, columns, wanted, place, strict=strict), _target(tested, target, threshold)),
        task=task,
        classes=classes,
        scaling=scaling,
        columns={client: _keys(frame, client)} if client else None,
        test_columns={client: _keys(tested, client)} if client else None,
        name=name or (place.stem if held_file or "." not in place.stem else place.stem.split(".")[0]),
        notes=dropped,
        features=wanted,
    )
    return replace(made, target=target if threshold is None else f"{target} > {threshold:g}")


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
    return values


def _keys(frame: pd.DataFrame, client: str) -> np.ndarray:
    values: np.ndarray = frame[client].to_numpy()
    return values if values.dtype.kind in "biu" else values.astype(str)


def _found_features(train: pd.DataFrame, test: pd.DataFrame, columns: Sequence[Any]) -> list[str]:
    """Columns of numbers as they are, of text one feature for each value in the training rows."""
    names = list[str]()
    for column in columns:
        if _are_numbers(train[column]) and _are_numbers(test[column]):
            names.append(str(column))
        else:
            names += [f"{column}={value}" for value in np.unique(train[column].to_numpy().astype(str))]
    return names


def _inputs(
    frame: pd.DataFrame, columns: Sequence[Any], wanted: Sequence[str], place: Path, *, strict: bool
) -> np.ndarray:
    """The features of some rows, [n, features] float32.

    Raises:
        UserError: a feature that is no column nor a value of one; or, if strict, a text that no feature stands for.
    """
    by_name, parts, texts = {str(column): column for column in columns}, list[np.ndarray](), dict[str, np.ndarray]()
    for name in wanted:
        if name in by_name and _are_numbers(frame[by_name[name]]):
            parts.append(frame[by_name[name]].to_numpy().astype(np.float32))
            continue
        column = next((c for c in by_name if name.startswith(f"{c}=")), None)
        if column is None or name in by_name:
            raise _no_feature(name, list(by_name), place, text=name in by_name)
        if column not in texts:
            texts[column] = frame[by_name[column]].to_numpy().astype(str)
        parts.append((texts[column] == name[len(column) + 1 :]).astype(np.float32))
    for column, values in texts.items() if strict else ():
        known = {name[len(column) + 1 :] for name in wanted if name.startswith(f"{column}=")}
        if strange := sorted(set(np.unique(values).tolist()) - known):
            raise UserError(
                f"{place}: {column}={strange[0]}" + (f" and {len(strange) - 1} other values" if strange[1:] else ""),
                expected=f"one of the values that features names: {', '.join(sorted(known)[:20])}",
                why="a sample with another value would look to the model as if it had none",
                fix="add it to features, at the server and at every node, or leave those rows out",
            )
    return np.stack(parts, axis=1)


def _are_numbers(column: pd.Series[Any]) -> bool:
    return column.to_numpy().dtype.kind in "biuf"


def _checked(features: Sequence[str]) -> list[str]:
    names = [str(name) for name in features]
    if not names or len(set(names)) != len(names):
        twice = next((name for name in names if names.count(name) > 1), "")
        raise UserError(
            f"features with {twice!r} twice" if twice else "no features",
            expected="each feature once",
            why="they are the model's inputs, in that order, and are known by their names",
            fix="correct features, or rename the column",
        )
    return names


def _no_feature(name: str, columns: Sequence[str], place: Path, *, text: bool) -> UserError:
    if not text:
        return unknown("feature", name, columns, where=str(place))
    return UserError(
        f"{place}: the feature {name!r}, which is a column of texts",
        expected=f"one feature for each value: {name}=VALUE",
        why="a model reads numbers",
        fix=f"write [{name}=…, {name}=…] with all values that may occur",
    )
