"""Keys of samples: the writer, role, hospital or user of each, which natural partitions go by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from polyrhythm.base.errors import UserError
from polyrhythm.data.given import plain_array


@final
@dataclass(frozen=True)
class Keys:
    """One column of keys: its distinct values, and the number of the value of each sample.

    Three million windows of nine hundred roles would be half a gigabyte as text.

    Args:
        values: [k] numbers or strings, sorted, without repeats; some may have no sample.
        codes: [n] int64, places in `values`.
    """

    values: np.ndarray
    codes: np.ndarray

    @classmethod
    def of(cls, column: Any) -> Keys:
        """From one value for each sample, [n]; a `Keys` stays as it is."""
        if isinstance(column, Keys):
            return column
        values, codes = np.unique(np.asarray(column), return_inverse=True)
        return cls(values, codes.reshape(-1).astype(np.int64))

    def __len__(self) -> int:
        return len(self.codes)

    def at(self, indices: np.ndarray) -> Keys:
        """The keys of some samples, by index or mask; the values stay all."""
        return Keys(self.values, self.codes[indices])


Columns = Mapping[str, Keys]


def columns_of(columns: Mapping[str, Any] | None, samples: int) -> dict[str, Keys]:
    """Columns from anything that a user may give, for so many samples.

    Raises:
        UserError: a column with missing keys, of several kinds, or of another length.
    """
    return {name: _checked(name, values, samples) for name, values in (columns or {}).items()}


def _checked(name: str, values: Any, samples: int) -> Keys:
    if not isinstance(values, Keys):
        array = plain_array(values, f"keys of column {name!r}")
        if array.ndim == 1 and array.dtype.kind == "f" and (missing := int(np.isnan(array).sum())):
            raise _no_keys(f"column {name!r}: {missing:,} keys that are NaN", "a key for each sample")
        if array.ndim != 1 or array.dtype.kind == "V":
            raise _no_keys(f"column {name!r} of {array.dtype} and shape {array.shape}", "one key a sample, [n]")
        values = array
    keys = Keys.of(values)
    if len(keys) != samples:
        raise _no_keys(f"column {name!r} with {len(keys):,} keys for {samples:,} samples", "one key for each sample")
    return keys


def _no_keys(found: str, expected: str) -> UserError:
    return UserError(
        found,
        expected=expected,
        why="clients are made from the keys of their samples",
        fix="give the keys in the order of the samples, and a name of their own to those that have none",
    )


def columns_at(columns: Columns, indices: np.ndarray) -> dict[str, Keys]:
    """All columns at some samples."""
    return {name: keys.at(indices) for name, keys in columns.items()}
