"""TiFL: clients of like speed train together.

Chai, Ali, Zawad, Truex, Anwar, Baracaldo, Zhou, Ludwig, Yan, Cheng, "TiFL: A Tier-based Federated Learning System",
HPDC 2020.
"""

from __future__ import annotations

from typing import Unpack

from polyrhythm.methods.papers.common import Common, recipe
from polyrhythm.methods.participation.tier_sampling import TierSampling
from polyrhythm.methods.recipe import Recipe


def tifl(
    *,
    tiers: int = 5,
    probabilities: tuple[float, ...] | None = None,
    interval: int | None = None,
    credits: int | None = None,
    **common: Unpack[Common],
) -> Recipe:
    """TiFL: every round invites from one tier of clients that are about equally fast (Chai et al., HPDC 2020).

    Args:
        tiers: how many.
        probabilities: of the tiers, the fastest first; None for equal ones. The paper's fixed policies for five tiers:
            fast (1, 0, 0, 0, 0), random (0.7, 0.1, 0.1, 0.05, 0.05), uniform, slow (0, 0, 0, 0, 1).
        interval: versions between two judgements, for probabilities that adapt to the tiers' accuracies.
        credits: draws of each tier; None for any number.
        common: settings of every recipe, see `Common`.
    """
    policy = TierSampling(
        tiers=tiers,
        probabilities=probabilities,
        interval=interval,
        credits=credits,
    )
    return (recipe("tifl", common) | policy).called("tifl")
