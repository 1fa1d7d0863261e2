"""F3AST: who is seldom there counts as much as it holds, at rates of invitation that are learned.

Ribero, Vikalo, de Veciana, "Federated Learning Under Intermittent Client Availability and Time-Varying Communication
Constraints", IEEE Journal of Selected Topics in Signal Processing, 2022.
"""

from __future__ import annotations

from typing import Unpack

from polyrhythm.methods.papers.common import DEFAULTS, Common, Preset, recipe
from polyrhythm.methods.participation.rate_sampling import RateSampling
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.server_step import Sgd
from polyrhythm.methods.weighing import AsInvited


def f3ast(*, beta: float = 0.01, server_lr: float = 1.0, preset: Preset = None, **common: Unpack[Common]) -> Recipe:
    """F3AST: no bias towards clients that are often there, and as little variance as can be (Ribero et al., 2022).

    Args:
        beta: how fast the rates of invitation are learned.
        server_lr: server learning rate.
        preset: "paper": 10 clients, 1 epoch of batch 20, rate 0.1, as in the authors' example.
        common: settings of every recipe, see `Common`.
    """
    paper = Common(cohort=10, epochs=1.0, batch=20, lr=0.1)
    cohort = common.get("cohort", (paper if preset else DEFAULTS)["cohort"])
    return recipe(
        "f3ast",
        common,
        preset=preset,
        paper=paper,
        participation=RateSampling(cohort=cohort, beta=beta),
        sharing=AsInvited(),
        server_step=Sgd(lr=server_lr),
    )
