"""Keys of samples: the writer, role, hospital or user of each, which natural partitions go by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np


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


def columns_of(columns: Mapping[str, Any] | None) -> dict[str, Keys]:
    """Columns from anything that a user may give."""
    return {name: Keys.of(values) for name, values in (columns or {}).items()}


def columns_at(columns: Columns, indices: np.ndarray) -> dict[str, Keys]:
    """All columns at some samples."""
    return {name: keys.at(indices) for name, keys in columns.items()}
