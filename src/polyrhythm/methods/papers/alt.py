"""ALT: clients stop their local epochs when they have drifted from the received model.

"Adaptive Local Training in Federated Learning", 2025.
"""

from __future__ import annotations

from typing import Literal, Unpack

from polyrhythm.methods.papers.common import Common, Preset, recipe
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.work.stop_on_drift import StopOnDrift


def alt(
    *,
    a: float = 0.1,
    b: float = 0.8,
    representation: str = "projection",
    batch_rule: Literal["mean", "min", "max", "min_k", "max_k", "sample"] = "mean",
    preset: Preset = None,
    **common: Unpack[Common],
) -> Recipe:
    """ALT: local epochs end once the local representation has drifted from the received one (ALT, 2025).

    Args:
        a: similarity threshold at the start.
        b: what the threshold gains over the run.
        representation: what is compared, see `StopOnDrift`.
        batch_rule: how a batch's similarities become one.
        preset: "paper": 10 of 100 clients, up to 10 epochs of batch 64, rate 0.01, momentum 0.9, weight decay 1e-5.
        common: settings of every recipe, see `Common`.
    """
    paper = Common(cohort=10, epochs=10.0, batch=64, lr=0.01, momentum=0.9, weight_decay=1e-5, drop_last=True)
    stop = StopOnDrift(a=a, b=b, representation=representation, batch=batch_rule)
    return (recipe("alt", common, preset=preset, paper=paper) | stop).called("alt")
