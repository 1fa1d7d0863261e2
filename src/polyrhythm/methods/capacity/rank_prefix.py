"""A rank for every device: the first ranks of every low-rank adapter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, final

from annotated_types import Gt

from polyrhythm.base.axes import Axes
from polyrhythm.base.errors import UserError
from polyrhythm.base.messages import Fault, Report, State
from polyrhythm.base.portions import Cuts, Portion
from polyrhythm.base.settings import Count, NonNegative
from polyrhythm.methods.adapters.pruning import Tails, pruned
from polyrhythm.methods.capacity.base import Capacity, Cut, Levels, Ratio, prefix_of
from polyrhythm.methods.mechanism import Outcome, Setup

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
    differ. Bytes, vectors and operations are those of the smaller adapters.

    With prune_to = g < 1 a client gives up its last ranks where training has made them shorter, as HetLoRA does. The
    tail of an adapter are columns of B and rows of A from ⌊g r_i⌋ on; the local loss has

        + tail_decay * sum over adapters of ‖B_tail‖_F ‖A_tail‖_F,

    and if that sum is smaller after a visit than it was of the model that was sent, r_i becomes ⌊g r_i⌋, at least 1:
    the tail counts as zero in that version already, and is neither sent nor trained from the next visit on.
    prune_to = 1 is exactly none of it. State of the server: the ranks of clients that have pruned. A client is told its
    rank, and tells the one that it has left. With tail_decay above 0 torch alone computes the steps.

    Departures: the term's gradient is added after clipping, like those of corrections. The update of the visit after
    which a client prunes still travels with the old rank. The paper has one g for both, as here, and does not say what
    becomes of a rank of 1: it stays.

    Args:
        rank: r_i, from 1; or a list of levels, which `by` deals to clients.
        by: "clients" deals the levels in equal parts, or in those of `shares`; "memory" gives each device the largest
            rank with which a visit's vectors fit into its memory beside the frozen weights; "speed" the largest with
            which, by the number of its parameters, an adapter takes it no longer than the largest takes the fastest
            device. Either gives the smallest to whoever can do no more.
        shares: of clients, one for each level; only with by="clients".
        dealt: "random" deals by the experiment's seed; "in_order" gives the first clients the first level.
        redrawn: deals anew for each version; only with by="clients", and without pruning.
        prune_to: g, the share of its ranks that a client keeps when it prunes; 1 never prunes.
        tail_decay: lambda, >= 0.

    Reference: Cho et al., "Heterogeneous LoRA for Federated Fine-tuning of On-Device Foundation Models", EMNLP 2024.
    """

    rank: Count | tuple[Count, ...] = RANKS
    by: Literal["clients", "memory", "speed"] = "clients"
    shares: tuple[Annotated[float, Gt(0)], ...] | None = None
    dealt: Literal["random", "in_order"] = "random"
    redrawn: bool = False
    prune_to: Ratio = 1.0
    tail_decay: NonNegative = 0.0

    of_adapters = True
    measure = "rank"
    example = "rank=[8, 4, 2]"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.redrawn and self.prunes:
            raise UserError(
                f"{self.label()}: redrawn=true with prune_to={self.prune_to:g}",
                expected="one of the two",
                why="a client that has pruned keeps its rank, and redrawn deals it another one for each version",
                fix="leave redrawn or prune_to out",
            )
        if self.tail_decay and not self.prunes:
            raise UserError(
                f"{self.label()}: tail_decay={self.tail_decay:g} with prune_to=1",
                expected="prune_to below 1, such as 0.5",
                why="without pruning there are no last ranks that could decay",
                fix="set prune_to, or leave tail_decay out",
            )

    def describe(self) -> dict[str, Any]:
        """As before there was pruning, where it is off: so a recipe has the digest it had."""
        off = set() if self.prunes else {"prune_to", "tail_decay"}
        return {key: value for key, value in super().describe().items() if key not in off}

    @property
    def prunes(self) -> bool:
        """Whether clients may give up ranks."""
        return self.prune_to < 1

    @property
    def static(self) -> bool:
        return super().static and not self.prunes

    @property
    def guesses(self) -> bool:
        return self.prunes

    @property
    def sends_alike(self) -> bool:
        return not self.prunes

    @property
    def beyond_kernels(self) -> str:
        return "the last ranks of adapters decay" if self.tail_decay else ""

    def fixed_level(self, setup: Setup, client: int) -> float | None:
        return None if self.prunes else super().fixed_level(setup, client)

    @property
    def cuts(self) -> Cut:
        return "ranks"

    @property
    def levels(self) -> tuple[float, ...]:
        return self.rank if isinstance(self.rank, tuple) else (self.rank,)

    @property
    def _alike(self) -> bool:
        return True

    def as_told(self, told: State) -> Capacity:
        return replace(self, rank=told["rank"], by="clients", shares=None) if "rank" in told else self

    def penalty(self, setup: Setup, brief: State) -> Tails | None:
        return self._tails(setup, brief) if self.tail_decay else None

    def _tails(self, setup: Setup, brief: State) -> Tails:
        first = pruned(brief["rank"], self.prune_to)
        return Tails(adapters=setup.adapters, first=first, decay=self.tail_decay)

    def _rank(self, setup: Setup, state: State, client: int, version: int) -> int:
        """r_i as it is now."""
        return int(state["ranks"].get(client, self.level_of(setup, client, version)))

    def server_start(self, setup: Setup) -> State:
        return {"ranks": {}} if self.prunes else {}

    def brief(self, setup: Setup, state: State, client: int) -> State:
        return {"rank": self._rank(setup, state, client, 0)} if self.prunes else {}

    def finish(self, setup: Setup, state: State, brief: State, outcome: Outcome) -> tuple[State, State]:
        if not self.prunes:
            return state, {}
        tails, before = self._tails(setup, brief), outcome.received
        shorter = tails.length(before + outcome.update) < tails.length(before)
        return state, {"rank": tails.first if shorter else brief["rank"]}

    def refuses(self, setup: Setup, state: State, report: Report) -> Fault | None:
        if not self.prunes or not report.fresh:
            return None
        rank, told = self._rank(setup, state, report.client, 0), report.extras.get(self.label(), {}).get("rank")
        if type(told) is not int or told not in (rank, pruned(rank, self.prune_to)):
            return Fault("shape", f"it does not say which of its {rank} ranks its client keeps")
        return None

    def accept(self, setup: Setup, state: State, report: Report) -> State:
        told = report.extras.get(self.label(), {}).get("rank") if self.prunes and report.fresh else None
        if told is None or told == self._rank(setup, state, report.client, 0):
            return state
        return {**state, "ranks": {**state["ranks"], report.client: told}}

    def measures(self, state: State) -> Mapping[str, float]:
        return {"pruned_clients": float(len(state["ranks"]))} if self.prunes else {}

    def of_level(self, cuts: Cuts, level: float) -> Portion | None:
        assert isinstance(cuts, Axes)
        return prefix_of(cuts, tuple(min(int(level), axis.units) for axis in cuts.axes))
