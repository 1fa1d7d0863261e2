"""FedAWE: who was away goes on from the model it had, and its update counts for all the versions that it missed.

Xiang, Ioannidis, Yeh, Joe-Wong, Su, "Efficient Federated Learning against Heterogeneous and Non-stationary Client
Unavailability", NeurIPS 2024.
"""

from __future__ import annotations

from typing import Unpack

from polyrhythm.methods.local.schedules import Power
from polyrhythm.methods.papers.common import Common, Preset, recipe
from polyrhythm.methods.participation.last_received import LastReceived
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.release.from_current import FromCurrent
from polyrhythm.methods.weighing import Equal, Staleness


def fedawe(*, preset: Preset = None, **common: Unpack[Common]) -> Recipe:
    """FedAWE: no bias towards clients that are often there, whenever they are there (Xiang et al., NeurIPS 2024).

    The new model is the mean over those heard of x_i + gap_i * update_i: x_i the model that client i had last, gap_i
    the versions since then. The paper has whoever is there take part: a cohort as large as the federation. Its server
    rate multiplies the updates alone; here it is 1.

    Args:
        preset: "paper": 10 steps of batch 128, rate 0.05 / sqrt(1 + version / 10), as in the authors' program.
        common: settings of every recipe, see `Common`.
    """
    return recipe(
        "fedawe",
        common,
        preset=preset,
        paper=Common(steps=10, batch=128, lr=0.05, schedule=Power(alpha=0.1, power=0.5, unit="version")),
        sharing=Equal(),
        scalings=(Staleness(rule="catch_up"),),
        modifiers=(FromCurrent(scaled=False), LastReceived()),
    )
