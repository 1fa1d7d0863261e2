"""Optimal client sampling: of a cohort that trains, those with long updates send them.

Chen, Horvath, Richtarik, "Optimal Client Sampling for Federated Learning", TMLR 2022.
"""

from __future__ import annotations

from typing import Unpack

from polyrhythm.methods.papers.common import DEFAULTS, Common, Preset, recipe
from polyrhythm.methods.participation.norm_sampling import NormSampling
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.weighing import AsInvited


def optimal_sampling(
    *, uploads: int = 3, rescalings: int | None = None, preset: Preset = None, **common: Unpack[Common]
) -> Recipe:
    """Optimal client sampling: few updates that say most of what all would (Chen et al., TMLR 2022).

    Args:
        uploads: updates per version in the mean, the paper's m.
        rescalings: None for the exact probabilities; 4 for the paper's approximation, which needs only sums.
        preset: "paper": 32 clients train, 3 of them send.
        common: settings of every recipe, see `Common`.
    """
    cohort = common.get("cohort", 32 if preset else DEFAULTS["cohort"])
    chosen = NormSampling(cohort=cohort, uploads=uploads, rescalings=rescalings)
    paper = Common(cohort=32)
    return recipe("optimal_sampling", common, preset=preset, paper=paper, participation=chosen, sharing=AsInvited())
