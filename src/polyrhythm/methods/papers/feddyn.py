"""FedDyn: dynamic regularisation.

Acar, Zhao, Matas, Mattina, Whatmough, Saligrama, "Federated Learning Based on Dynamic Regularization", ICLR 2021,
Algorithm 1; clients weigh equally.
"""

from __future__ import annotations

from typing import Unpack

from polyrhythm.methods.correction import DynamicRegularisation
from polyrhythm.methods.papers.common import Common, Preset, recipe
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.weighing import Equal


def feddyn(*, alpha: float = 0.1, preset: Preset = None, **common: Unpack[Common]) -> Recipe:
    """FedDyn: a regulariser per client aligns local optima with the global one (Acar et al., ICLR 2021).

    Args:
        alpha: strength; the paper's grid is 0.001 to 0.1. h / alpha does not vanish with alpha, so no alpha makes it
            FedAvg.
        preset: "paper": 10 of 100 clients, 5 epochs of batch 50, rate 0.1, weight decay 1e-3 (CIFAR-10).
        common: settings of every recipe, see `Common`.
    """
    return recipe(
        "feddyn",
        common,
        preset=preset,
        paper=Common(cohort=10, epochs=5.0, batch=50, lr=0.1, weight_decay=1e-3),
        corrections=(DynamicRegularisation(alpha=alpha),),
        sharing=Equal(),
    )
