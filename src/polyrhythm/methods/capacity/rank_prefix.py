"""A rank for every device: the first ranks of every low-rank adapter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, final

from annotated_types import Gt

from polyrhythm.base.axes import Axes
from polyrhythm.base.portions import Cuts, Portion
from polyrhythm.base.settings import Count
from polyrhythm.methods.capacity.base import Cut, Levels, prefix_of

RANKS = (8, 4, 2)
"""Ranks of three kinds of devices."""


@final
@dataclass(frozen=True, kw_only=True)
class RankPrefix(Levels):
    """A client of rank r_i holds the first r_i rows of A and columns of B of every adapter, and all else that learns.

    The adapters of the model have the largest rank, r, and all clients its scale s = alpha / r, so that the same
    numbers mean the same everywhere. An adapter of a smaller rank is held whole. Ranks of r for all are exactly
    `whole`. The server's mean of a row or column is over those who hold it, unless a part says how adapters are
    averaged: `length_weighted_average`, `decomposed_average`, `stack_in_base` and `residual_in_base` take ranks that
    differ. No state; bytes, vectors and operations are those of the smaller adapters.

    Args:
        rank: r_i, from 1; or a list of levels, which `by` deals to clients.
        by: "clients" deals the levels in equal parts, or in those of `shares`; "memory" gives each device the largest
            rank with which a visit's vectors fit into its memory beside the frozen weights; "speed" the largest with
            which, by the number of its parameters, an adapter takes it no longer than the largest takes the fastest
            device. Either gives the smallest to whoever can do no more.
        shares: of clients, one for each level; only with by="clients".
        dealt: "random" deals by the experiment's seed; "in_order" gives the first clients the first level.
        redrawn: deals anew for each version; only with by="clients".

    Reference: Cho et al., "Heterogeneous LoRA for Federated Fine-tuning of On-Device Foundation Models", EMNLP 2024.
    """

    rank: Count | tuple[Count, ...] = RANKS
    by: Literal["clients", "memory", "speed"] = "clients"
    shares: tuple[Annotated[float, Gt(0)], ...] | None = None
    dealt: Literal["random", "in_order"] = "random"
    redrawn: bool = False

    of_adapters = True
    measure = "rank"
    example = "rank=[8, 4, 2]"

    @property
    def cuts(self) -> Cut:
        return "ranks"

    @property
    def levels(self) -> tuple[float, ...]:
        return self.rank if isinstance(self.rank, tuple) else (self.rank,)

    @property
    def _alike(self) -> bool:
        return True

    def of_level(self, cuts: Cuts, level: float) -> Portion | None:
        assert isinstance(cuts, Axes)
        return prefix_of(cuts, tuple(min(int(level), axis.units) for axis in cuts.axes))
