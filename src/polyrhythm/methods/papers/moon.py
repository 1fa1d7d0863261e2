"""MOON: model-contrastive federated learning.

Li, He, Song, "Model-Contrastive Federated Learning", CVPR 2021, Algorithm 1.
"""

from __future__ import annotations

from typing import Unpack

from polyrhythm.methods.correction import ModelContrast
from polyrhythm.methods.papers.common import Common, Preset, recipe
from polyrhythm.methods.recipe import Recipe


def moon(
    *,
    mu: float = 1.0,
    temperature: float = 0.5,
    layer: str = "projection",
    preset: Preset = None,
    **common: Unpack[Common],
) -> Recipe:
    """MOON: representations stay near the received model's and leave the last local one's (Li et al., CVPR 2021).

    mu=0 is FedAvg. Best on a model with a projection head: `moon-cnn`, or `with_projection(...)` of any other.

    Args:
        mu: strength of the contrastive term.
        temperature: of the contrast.
        layer: which representation, see `ModelContrast`.
        preset: "paper": 10 parties, 10 epochs of batch 64, rate 0.01, momentum 0.9, weight decay 1e-5.
        common: settings of every recipe, see `Common`.
    """
    return recipe(
        "moon",
        common,
        preset=preset,
        paper=Common(cohort=10, epochs=10.0, batch=64, lr=0.01, momentum=0.9, weight_decay=1e-5),
        corrections=(ModelContrast(mu=mu, temperature=temperature, layer=layer),),
    )
