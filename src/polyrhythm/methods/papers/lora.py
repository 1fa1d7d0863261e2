"""Methods of low-rank adapters: how their factors are averaged, which are trained, and what ranks clients have.

All are FedAvg on a model with adapters, such as with_lora(mlp, rank=8) or hf(path=…, rank=8). Of a model without any,
fedit is FedAvg, and the others are refused.
"""

from __future__ import annotations

from typing import Literal, Unpack

from polyrhythm.base.errors import UserError
from polyrhythm.methods.adapters.averages import (
    DecomposedAverage,
    LengthWeightedAverage,
    ResidualInBase,
    StackInBase,
)
from polyrhythm.methods.adapters.factors import AlternateFactors, FreezeFactor
from polyrhythm.methods.capacity.base import WHOLE, Capacity
from polyrhythm.methods.capacity.rank_prefix import RANKS, RankPrefix
from polyrhythm.methods.papers.common import Common, recipe
from polyrhythm.methods.personal.scope import PersonalLayers
from polyrhythm.methods.recipe import Recipe

By = Literal["clients", "memory", "speed"]
Ranks = int | tuple[int, ...] | None


def fedit(**common: Unpack[Common]) -> Recipe:
    """FedIT: A and B of low-rank adapters are averaged, each by itself (Zhang et al., ICASSP 2024). It is FedAvg.

    Args:
        common: settings of every recipe, see `Common`.
    """
    return recipe("fedit", common)


def ffa_lora(**common: Unpack[Common]) -> Recipe:
    """FFA-LoRA: A stays as it was drawn, and B is averaged, which is exact (Sun, Li, Li, Ding, ICLR 2024).

    Args:
        common: settings of every recipe, see `Common`.
    """
    return recipe("ffa_lora", common, modifiers=(FreezeFactor(),))


def rolora(*, versions: int = 1, **common: Unpack[Common]) -> Recipe:
    """RoLoRA: B is trained in one version, A in the next, which is exact (Chen et al., NeurIPS 2025).

    Args:
        versions: in a row that train the same factor.
        common: settings of every recipe, see `Common`.
    """
    return recipe("rolora", common, modifiers=(AlternateFactors(versions=versions),))


def fedsa_lora(**common: Unpack[Common]) -> Recipe:
    """FedSA-LoRA: A is averaged, B stays at each client (Guo et al., ICLR 2025).

    Args:
        common: settings of every recipe, see `Common`.
    """
    return recipe("fedsa_lora", common, scope=PersonalLayers(layers=("*lora_B*",)))


def fedex_lora(*, rank: Ranks = None, by: By = "clients", **common: Unpack[Common]) -> Recipe:
    """FedEx-LoRA: what the means of A and B miss of the mean of B A goes into the base (Singhal et al., ACL 2025).

    Args:
        rank: of clients; a list is dealt to them. None is that of the model for all.
        by: to whom which: "clients" in equal parts, "memory" or "speed" of the fleet's devices.
        common: settings of every recipe, see `Common`.
    """
    return recipe("fedex_lora", common, modifiers=(ResidualInBase(),), capacity=_ranks(rank, by))


def flora(*, rank: Ranks = None, by: By = "clients", **common: Unpack[Common]) -> Recipe:
    """FLoRA: adapters of all clients are stacked and merged into the base, and begin anew (Wang et al., NeurIPS 2024).

    Args:
        rank: of clients; a list is dealt to them. None is that of the model for all.
        by: to whom which: "clients" in equal parts, "memory" or "speed" of the fleet's devices.
        common: settings of every recipe, see `Common`.
    """
    return recipe("flora", common, modifiers=(StackInBase(),), capacity=_ranks(rank, by))


def flexlora(*, rank: Ranks = RANKS, by: By = "clients", **common: Unpack[Common]) -> Recipe:
    """FlexLoRA: the mean of B A is decomposed, and a client has as much of it as its rank (Bai et al., NeurIPS 2024).

    Args:
        rank: of clients; a list is dealt to them, of which the largest is the model's. None is that for all.
        by: to whom which: "clients" in equal parts, "memory" or "speed" of the fleet's devices.
        common: settings of every recipe, see `Common`.
    """
    return recipe("flexlora", common, modifiers=(DecomposedAverage(),), capacity=_ranks(rank, by))


def hetlora(
    *,
    rank: Ranks = RANKS,
    by: By = "clients",
    prune_to: float = 1.0,
    tail_decay: float = 0.0,
    **common: Unpack[Common],
) -> Recipe:
    """HetLoRA: factors are padded with zeros, and clients count by the length of B A (Cho et al., EMNLP 2024).

    Args:
        rank: of clients; a list is dealt to them, of which the largest is the model's. None is that for all.
        by: to whom which: "clients" in equal parts, "memory" or "speed" of the fleet's devices.
        prune_to: share of its ranks that a client keeps when training has made the last ones shorter; 1 never prunes.
        tail_decay: by what the lengths of these last ranks count in the local loss.
        common: settings of every recipe, see `Common`.
    """
    given = RankPrefix(rank=RANKS if rank is None else rank, by=by, prune_to=prune_to, tail_decay=tail_decay)
    if rank is None and given.prunes:
        raise UserError(
            f"hetlora: prune_to={prune_to:g} and no rank",
            expected="rank, such as 8, or a list of ranks",
            why="a client prunes a share of the ranks that it has",
            fix="say the rank that clients begin with: hetlora(rank=8, …)",
        )
    capacity = WHOLE if rank is None else given
    return recipe("hetlora", common, modifiers=(LengthWeightedAverage(),), capacity=capacity)


def _ranks(rank: Ranks, by: By) -> Capacity:
    part = RankPrefix(rank=RANKS if rank is None else rank, by=by)  # a word that it does not know is refused
    return WHOLE if rank is None else part
