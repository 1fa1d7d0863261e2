"""Clients that differ in how much they hold, not in what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from polyrhythm.base.settings import Count, Positive
from polyrhythm.data.partitions.base import Deal, Partition, View, whole
from polyrhythm.data.partitions.minimum import Minimum, until_large_enough


@final
@dataclass(frozen=True, kw_only=True)
class QuantitySkew(Partition):
    """Random samples, in sizes n * q with q ~ Dir(alpha, ..., alpha). Fits any kind of target.

    alpha -> infinity gives equal sizes.

    Args:
        alpha: concentration, > 0.
        min_size: smallest part allowed, in samples; as in `dirichlet`.
        tries: most draws before the request is refused.
        repair: after the last draw, move samples from the largest parts to those that are short, and say so.

    Raises:
        UserError: clients x min_size > samples, or min_size not reached in `tries` draws.

    Reference: Li et al., "Federated Learning on Non-IID Data Silos" (NIID-Bench), ICDE 2022.
    """

    alpha: Positive
    min_size: Minimum | None = None
    tries: Count = 200
    repair: bool = False

    def deal(self, view: View, parts: int, seed: int) -> Deal:
        def draw(random: np.random.Generator) -> np.ndarray:
            return whole(random.dirichlet(np.full(parts, self.alpha)), len(view), random)[None]

        return until_large_enough(
            draw,
            np.zeros(len(view), dtype=np.int64),
            label=self.label(),
            what=f"quantity_skew(alpha={self.alpha})",
            parts=parts,
            seed=seed,
            min_size=self.min_size,
            tries=self.tries,
            repair=self.repair,
        )
