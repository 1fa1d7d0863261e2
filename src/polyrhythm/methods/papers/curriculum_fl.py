"""Curricula in federated learning: easy samples first, and easy clients first.

Vahidian, Kadaveru, Baek, Wang, Kungurtsev, Chen, Shah, Lin, "When Do Curricula Work in Federated Learning?", ICCV 2023.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, Unpack

from polyrhythm.methods.local.schedules import Power
from polyrhythm.methods.order.base import Curriculum, Score
from polyrhythm.methods.order.pacing import Family, Pacing
from polyrhythm.methods.papers.common import Common, Preset, recipe
from polyrhythm.methods.participation.base import Sweep
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.work.base import Epochs


def curriculum_fl(
    *,
    score: Score = "global",
    order: Literal["curriculum", "anti", "random", "vanilla"] = "curriculum",
    pacing: Family = "linear",
    a: float = 0.8,
    b: float = 0.2,
    step_rule: Literal["passes", "code"] = "passes",
    preset: Preset = None,
    **common: Unpack[Common],
) -> Recipe:
    """Curriculum FL: every client sees its easy samples first (Vahidian et al., ICCV 2023).

    Clients are swept without replacement, as the paper's program does. order="vanilla" is FedAvg with a sweep.

    Args:
        score: what is easy, see `Curriculum`.
        order: "curriculum", "anti", "random" or "vanilla".
        pacing: shape of the pacing function.
        a: share of a visit's steps after which all samples are in use.
        b: share of the samples in use at first.
        step_rule: steps per epoch, see `Epochs`.
        preset: "paper": 10 of 100 clients, 10 epochs of batch 10, momentum 0.9, weight decay 5e-4, rate 0.001 falling
            with the steps of a visit (LeNet-5).
        common: settings of every recipe, see `Common`.
    """
    paper = Common(
        cohort=10, epochs=10.0, batch=10, lr=0.001, momentum=0.9, weight_decay=5e-4, schedule=Power(alpha=0.001)
    )
    samples = Curriculum(score=score, order=order, pacing=Pacing(family=pacing, a=a, b=b))
    made = recipe("curriculum_fl", common, preset=preset, paper=paper, order=samples) | Sweep()
    if isinstance(made.work, Epochs):
        made = replace(made, work=replace(made.work, rule=step_rule))
    return made.called("curriculum_fl")
