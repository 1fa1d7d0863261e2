"""In which direction does a client train, if it follows in part the last step of the server?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, final

import torch
from annotated_types import Gt, Le
from torch import Tensor

from polyrhythm.base.messages import State
from polyrhythm.base.portions import share_held
from polyrhythm.methods.correction import DRIFT, Correction, Push
from polyrhythm.methods.mechanism import Need, Release, Setup
from polyrhythm.methods.privacy.effects import refused
from polyrhythm.methods.secure_sum.effects import ONLY_FACTS


@final
@dataclass(frozen=True, kw_only=True)
class ClientMomentum(Correction):
    """FedCM: every local step follows in part the direction that the server took last.

    Local direction alpha * g + (1 - alpha) * m, with m = -D / travel the mean direction of a step in the last version:
    D = sum_i s_i c_i update_i over its updates, travel = sum_i s_i c_i travel_i, which is K * eta where all take K
    steps at the rate eta. m = 0 in the first version, whose steps are alpha as long.

    alpha = 1 is exactly no correction: nothing is sent, nothing is added. One vector of server state; one extra vector
    down, none up. Where clients hold parts of the model, D and travel are, of each coordinate, over those that hold it.

    Departures: K and the rate are those of each client, by its travel, whatever its size. Gradients are clipped before
    momentum is added, as before every correction. Weight decay is added to the whole direction.

    Args:
        alpha: weight of the client's own gradient, above 0, up to 1.

    Reference: Xu, Wang, Wang, Yao, "FedCM: Federated Learning with Client-level Momentum", 2021. No program
    of the authors was found; form and alpha = 0.1 are those of FL-Simulator's FedCM, which clips the whole direction.
    """

    alpha: Annotated[float, Gt(0), Le(1)] = 0.1

    decides = DRIFT
    of_a_release = True
    by_coordinate = "any"
    privacy = refused(
        "the momentum that it sends is divided by how far clients went, without noise", "take server_momentum"
    )
    in_sums = ONLY_FACTS

    def needs(self) -> frozenset[Need]:
        return frozenset({"travel"})

    def brief(self, setup: Setup, state: State, client: int) -> State:
        return {"momentum": state["momentum"].to(setup.dtype)} if state and self.alpha < 1 else {}

    def push(self, setup: Setup, state: State, brief: State) -> Push | None:
        if self.alpha == 1:
            return None
        return Push(factor=self.alpha, shift=brief["momentum"] * (1 - self.alpha) if brief else None)

    def before_step(self, setup: Setup, state: State, release: Release, mean: Tensor) -> tuple[State, Tensor]:
        counted = zip(release.shares, release.scales, release.reports, strict=True)
        travel = math.fsum(share * scale * report.travel for share, scale, report in counted)
        if release.portions and travel > 0 and self.alpha < 1:
            return {"momentum": self._of_parts(state, release, mean)}, mean
        return ({"momentum": mean / -travel} if travel > 0 and self.alpha < 1 else state), mean

    def _of_parts(self, state: State, release: Release, mean: Tensor) -> Tensor:
        """Of each coordinate over those that hold it; as it was where nobody does, or nobody has moved."""
        shares = release.shares
        ways = [s * scale * r.travel for s, scale, r in zip(shares, release.scales, release.reports, strict=True)]
        held, travel = (share_held(release.portions, some, len(mean)) for some in (shares, ways))
        known = state["momentum"] if state else torch.zeros_like(mean)
        moved = travel > 0
        return torch.where(moved, mean * held / -torch.where(moved, travel, 1.0), known.double()).to(mean.dtype)
