"""FedProx: FedAvg with a pull towards the received model.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, "Federated Optimization in Heterogeneous Networks", MLSys 2020, eq. (2).
"""

from __future__ import annotations

from typing import Unpack

from polyrhythm.methods.correction import Prox
from polyrhythm.methods.papers.common import Common, Preset, recipe
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.release.base import Deadline
from polyrhythm.methods.work.partial_work import PartialWork


def fedprox(
    *, mu: float = 0.01, partial: float | None = None, preset: Preset = None, **common: Unpack[Common]
) -> Recipe:
    """FedProx: a proximal term keeps local models near the received one (Li et al., MLSys 2020). mu=0 is FedAvg.

    Args:
        mu: strength; the paper's grid is 0.001, 0.01, 0.1, 1.
        partial: a deadline in seconds for every version, for which clients leave out the steps that they cannot make in
            time, where FedAvg would drop them; None to wait for everybody.
        preset: "paper": 10 clients, 20 epochs of batch 10.
        common: settings of every recipe, see `Common`.
    """
    paper = Common(cohort=10, epochs=20.0, batch=10)
    made = recipe("fedprox", common, preset=preset, paper=paper, corrections=(Prox(mu=mu),))
    if partial is None:
        return made
    return (made | PartialWork(seconds=partial) | Deadline(seconds=partial)).called("fedprox")
