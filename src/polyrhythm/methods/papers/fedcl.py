"""FedCL: more clients while the federation is in a critical learning period.

"FedCL: Critical Learning Periods-aware Adaptive Client Selection in Federated Learning"; published as Yan, Wang, Yuan,
Li, "CriticalFL: A Critical Learning Periods Augmented Client Selection Framework for Efficient Federated Learning", KDD
2023.
"""

from __future__ import annotations

from typing import Unpack

from polyrhythm.methods.local.schedules import Exponential
from polyrhythm.methods.papers.common import Common, Preset, recipe
from polyrhythm.methods.participation.critical_periods import CriticalPeriods, GradientNorm
from polyrhythm.methods.recipe import Recipe


def fedcl(*, delta: float = 0.01, kdd23: bool = False, preset: Preset = None, **common: Unpack[Common]) -> Recipe:
    """FedCL: the cohort doubles in critical learning periods and halves outside (Yan et al., KDD 2023).

    Args:
        delta: growth of the federated gradient norm that counts as critical.
        kdd23: the rule and settings of the authors' program instead of the paper's: the windowed test at every second
            version with a latch, at most 0.75 N clients and never fewer than m, an unweighted norm summed over batches,
            rate 0.01 * 0.9^t, momentum 0.9, weight decay 1e-5, clip 10, batch 16, 3 epochs. Its upload of the largest
            20 % of entries is not copied.
        preset: "paper": 16 of 128 clients, 2 epochs, weight decay 1e-5, rate 0.01 and constant: the paper's falls by a
            factor a round that it does not give (`schedule=exponential(gamma=0.9)` is the authors' program's).
        common: settings of every recipe, see `Common`.
    """
    paper = Common(cohort=16, epochs=2.0, lr=0.01, weight_decay=1e-5)
    policy = CriticalPeriods(delta=delta)
    if kdd23:
        policy = CriticalPeriods(
            delta=delta, detector=GradientNorm(reduce="sum", weigh="equal"), rule="windowed", cap=0.75, floor=1.0
        )
        paper = Common(cohort=16, epochs=3.0, batch=16, lr=0.01, momentum=0.9, weight_decay=1e-5, clip=10.0)
        paper["schedule"] = Exponential(gamma=0.9)
        preset = preset or "paper"
    return (recipe("fedcl", common, preset=preset, paper=paper) | policy).called("fedcl")
