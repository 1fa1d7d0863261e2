"""FedAU: updates weighed by how rarely a client was there.

Wang, Ji, "A Lightweight Method for Tackling Unknown Participation Statistics in Federated Averaging", ICLR 2024,
Algorithms 1 and 2.
"""

from __future__ import annotations

from typing import Unpack

from polyrhythm.methods.papers.common import Common, Preset, recipe
from polyrhythm.methods.participation_intervals import ParticipationIntervals
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.server_step import Sgd
from polyrhythm.methods.weighing import Equal

_PAPER = Common(steps=5, batch=16)


def fedau(
    *, cutoff: int | None = 50, server_lr: float = 1.0, preset: Preset = None, **common: Unpack[Common]
) -> Recipe:
    """FedAU: undoes the bias towards clients that are often there, without knowing how often (Wang, Ji, ICLR 2024).

    The paper has whoever is there take part: a cohort as large as the federation.

    Args:
        cutoff: the longest interval between two updates of a client that counts as one; None for any.
        server_lr: server learning rate.
        preset: "paper": 5 steps of batch 16.
        common: settings of every recipe, see `Common`.
    """
    scalings = (ParticipationIntervals(cutoff=cutoff),)
    step = Sgd(lr=server_lr)
    return recipe("fedau", common, preset=preset, paper=_PAPER, sharing=Equal(), scalings=scalings, server_step=step)
