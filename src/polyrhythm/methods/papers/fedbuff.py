"""FedBuff: buffered asynchrony, where the server steps on the first updates that arrive.

Nguyen, Malik, Zhan, Yousefpour, Rabbat, Malek, Huba, "Federated Learning with Buffered Asynchronous Aggregation",
AISTATS 2022, Algorithm 1; the scale by staleness is that of its experiments.
"""

from __future__ import annotations

from typing import Unpack

from polyrhythm.methods.papers.common import Common, at_work, recipe, rolling
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.release.base import Buffer
from polyrhythm.methods.server_step import Sgd
from polyrhythm.methods.weighing import Equal, Staleness


def fedbuff(
    *, concurrency: int | None = None, buffer: int = 5, server_lr: float = 1.0, **common: Unpack[Common]
) -> Recipe:
    """FedBuff: a buffer of updates, whoever is still at work (Nguyen et al., AISTATS 2022).

    Args:
        concurrency: clients at work at a time; the cohort under another name (10).
        buffer: updates per version; the paper has 10 of about a thousand at work.
        server_lr: server learning rate.
        common: settings of every recipe, see `Common`.
    """
    made = recipe(
        "fedbuff",
        at_work("fedbuff", concurrency, common),
        sharing=Equal(),
        scalings=(Staleness(),),
        release=Buffer(size=buffer),
        server_step=Sgd(lr=server_lr),
    )
    return rolling(made)
