"""Clients that the data itself names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from polyrhythm.base.errors import UserError
from polyrhythm.base.settings import Count
from polyrhythm.data.labels import as_text
from polyrhythm.data.partitions.base import Deal, Partition, View


@final
@dataclass(frozen=True, kw_only=True)
class ByColumn(Partition):
    """One client for each value of a column: a writer, a speaking role, a hospital, a user.

    Fits any kind of target. Clients are in the order of the column's values; with fewer clients than values, random
    ones are used and the unused share is reported.

    Args:
        column: name of the column.
        min_size: values with fewer samples are left out, and counted in the notes.

    Raises:
        UserError: no such column, or fewer values than clients.

    Reference: Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018.
    """

    column: str
    min_size: Count = 1

    def deal(self, view: View, parts: int, seed: int) -> Deal:
        keys = view.column(self.column, self.label())
        sizes = np.bincount(keys.codes, minlength=len(keys.values))
        kept = sizes >= self.min_size
        if not kept.any() or self.parts not in (None, int(kept.sum())):
            raise UserError(
                f"by_column({self.column!r}): {int(kept.sum()):,} values with {self.min_size:,} samples or more, "
                f"parts={self.parts}",
                expected="as many parts as the column has values",
                why="the column says where the data is cut",
                fix="leave parts out, and give a min_size that some values reach",
            )
        number = np.where(kept, np.cumsum(kept) - 1, -1)
        owner = number[keys.codes].astype(np.int64)
        notes = []
        few = (sizes > 0) & ~kept
        if few.any():
            lost = int(sizes[few].sum())
            notes.append(
                f"{int(few.sum()):,} values of {self.column!r} with fewer than {self.min_size:,} samples "
                f"are left out ({lost:,} samples)"
            )
        names = tuple(as_text(value) for value in keys.values[kept])
        return Deal(owner=owner, parts=len(names), names=names, notes=tuple(notes))
