"""The features of a table: numbers as they are, text as one 0/1 feature for each value in the training rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from polyrhythm.base.errors import Mistakes, UserError, unknown
from polyrhythm.data.preprocessing import Feature
from polyrhythm.data.sources.exactness import check_whole

if TYPE_CHECKING:
    import pandas as pd

MOST_CATEGORIES = 1_000
FEW_CATEGORIES = 20
"""As many values a text column may have in any table; more, if each is in two rows or more by average."""
_SHOWN = 5


class Features(NamedTuple):
    """Features of training and test rows, float64 [n, d], and what each is."""

    train: np.ndarray
    test: np.ndarray
    features: tuple[Feature, ...]
    notes: tuple[str, ...]


def features_of(train: pd.DataFrame, test: pd.DataFrame, others: Sequence[str], where: str) -> Features:
    """The features of typed tables.

    Args:
        train: training rows.
        test: test rows, with the same columns.
        others: columns that are no features.
        where: the table's name in messages.

    Raises:
        UserError: text columns that have nearly a value of their own in each row; whole numbers that are too long.
    """
    parts: list[Any] = []
    test_parts: list[Any] = []
    found: list[Feature] = []
    notes: list[str] = []
    wrong = Mistakes()
    for column in (c for c in train.columns if c not in others):
        values, tested = train[column].to_numpy(), test[column].to_numpy()
        if values.dtype.kind in "biuf" and tested.dtype.kind in "biuf":
            with wrong.noted():
                check_whole(values, column, where)
            parts.append(values.astype(np.float64)[:, None])
            test_parts.append(tested.astype(np.float64)[:, None])
            found.append(Feature(column))
            if _counts_rows(values):
                notes.append(f"column {column!r} counts the rows and is a feature; drop=[{column!r}] leaves it out")
            continue
        known, codes = np.unique(values.astype(str), return_inverse=True)
        with wrong.noted():
            _check_categories(known, len(values), column, where)
        if wrong:
            continue
        parts.append(np.eye(len(known))[codes.reshape(-1)])
        cells = tested.astype(str)
        test_parts.append((cells[:, None] == known).astype(np.float64))
        found += [Feature(column, value) for value in known.tolist()]
        notes.append(f"text column {str(column)!r} became {len(known)} features")
        if len(unseen := sorted(set(cells) - set(known))):
            rows = int(np.isin(cells, unseen).sum())
            notes.append(
                f"{rows:,} test rows have values of {column!r} that no training row has, {_some(unseen)}: "
                "all its features are 0 there"
            )
    wrong.refuse()
    whole, test_whole = np.concatenate(parts, axis=1), np.concatenate(test_parts, axis=1)
    constant = [feature.text for feature, same in zip(found, (whole == whole[:1]).all(axis=0), strict=True) if same]
    if constant:
        notes.append(f"one value in all training rows, which tells nothing: {_some(constant)}")
    return Features(whole, test_whole, tuple(found), tuple(notes))


def named_features(
    train: pd.DataFrame, test: pd.DataFrame, others: Sequence[str], where: str, wanted: Sequence[str]
) -> Features:
    """The features of these names of typed tables, in their order.

    Args:
        train, test, others, where: as for `features_of`.
        wanted: columns of numbers, and COLUMN=VALUE for values of columns of text.

    Raises:
        UserError: a feature that is no column nor a value of one, or twice there; a text that no feature stands for.
    """
    twice = next((name for name in wanted if wanted.count(name) > 1), "")
    if twice or not wanted:
        raise UserError(
            f"features with {twice!r} twice" if twice else "no features",
            expected="each feature once",
            why="they are the model's inputs, in that order, and are known by their names",
            fix="correct features, or rename the column",
        )
    columns = [column for column in train.columns if column not in others]
    features = [_named(train, columns, name, where) for name in wanted]
    for column in sorted({feature.column for feature in features if feature.value is not None}):
        known = {str(feature.value) for feature in features if feature.column == column}
        occurring = {*train[column].astype(str), *test[column].astype(str)}
        if strange := sorted(occurring - known):
            raise UserError(
                f"{where}: {column}={strange[0]}" + (f" and {len(strange) - 1} other values" if strange[1:] else ""),
                expected=f"one of the values that features names: {', '.join(sorted(known)[:20])}",
                why="a sample with another value would look to the model as if it had none",
                fix="add it to features, at the server and at every node, or leave those rows out",
            )
    for feature in features:
        if feature.value is None:
            check_whole(train[feature.column].to_numpy(), feature.column, where)
    parts = [np.stack([of.read(frame[of.column].to_numpy()) for of in features], axis=1) for frame in (train, test)]
    return Features(parts[0], parts[1], tuple(features), ())


def _named(frame: pd.DataFrame, columns: Sequence[str], name: str, where: str) -> Feature:
    if name in columns:
        if frame[name].to_numpy().dtype.kind in "biuf":
            return Feature(name)
        raise UserError(
            f"{where}: the feature {name!r}, which is a column of texts",
            expected=f"one feature for each value: {name}=VALUE",
            why="a model reads numbers",
            fix=f"write [{name}=…, {name}=…] with all values that may occur",
        )
    column = next((column for column in columns if name.startswith(f"{column}=")), None)
    if column is None:
        raise unknown("feature", name, columns, where=where)
    return Feature(column, name[len(column) + 1 :])


def _counts_rows(values: np.ndarray) -> bool:
    """Whether a column rises by one from row to row, as numbers of rows do; less any rows that were held out."""
    rises = values.dtype.kind in "iu" and len(values) > FEW_CATEGORIES and bool((np.diff(values) > 0).all())
    return rises and int(values[0]) <= len(values) and int(values[-1] - values[0]) < 2 * len(values)


def _check_categories(known: np.ndarray, rows: int, column: str, where: str) -> None:
    if len(known) <= FEW_CATEGORIES or (2 * len(known) <= rows and len(known) <= MOST_CATEGORIES):
        return
    raise UserError(
        f"{where}: text column {column!r} has {len(known):,} values in {rows:,} rows, {_some(known.tolist())}",
        expected=f"at most {MOST_CATEGORIES:,} values, each in two rows or more by average",
        why="each value becomes a feature, and one that stands in a single row is learned by heart",
        fix=f"drop=[{column!r}] leaves it out; or make a number or a few groups of it",
    )


def _some(values: Sequence[str]) -> str:
    shown = ", ".join(repr(value[:40]) for value in values[:_SHOWN])
    return f"{shown} and {len(values) - _SHOWN:,} more" if len(values) > _SHOWN else shown
