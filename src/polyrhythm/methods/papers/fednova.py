"""FedNova: updates normalised by the local steps behind them.

Wang, Liu, Liang, Joshi, Poor, "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization",
NeurIPS 2020, eq. (8).
"""

from __future__ import annotations

from typing import Unpack

from polyrhythm.methods.papers.common import Common, Preset, recipe
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.weighing import NormalisedAveraging


def fednova(*, preset: Preset = None, **common: Unpack[Common]) -> Recipe:
    """FedNova: updates count by direction, not by number of steps (Wang et al., NeurIPS 2020).

    Args:
        preset: "paper": the authors' code: rate 0.02, momentum 0.9, batch 32, 2 epochs, weight decay 1e-4.
        common: settings of every recipe, see `Common`.
    """
    paper = Common(cohort=16, epochs=2.0, batch=32, lr=0.02, momentum=0.9, weight_decay=1e-4)
    return recipe("fednova", common, preset=preset, paper=paper, scalings=(NormalisedAveraging(),))
