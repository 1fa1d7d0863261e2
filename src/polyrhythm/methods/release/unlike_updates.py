"""How much does a late update count that says something else than those in time?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor

from polyrhythm.base.messages import State
from polyrhythm.base.settings import Share
from polyrhythm.base.sums import weighted_sum
from polyrhythm.methods.mechanism import Release, Setup
from polyrhythm.methods.privacy.effects import refused
from polyrhythm.methods.release.base import ReleaseModifier
from polyrhythm.methods.secure_sum.effects import needs_single
from polyrhythm.methods.weighing import shares


@final
@dataclass(frozen=True, kw_only=True)
class UnlikeUpdates(ReleaseModifier):
    """REFL's weights: a late update counts less, but more if it moves the mean of those in time far.

    weight_i = share_i * w_i, divided by their sum: w = 1 of an update that is in time, and of one that is tau versions
    late w = (1 - beta) / (tau + 1) + beta * (1 - e^(-L_i / L_max) / 10), L_i = |F - (n F + u_i) / (n + 1)|^2 / |F|^2,
    with F the mean of the n updates in time, by their shares, and L_max the largest of the release. Updates are as they
    are scaled. Where none is in time, or F is 0, w = 1 / (tau + 1).

    Neutral situation: nothing late: exactly nothing. No state; one pass over the late updates.

    Args:
        beta: how much the difference counts beside the delay, 0 to 1.
        boost: "code": as above, as in the authors' program; "paper": without the / 10, as the paper has it, so that an
            update like those in time counts beta less.

    Reference: Abdelmoniem, Sahu, Canini, Fahmy, "REFL: Resource-Efficient Federated Learning", EuroSys 2023,
    staleness-aware aggregation, and the authors' program; the paper's form was not read in the paper itself.
    """

    beta: Share = 0.35
    boost: Literal["code", "paper"] = "code"

    decides = "what a late update counts by what it says"
    of_a_release = True
    past_the_mean = True
    privacy = refused("how much an update counts follows from the others, without noise")
    in_sums = needs_single("it compares each update with the others")

    def before_step(self, setup: Setup, state: State, release: Release, mean: Tensor) -> tuple[State, Tensor]:
        late = [release.version - r.version for r in release.reports]
        if not any(late):
            return state, mean
        updates = [u.double() * c for u, c in zip(release.updates(), release.scales, strict=True)]
        counted = shares([s * w for s, w in zip(release.shares, self.weights(late, updates, release), strict=True)])
        return state, mean if counted is None else weighted_sum(updates, counted).to(mean.dtype)

    def weights(self, late: list[int], updates: list[Tensor], release: Release) -> list[float]:
        """What each counts beside its share."""
        fresh = [(u, s) for u, s, tau in zip(updates, release.shares, late, strict=True) if not tau]
        by = shares([s for _, s in fresh])
        middle = torch.zeros_like(updates[0]) if by is None else weighted_sum([u for u, _ in fresh], by).double()
        length, n = float(middle.square().sum()), len(fresh)
        if not length:
            return [1 / (tau + 1) for tau in late]
        apart = [float((middle - u).square().sum()) / (n + 1) ** 2 / length for u in updates]
        apart = [a if tau else 0.0 for a, tau in zip(apart, late, strict=True)]
        most, damped = max(apart) or 1.0, 10 if self.boost == "code" else 1
        return [
            (1 - self.beta) / (tau + 1) + self.beta * (1 - math.exp(-a / most) / damped) if tau else 1.0
            for tau, a in zip(late, apart, strict=True)
        ]
