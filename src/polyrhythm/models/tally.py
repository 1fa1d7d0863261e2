"""What metrics are read from: pooled over samples, and never a mean of batch means.

A batch gives a `Tally` (a count and named sums), tallies add, and only the total is read. So the same numbers come out
however the samples were cut into batches or spread over clients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from torch import Tensor


@final
@dataclass(frozen=True)
class Tally:
    """What was counted over some samples. A monoid: `Tally()` is the identity and `+` is associative.

    >>> a, b = Tally(1, {"correct": 0.0}), Tally(33, {"correct": 33.0})
    >>> (a + b).mean("correct") == 33 / 34
    True

    Args:
        count: number of samples.
        sums: named sums over those samples, in double precision; a name that is missing counts as 0.
        rows: outputs and targets themselves, in pieces, for metrics that are no sums, such as the area under a curve.
        classes: the class of each sample and the one that it was put into, in pieces, where results by class are asked
            for.
    """

    count: int = 0
    sums: Mapping[str, float] = field(default_factory=dict)
    rows: tuple[tuple[Tensor, Tensor], ...] = ()
    classes: tuple[tuple[Tensor, Tensor], ...] = ()

    def __add__(self, other: Tally) -> Tally:
        names = [*self.sums, *(name for name in other.sums if name not in self.sums)]
        return Tally(
            self.count + other.count,
            {name: self.sums.get(name, 0.0) + other.sums.get(name, 0.0) for name in names},
            self.rows + other.rows,
            self.classes + other.classes,
        )

    def mean(self, name: str) -> float:
        """The named sum per sample."""
        return self.sums.get(name, 0.0) / self.count
