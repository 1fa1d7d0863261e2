"""Oort: clients from which much is to be learnt, and soon.

Lai, Zhu, Madhyastha, Chowdhury, "Oort: Efficient Federated Learning via Guided Participant Selection", OSDI 2021.
"""

from __future__ import annotations

from typing import Unpack

from polyrhythm.methods.papers.common import Common, recipe
from polyrhythm.methods.participation.utility_sampling import UtilitySampling
from polyrhythm.methods.recipe import Recipe


def oort(*, alpha: float = 2.0, preferred: float = 0.3, **common: Unpack[Common]) -> Recipe:
    """Oort: invites by what a client's data would teach, less for slow clients (Lai et al., OSDI 2021).

    The paper also invites 1.3 times as many as it needs: pipe `over_select` onto it. Its other settings are those of
    the part `utility_sampling`.

    Args:
        alpha: how much slow clients lose; 0 for not at all.
        preferred: quantile of the durations from which a client is slow, in the beginning.
        common: settings of every recipe, see `Common`.
    """
    policy = UtilitySampling(alpha=alpha, preferred=preferred)
    return (recipe("oort", common) | policy).called("oort")
