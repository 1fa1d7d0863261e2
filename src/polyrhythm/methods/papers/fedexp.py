"""FedExP: the server goes the further along the mean, the more the updates differ.

Jhunjhunwala, Wang, Joshi, "FedExP: Speeding Up Federated Averaging via Extrapolation", ICLR 2023, Algorithm 1.
"""

from __future__ import annotations

from typing import Unpack

from polyrhythm.methods.local.schedules import Exponential
from polyrhythm.methods.papers.common import Common, Preset, recipe
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.server_step import Extrapolation
from polyrhythm.methods.weighing import Equal

_PAPER = Common(steps=20, batch=50, lr=0.01, weight_decay=1e-4, clip=10.0, schedule=Exponential(gamma=0.998))


def fedexp(*, epsilon: float = 1e-3, preset: Preset = None, **common: Unpack[Common]) -> Recipe:
    """FedExP: FedAvg with a server rate that follows from how much the updates differ (Jhunjhunwala et al., ICLR 2023).

    Args:
        epsilon: keeps the rate small where the mean nearly vanishes.
        preset: "paper": 20 steps of batch 50, rate 0.01 (0.1 for EMNIST) times 0.998 a round, weight decay 1e-4, clip
            10.
        common: settings of every recipe, see `Common`.
    """
    step = Extrapolation(epsilon=epsilon)
    return recipe("fedexp", common, preset=preset, paper=_PAPER, sharing=Equal(), server_step=step)
