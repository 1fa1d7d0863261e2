"""Clustered sampling: one client from each of as many groups as a cohort has places.

Fraboni, Vidal, Kameni, Lorenzi, "Clustered Sampling: Low-Variance and Improved Representativity for Clients Selection
in Federated Learning", ICML 2021.
"""

from __future__ import annotations

from typing import Literal, Unpack

from polyrhythm.methods.papers.common import DEFAULTS, Common, recipe
from polyrhythm.methods.participation.cluster_sampling import ClusterSampling
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.weighing import AsInvited


def clustered_sampling(
    *,
    by: Literal["samples", "updates"] = "samples",
    measure: Literal["angle", "l1", "l2"] = "angle",
    **common: Unpack[Common],
) -> Recipe:
    """Clustered sampling: a draw without bias, of less variance than the draw by samples (Fraboni et al., ICML 2021).

    Args:
        by: what groups clients: how much they hold, or what their last updates were.
        measure: how unlike two updates are: "angle", "l1" or "l2".
        common: settings of every recipe, see `Common`.
    """
    chosen = ClusterSampling(cohort=common.get("cohort", DEFAULTS["cohort"]), by=by, measure=measure)
    return recipe("clustered_sampling", common, participation=chosen, sharing=AsInvited())
