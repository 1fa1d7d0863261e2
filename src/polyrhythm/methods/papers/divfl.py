"""DivFL: clients whose updates stand for those of all.

Balakrishnan, Li, Zhou, Himayat, Smith, Bilmes, "Diverse Client Selection for Federated Learning via Submodular
Maximization", ICLR 2022.
"""

from __future__ import annotations

from typing import Unpack

from polyrhythm.methods.papers.common import DEFAULTS, Common, Preset, recipe
from polyrhythm.methods.participation.diverse_sampling import DiverseSampling
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.weighing import AsInvited


def divfl(*, preset: Preset = None, **common: Unpack[Common]) -> Recipe:
    """DivFL: a cohort that stands for all clients (Balakrishnan et al., ICLR 2022).

    The first version hears everybody, to learn who is like whom.

    Args:
        preset: "paper": 1 epoch of batch 10, as in the authors' program.
        common: settings of every recipe, see `Common`.
    """
    chosen = DiverseSampling(cohort=common.get("cohort", DEFAULTS["cohort"]))
    paper = Common(epochs=1.0, batch=10)
    return recipe("divfl", common, preset=preset, paper=paper, participation=chosen, sharing=AsInvited())
