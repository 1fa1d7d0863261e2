"""Power-of-choice: of some candidates, the clients with the largest loss take part.

Cho, Wang, Joshi, "Client Selection in Federated Learning: Convergence Analysis and Power-of-Choice Selection
Strategies", 2020; at AISTATS 2022 as "Towards Understanding Biased Client Selection in Federated Learning".
"""

from __future__ import annotations

from typing import Literal, Unpack

from polyrhythm.methods.papers.common import Common, recipe
from polyrhythm.methods.participation.loss_sampling import LossSampling
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.weighing import Equal


def power_of_choice(
    *, d: int | None = None, variant: Literal["pow", "cpow", "rpow"] = "pow", **common: Unpack[Common]
) -> Recipe:
    """Power-of-choice: of d candidates, those with the largest loss (Cho, Wang, Joshi 2020). Clients weigh equally.

    Args:
        d: candidates for each version; None for twice the cohort.
        variant: how the loss is known: "pow" (measured on all samples), "cpow" (on some), "rpow" (the last one heard).
        common: settings of every recipe, see `Common`.
    """
    policy = LossSampling(d=d, variant=variant)
    return (recipe("power_of_choice", common, sharing=Equal()) | policy).called("power_of_choice")
