"""The personal part and the shared one are trained one after the other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

from polyrhythm.base.messages import State
from polyrhythm.base.settings import NonNegative
from polyrhythm.methods.mechanism import Setup, Visit
from polyrhythm.methods.personal.models import steps_of
from polyrhythm.methods.privacy.effects import INSIDE
from polyrhythm.methods.work.base import Plan, WorkModifier


@final
@dataclass(frozen=True, kw_only=True)
class PersonalFirst(WorkModifier):
    """A visit first trains the personal part alone, for `epochs` passes, and then the shared part alone.

    While one part is trained the other is held: it takes no step, no weight decay and no momentum, and has no part in
    the norm that is clipped. The work of the recipe is the second phase; only its steps count as steps of the update.
    epochs = 0 never trains the personal part: it stays as it began. No state, no bytes; the gradients of the first
    phase on top.

    Args:
        epochs: passes of the first phase.

    Reference: Collins et al., "Exploiting Shared Representations for Personalized Federated Learning", ICML 2021,
    Algorithm 1 (FedRep); with epochs = 0, Oh, Kim, Yun, "FedBABU", ICLR 2022, Algorithm 1.
    """

    epochs: NonNegative = 10.0

    decides = "which part of the model is trained when"
    privacy = INSIDE

    @property
    def passes(self) -> float:
        """Passes over a client's samples that each visit makes beside its work."""
        return self.epochs

    def change(self, setup: Setup, visit: Visit, state: State, brief: State, plan: Plan) -> Plan:
        return replace(plan, apart=True, first=steps_of(self.epochs, visit))
