"""SCAFFOLD: control variates against client drift.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh, "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", ICML
2020, Algorithm 1 with option II; clients weigh equally.
"""

from __future__ import annotations

from typing import Unpack

from polyrhythm.methods.correction import ControlVariates
from polyrhythm.methods.papers.common import Common, Preset, recipe
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.server_step import Sgd
from polyrhythm.methods.weighing import Equal


def scaffold(*, server_lr: float = 1.0, preset: Preset = None, **common: Unpack[Common]) -> Recipe:
    """SCAFFOLD: control variates cancel each client's drift (Karimireddy et al., ICML 2020).

    Args:
        server_lr: the paper's global step size.
        preset: "paper": 20 of 100 clients, 5 epochs. The paper's batch is a fifth of a client's data; here it is 20,
            since a batch is one number for all clients.
        common: settings of every recipe, see `Common`.
    """
    return recipe(
        "scaffold",
        common,
        preset=preset,
        paper=Common(cohort=20, epochs=5.0, batch=20),
        corrections=(ControlVariates(),),
        sharing=Equal(),
        server_step=Sgd(lr=server_lr),
    )
