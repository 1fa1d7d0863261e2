"""FedLALR: local AMSGrad whose moments clients share.

Sun, Shen, Chen, Sun, Li, Sun, Tao, "FedLALR: Client-Specific Adaptive Learning Rates Achieve Linear Speedup for Non-IID
Data", 2023.
"""

from __future__ import annotations

from typing import Unpack, cast

from polyrhythm.base.errors import UserError
from polyrhythm.methods.local.optimisers import LocalAMSGrad
from polyrhythm.methods.papers.common import Common, recipe
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.shared_moments import SharedMoments
from polyrhythm.methods.weighing import Equal

_MOMENTS = ("optimiser", "momentum", "nesterov", "keep_state")


def fedlalr(*, beta1: float = 0.9, beta2: float = 0.99, epsilon: float = 1e-8, **common: Unpack[Common]) -> Recipe:
    """FedLALR: rates that adapt at each client, to gradients of all (Sun et al., 2023).

    Args:
        beta1: decay of the first moment.
        beta2: decay of the second moment; 0.995 to 0.998 in the paper.
        epsilon: root of the least that divides.
        common: settings of every recipe, see `Common`; the local optimiser is AMSGrad, with lr = 0.01.
    """
    for name in _MOMENTS:
        if common.get(name):
            raise UserError(
                f"fedlalr: {name}",
                expected="lr, weight_decay and clip",
                why="its local optimiser is AMSGrad, whose moments clients share",
                fix=f"leave {name} out",
            )
    own = {name: value for name, value in common.items() if name in ("lr", "weight_decay", "clip")}
    others = cast(Common, {name: value for name, value in common.items() if name not in (*own, *_MOMENTS)})
    whole = recipe("fedlalr", others, sharing=Equal(), corrections=(SharedMoments(),))
    optimiser = LocalAMSGrad(beta1=beta1, beta2=beta2, epsilon=epsilon, **own)  # type: ignore[arg-type]
    return (whole | optimiser).called("fedlalr")
