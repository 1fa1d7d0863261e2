"""From where is an update measured: from the model that the client was sent, or from the one the server has now?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from polyrhythm.base.messages import State
from polyrhythm.base.portions import over_held, share_held
from polyrhythm.base.sums import weighted_sum
from polyrhythm.methods.mechanism import Need, Release, Setup
from polyrhythm.methods.privacy.effects import timed
from polyrhythm.methods.release.base import ReleaseModifier
from polyrhythm.methods.secure_sum.effects import needs_single


@final
@dataclass(frozen=True, kw_only=True)
class FromCurrent(ReleaseModifier):
    """Measures every update from the server's current model, so that the server moves towards the client's.

    D + sum_i share_i * scale_i * (w0_i - x), with w0_i what the client was sent: for one update, x + lr * D is then
    (1 - lr * scale) x + lr * scale * w_K. A stale client draws the server back to where it started from; `staleness`
    says how much.

    With scaled = false it is D + sum_i share_i * (w0_i - x): the server moves to the mean of the models w0_i that its
    clients had, and from there along their updates, however much these are scaled.

    Neutral situation: nothing stale, where it is exactly nothing. No state of its own, no extra bytes; the server keeps
    the models that somebody under way was sent: one vector per version in use. Where clients hold parts of the model,
    both sums are, of each coordinate, over those that hold it, and divided by their shares.

    Args:
        scaled: whether the way back to what a client was sent counts by its scale, too.

    Reference: Xie, Koyejo, Gupta, "Asynchronous Federated Optimization", 2019, Algorithm 1; scaled = false: Xiang,
    Ioannidis, Yeh, Joe-Wong, Su, "Efficient Federated Learning against Heterogeneous and Non-stationary Client
    Unavailability", NeurIPS 2024.
    """

    scaled: bool = True

    decides = "from where an update is measured"
    of_a_release = True
    past_the_mean = True
    by_coordinate = "any"
    privacy = timed("adds released models, by as many as are in the version, which tells of coins")
    in_sums = needs_single("it adds up models that single clients were at")

    def needs(self) -> frozenset[Need]:
        return frozenset({"base"})

    def before_step(self, setup: Setup, state: State, release: Release, mean: Tensor) -> tuple[State, Tensor]:
        counted = zip(release.reports, release.bases, release.shares, release.scales, strict=True)
        weighed = ((r, base, share * scale if self.scaled else share) for r, base, share, scale in counted)
        stale = [(base, weight) for r, base, weight in weighed if r.version < release.version]
        if not stale:
            return state, mean
        current = release.weights.to(mean.dtype)
        if release.portions:
            return state, torch.add(mean, self._back(release, current))
        back = weighted_sum((base.to(mean.dtype) - current for base, _ in stale), [weight for _, weight in stale])
        return state, torch.add(mean, back)

    def _back(self, release: Release, current: Tensor) -> Tensor:
        """The way back of each coordinate, over those that hold it."""
        ways = [
            way if portion is None else torch.where(portion.mask, way, 0.0)
            for base, portion in zip(release.bases, release.portions, strict=True)
            for way in [base.to(current.dtype) - current]
        ]
        scales = release.scales if self.scaled else (1.0,) * len(ways)
        weights = [share * scale for share, scale in zip(release.shares, scales, strict=True)]
        return over_held(weighted_sum(ways, weights), share_held(release.portions, release.shares, len(current)))
