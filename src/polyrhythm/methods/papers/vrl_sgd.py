"""VRL-SGD: variance-reduced local SGD.

Liang, Shen, Liu, Pan, Chen, Cheng, "Variance Reduced Local SGD with Lower Communication Complexity", 2019, Algorithm 1;
clients weigh equally.
"""

from __future__ import annotations

from typing import Unpack

from polyrhythm.methods.correction import VarianceReduction
from polyrhythm.methods.papers.common import Common, Preset, recipe
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.weighing import Equal


def vrl_sgd(*, preset: Preset = None, **common: Unpack[Common]) -> Recipe:
    """VRL-SGD: each client's accumulated drift is taken out of its gradients (Liang et al., 2019).

    Args:
        preset: "paper": 8 workers, 20 steps of batch 32, rate 0.005 (LeNet on MNIST, non-identical).
        common: settings of every recipe, see `Common`.
    """
    paper = Common(cohort=8, steps=20, batch=32, lr=0.005)
    return recipe("vrl_sgd", common, preset=preset, paper=paper, corrections=(VarianceReduction(),), sharing=Equal())
