"""MIFA: clients that are not there count by the last that was heard of them.

Gu, Huang, Zhang, Huang, "Fast Federated Learning in the Presence of Arbitrary Device Unavailability", NeurIPS 2021,
Algorithm 1.
"""

from __future__ import annotations

from typing import Literal, Unpack

from polyrhythm.methods.local.schedules import Power
from polyrhythm.methods.papers.common import Common, Preset, recipe
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.release.last_updates import LastUpdates
from polyrhythm.methods.weighing import Equal

_PAPER = Common(steps=2, batch=100, weight_decay=0.001, schedule=Power(unit="version", alpha=1.0, power=1.0))


def mifa(*, unheard: Literal["zero", "wait"] = "zero", preset: Preset = None, **common: Unpack[Common]) -> Recipe:
    """MIFA: the server remembers every client's last update, and steps on the mean over all (Gu et al., NeurIPS 2021).

    The paper invites whoever is there: a cohort as large as the federation. With a smaller one, whoever was not drawn
    counts as not there.

    Args:
        unheard: until a client is heard, it has said nothing ("zero"), or the server takes no step ("wait").
        preset: "paper": 2 steps of batch 100, weight decay 0.001, and the rate lr / (1 + t); lr itself is by data set,
            0.01 for MNIST with a linear model, 0.08 for CIFAR-10 with LeNet.
        common: settings of every recipe, see `Common`.
    """
    return recipe(
        "mifa", common, preset=preset, paper=_PAPER, sharing=Equal(), modifiers=(LastUpdates(unheard=unheard),)
    )
