"""Which factor of low-rank adapters is trained when: with one of them the same for all, the mean of B A is exact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

from polyrhythm.base.adapters import Factor
from polyrhythm.base.messages import State
from polyrhythm.base.settings import Count
from polyrhythm.methods.mechanism import Setup, Visit
from polyrhythm.methods.privacy.effects import INSIDE, refused
from polyrhythm.methods.secure_sum.effects import needs_single
from polyrhythm.methods.work.base import Plan, WorkModifier

_QUESTION = "which factor of adapters is trained"


@final
@dataclass(frozen=True, kw_only=True)
class FreezeFactor(WorkModifier):
    """One factor of every adapter stays as it was drawn: it is neither trained, nor sent, nor remembered.

    With A the same for all, sum_i p_i B_i A = (sum_i p_i B_i) A, so plain averaging is exact, and the noise of `dp`
    enters W + s B A linearly. The same as a model whose adapters were made with freeze="A": exactly so. Neutral
    situation: a model whose A is frozen already. No state; bytes and vectors are those of the other factor.

    Args:
        factor: "A". B begins as zero, so a frozen B would leave every model as it was.

    Reference: Sun, Li, Li, Ding, "Improving LoRA in Privacy-preserving Federated Learning" (FFA-LoRA), ICLR 2024.
    """

    factor: Literal["A"] = "A"

    decides = _QUESTION
    of_adapters = True
    privacy = INSIDE

    @property
    def freezes(self) -> Factor | None:
        return self.factor

    def change(self, setup: Setup, visit: Visit, state: State, brief: State, plan: Plan) -> Plan:
        return plan


@final
@dataclass(frozen=True, kw_only=True)
class AlternateFactors(WorkModifier):
    """Visits to version t train B alone where t // `versions` is even, and A alone where it is odd.

    The other factor is held: no step, no weight decay, no momentum, no part in the norm that is clipped, and it is not
    sent back. Within a version one factor is the same for all, so plain averaging is exact. Neutral situation: as many
    versions of B as the run has: exactly `freeze_factor` in what is computed, while A still travels down. No state;
    an update costs the bytes of one factor, and both are sent to clients.

    Args:
        versions: how many in a row train the same factor.

    Reference: Chen, Guo, Ju, Dalal, Zhu, Khisti, "Robust Federated Finetuning of LLMs via Alternating Optimization of
    LoRA" (RoLoRA), NeurIPS 2025, with versions = 1.
    """

    versions: Count = 1

    decides = _QUESTION
    of_adapters = True
    both_factors = True
    privacy = refused(
        "noise would be added to the factor that rests, too", "take freeze_factor, which has one factor alone"
    )
    in_sums = needs_single("which numbers are sent changes from version to version", "take freeze_factor")

    def rests(self, version: int) -> Factor | None:
        return "B" if (version // self.versions) % 2 else "A"

    def change(self, setup: Setup, visit: Visit, state: State, brief: State, plan: Plan) -> Plan:
        return plan
