"""The last ranks of adapters: what pulls them to zero in training, and what is left of them to a client."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from polyrhythm.base.adapters import Adapter
from polyrhythm.methods.work.budgets import EPSILON


def pruned(rank: int, kept: float) -> int:
    """How many of its ranks are left to a client that prunes: floor(kept * rank), at least 1.

    >>> pruned(8, 0.5), pruned(8, 0.99), pruned(1, 0.5)
    (4, 7, 1)
    """
    return max(1, math.floor(kept * rank + EPSILON))


@final
@dataclass(frozen=True, kw_only=True)
class Tails:
    """The last ranks of each adapter, from so many on: columns of B and rows of A.

    Args:
        adapters: where they lie in a vector.
        first: how many ranks come before.
        decay: lambda, by what the sum of ||B_tail|| ||A_tail|| counts in the loss.
    """

    adapters: tuple[Adapter, ...]
    first: int
    decay: float = 0.0

    def _of(self, vector: Tensor) -> Iterable[tuple[Tensor, Tensor]]:
        """Views of B_tail and A_tail of each adapter that has any."""
        for adapter in self.adapters:
            if adapter.rank > self.first:
                yield adapter.b.of(vector)[:, self.first :], adapter.a.of(vector)[self.first :]

    def length(self, weights: Tensor) -> float:
        """sum over adapters of ||B_tail||_F ||A_tail||_F of weights [P], in float64."""
        pairs = ((torch.linalg.vector_norm(part.double()) for part in both) for both in self._of(weights))
        return math.fsum(float(b * a) for b, a in pairs)

    def add_(self, gradient: Tensor, weights: Tensor) -> None:
        """Adds the gradient of lambda times that sum to one of the loss [P]; none where a factor is zero itself."""
        for (b, a), (into_b, into_a) in zip(self._of(weights), self._of(gradient), strict=True):
            of_b, of_a = torch.linalg.vector_norm(b), torch.linalg.vector_norm(a)
            into_b.add_(b * torch.where(of_b > 0, self.decay * of_a / of_b, 0.0))
            into_a.add_(a * torch.where(of_a > 0, self.decay * of_b / of_a, 0.0))
