"""FADAS: AMSGrad at the server on a buffer of late updates, slower where they are very late.

Wang, Wang, Lu, Chen, "FADAS: Towards Federated Adaptive Asynchronous Optimization", ICML 2024.
"""

from __future__ import annotations

from typing import Unpack

from polyrhythm.methods.papers.common import Common, Preset, at_work, recipe, rolling
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.release.base import Buffer
from polyrhythm.methods.release.delay_adaptive_step import DelayAdaptiveStep
from polyrhythm.methods.server_step import AMSGrad
from polyrhythm.methods.weighing import Equal

_PAPER = Common(cohort=25, epochs=2.0, batch=50, lr=0.1, weight_decay=1e-4)


def fadas(
    *,
    concurrency: int | None = None,
    buffer: int = 5,
    delay: int = 1,
    server_lr: float = 0.01,
    beta1: float = 0.9,
    beta2: float = 0.99,
    epsilon: float = 1e-8,
    preset: Preset = None,
    **common: Unpack[Common],
) -> Recipe:
    """FADAS: adaptive steps on buffers, with a rate that falls with the delay (Wang et al., ICML 2024).

    Args:
        concurrency: clients at work at a time; the cohort under another name (10).
        buffer: updates per version, the paper's M.
        delay: versions up to which the rate is whole, the paper's tau_c.
        server_lr: server learning rate; the authors' code has 0.001 with this rule, over 500 versions.
        beta1: decay of the first moment.
        beta2: decay of the second moment.
        epsilon: added to the root, as in the authors' code, which also corrects the bias of both moments.
        preset: "paper": half of 50 clients at work, 2 epochs of batch 50, rate 0.1, weight decay 1e-4.
        common: settings of every recipe, see `Common`.
    """
    return rolling(
        recipe(
            "fadas",
            at_work("fadas", concurrency, common),
            preset=preset,
            paper=_PAPER,
            sharing=Equal(),
            release=Buffer(size=buffer),
            modifiers=(DelayAdaptiveStep(delay=delay),),
            server_step=AMSGrad(
                lr=server_lr, beta1=beta1, beta2=beta2, epsilon=epsilon, epsilon_place="outside", bias_correction=True
            ),
        )
    )
