"""FedAvg: the mean of what the clients learned, by samples.

McMahan, Moore, Ramage, Hampson, Aguera y Arcas, "Communication-Efficient Learning of Deep Networks from Decentralized
Data", AISTATS 2017, Algorithm 1.
"""

from __future__ import annotations

from typing import Unpack

from polyrhythm.methods.papers.common import Common, Preset, recipe
from polyrhythm.methods.recipe import Recipe


def fedavg(*, preset: Preset = None, **common: Unpack[Common]) -> Recipe:
    """FedAvg: each client trains on its own data, the server averages by samples (McMahan et al., AISTATS 2017).

    Args:
        preset: "paper": 10 of 100 clients, 5 epochs of batch 10 (the MNIST experiments, table 2).
        common: settings of every recipe, see `Common`.
    """
    return recipe("fedavg", common, preset=preset, paper=Common(cohort=10, epochs=5.0, batch=10))
