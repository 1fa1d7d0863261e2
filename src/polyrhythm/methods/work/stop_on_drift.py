"""ALT: a client stops its local epochs when its representation has drifted from the received model's."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, final

import torch
from torch import Tensor

from polyrhythm.base.messages import State
from polyrhythm.base.settings import Count
from polyrhythm.methods.mechanism import Need, Setup, Visit
from polyrhythm.methods.privacy.effects import INSIDE
from polyrhythm.methods.work.base import Plan, WorkModifier


@final
@dataclass(frozen=True, kw_only=True)
class Drift:
    """The rule of one visit: stop once a batch's similarity falls below the threshold."""

    layer: str
    threshold: float
    batch: str
    k: int

    def similarity(self, current: Tensor, received: Tensor) -> Tensor:
        """Cosines in [-1, 1], float64; exactly 1 where both are equal, as where dead units leave both zero, and 0 where
        only one is zero, or one is not finite. Never NaN, which is below no threshold.
        """
        # In double precision no product of single or half precision numbers runs over or under.
        current, received = current.double(), received.double()
        lengths = torch.linalg.vector_norm(current, dim=1) * torch.linalg.vector_norm(received, dim=1)
        equal = (current - received).abs_().amax(dim=1) == 0  # infinity less infinity is no number
        cosine = (current * received).sum(dim=1) / lengths.clamp(min=torch.finfo(lengths.dtype).tiny)
        return torch.where(equal, 1.0, cosine.nan_to_num(0.0).clamp(-1.0, 1.0))

    def reached(self, similarities: Tensor) -> Tensor:
        return self._describe(similarities) < self.threshold

    def _describe(self, similarities: Tensor) -> Tensor:
        size = similarities.shape[-1]
        k = min(self.k, size)
        if self.batch == "mean":
            return similarities.mean(dim=-1)
        if self.batch in ("min", "min_k"):
            return similarities.kthvalue(k if self.batch == "min_k" else 1, dim=-1).values
        if self.batch in ("max", "max_k"):
            place = size - (k if self.batch == "max_k" else 1) + 1
            return similarities.kthvalue(place, dim=-1).values
        # "sample": below if fewer than half of the samples are at or above the threshold.
        return torch.quantile(similarities, 0.5, dim=-1, interpolation="higher")


@final
@dataclass(frozen=True, kw_only=True)
class StopOnDrift(WorkModifier):
    """Ends a visit after the epoch in which the local representation has left the received model's.

    Before each step, the cosine between the representation of the batch's samples under the evolving local model and
    under the received one is compared with T_h(r) = a + b * r / R, where r = 1 ... R is the version. The running epoch
    finishes, no new one begins; there is at least one. The threshold rises, so clients do less the further the
    federation has come.

    Neutral value: a = -1 with b = 0: no cosine is below -1, so nothing is ever stopped, exactly. For one assignment, a
    higher threshold never runs more epochs. No state. One forward pass of the received model per sample (once per
    visit, where nothing augments the samples), and one more of the local model where it has dropout or BatchNorm:
    similarity is judged in eval mode.

    Args:
        a: threshold at the start.
        b: what it gains over the run; 0 for a constant one. Needs the number of rounds.
        representation: "projection" (else "features"), "features", "logits", or the name of a submodule.
        batch: how a batch's cosines become one: "mean", "min", "max", "min_k" and "max_k" (the k-th smallest or
            largest), "sample" (stop if fewer than half of the samples are at or above the threshold).
        k: for "min_k" and "max_k".
        endpoints: "paper": r = 1 ... R over R; "code": 0 ... R-1 over R-1.

    Departures: the authors' code lets the local model judge in training mode, and its "sample" drops samples from the
    step. Its shipped configurations use "min".

    Reference: "Adaptive Local Training in Federated Learning" (ALT), 2025.
    """

    a: float = 0.1
    b: float = 0.8
    representation: str = "projection"
    batch: Literal["mean", "min", "max", "min_k", "max_k", "sample"] = "mean"
    k: Count = 2
    endpoints: Literal["paper", "code"] = "paper"

    privacy = INSIDE

    def needs(self) -> frozenset[Need]:
        return frozenset({"total_rounds"}) if self.b else frozenset()

    @property
    def watches(self) -> tuple[str, ...]:
        return (self.representation,)

    of_a_release = True

    def change(self, setup: Setup, visit: Visit, state: State, brief: State, plan: Plan) -> Plan:
        rule = Drift(layer=self.representation, threshold=self.threshold(visit), batch=self.batch, k=self.k)
        return replace(plan, stop=rule)

    def threshold(self, visit: Visit) -> float:
        """T_h of a visit's version."""
        if not self.b:
            return self.a
        total_rounds = visit.total_rounds or 1
        if self.endpoints == "code":
            return self.a + self.b * visit.version / max(total_rounds - 1, 1)
        return self.a + self.b * (visit.version + 1) / total_rounds
