"""Numbers that differ must not become one where they are made floats."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polyrhythm.base.errors import UserError

_WHOLE = 2**53
"""Up to here each whole number is a float64."""
_FINE = 1e-5
"""A spread, as a share of the mean, below which float32 may take different numbers for one."""
_TINY = 1e-37
"""Below this float32 has fewer digits, and then none."""


def check_whole(values: np.ndarray, column: str, where: str) -> None:
    """Refuses whole numbers so long that float64 takes some of them for one.

    Args:
        values: whole numbers, [n]; Python's own where they are longer than 64 bits.
        column: its name.
        where: the table's name.

    Raises:
        UserError: distinct numbers become equal.
    """
    if (
        values.dtype.kind not in "iuO"
        or not len(values)
        or max(abs(int(values.min())), abs(int(values.max()))) < _WHOLE
    ):
        return
    distinct, left = len(set(values.tolist())), len(np.unique(values.astype(np.float64)))
    if left == distinct:
        return
    raise UserError(
        f"{where}: column {column!r} holds {distinct:,} whole numbers beyond 2^53, and {left:,} as floats, "
        f"{int(values[0])} for instance",
        expected="numbers of up to 15 digits, where they are features",
        why="different numbers would become one; those of so many digits are mostly names of things",
        fix=f"drop=[{column!r}] leaves it out; or subtract what they have in common",
    )


def same_in_float32(before: np.ndarray, after: np.ndarray, columns: Sequence[str], scaling: bool) -> tuple[str, ...]:
    """Notes on features of which float32 takes most different values for one.

    Args:
        before: [n, d], wide floats or whole numbers.
        after: as they are held, or will be read.
        columns: names of the features; empty where they have none.
        scaling: whether they are scaled.
    """
    if before.ndim != 2 or before.dtype.kind not in "iuf" or before.dtype.itemsize < 8 or not before.size:
        return ()
    with np.errstate(over="ignore", invalid="ignore"):
        mean, std = np.abs(before.mean(axis=0, dtype=np.float64)), before.std(axis=0, dtype=np.float64)
        most = np.abs(before).max(axis=0)
    notes = []
    for feature in np.flatnonzero(((std > 0) & (std < _FINE * mean)) | ((most > 0) & (most < _TINY))).tolist():
        distinct, left = len(np.unique(before[:, feature])), len(np.unique(after[:, feature].astype(np.float32)))
        if 2 * left < distinct:
            name = repr(columns[feature]) if columns else str(feature)
            notes.append(
                f"feature {name} has {distinct:,} different values, of which {left:,} are left in float32: subtract "
                "what they have in common, or multiply them"
                + ("" if scaling or most[feature] < _TINY else '; scaling="train" does both before they are float32')
            )
    return tuple(notes)
