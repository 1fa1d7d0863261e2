"""CCFL: clients train as often as they can afford, and send their last movement again otherwise.

Zhang et al., "CCFL: Computationally Customized Federated Learning" (CC-FedAvg, IEEE Internet of Things Journal),
Algorithms 1 to 3; clients weigh equally.
"""

from __future__ import annotations

from typing import Literal, Unpack

from polyrhythm.methods.papers.common import Common, Preset, recipe
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.weighing import Equal
from polyrhythm.methods.work.budgets import Budgets
from polyrhythm.methods.work.skip_and_estimate import Schedule, SkipAndEstimate


def ccfl(
    *,
    budgets: Budgets | None = None,
    schedule_of_work: Schedule = "ad_hoc",
    storage: Literal["client", "server", "mixed"] = "client",
    preset: Preset = None,
    **common: Unpack[Common],
) -> Recipe:
    """CCFL: a client that cannot afford a visit sends its last movement instead (CC-FedAvg, IEEE IoT-J).

    Args:
        budgets: how often each client can train; None for the fleet's, else the paper's four levels 1, 1/2, 1/4, 1/8.
        schedule_of_work: "ad_hoc", "round_robin" or "exhaust", see `SkipAndEstimate`.
        storage: who keeps the movements.
        preset: "paper": 20 of 100 clients, 200 steps of batch 32, rate 0.01 (Fashion-MNIST).
        common: settings of every recipe, see `Common`.
    """
    paper = Common(cohort=20, steps=200, batch=32, lr=0.01)
    skip = SkipAndEstimate(budgets=budgets, schedule=schedule_of_work, storage=storage)
    made = recipe("ccfl", common, preset=preset, paper=paper, sharing=Equal())
    return (made | skip).called("ccfl")
