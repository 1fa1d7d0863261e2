"""FedCM: local steps that follow in part the last step of the server.

Xu, Wang, Wang, Yao, "FedCM: Federated Learning with Client-level Momentum", 2021.
"""

from __future__ import annotations

from typing import Unpack

from polyrhythm.methods.client_momentum import ClientMomentum
from polyrhythm.methods.local.schedules import Exponential
from polyrhythm.methods.papers.common import Common, Preset, recipe
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.server_step import Sgd
from polyrhythm.methods.weighing import Equal

_PAPER = Common(lr=0.1, weight_decay=1e-3, schedule=Exponential(gamma=0.998))


def fedcm(*, alpha: float = 0.1, server_lr: float = 1.0, preset: Preset = None, **common: Unpack[Common]) -> Recipe:
    """FedCM: momentum of the whole federation in every client's steps (Xu et al., 2021).

    Args:
        alpha: weight of a client's own gradient; 1 is FedAvg.
        server_lr: server learning rate.
        preset: "paper": rate 0.1 * 0.998 ** t and weight decay 1e-3, as FL-Simulator runs it; no program of the
            authors was found.
        common: settings of every recipe, see `Common`.
    """
    return recipe(
        "fedcm",
        common,
        preset=preset,
        paper=_PAPER,
        corrections=(ClientMomentum(alpha=alpha),),
        sharing=Equal(),
        server_step=Sgd(lr=server_lr),
    )
