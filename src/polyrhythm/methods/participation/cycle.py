"""Turns in one fixed order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from polyrhythm.base.messages import State
from polyrhythm.base.settings import Count
from polyrhythm.base.streams import stream
from polyrhythm.methods.mechanism import Setup
from polyrhythm.methods.participation.base import InvitationContext, Invitations, Participation, to_train
from polyrhythm.methods.privacy.effects import drawing


@final
@dataclass(frozen=True, kw_only=True)
class Cycle(Participation):
    """Takes clients in turn, in one order that never changes: two turns of a client are N / cohort versions apart.

    The order is a permutation of all that hold data. In version t the turn is that of the cohort after place
    t * cohort, on a circle; so nobody is in two versions less than N // cohort apart, where `sweep`, which shuffles
    anew, may have two in a row. Whoever is away or busy misses its turn, and nobody takes its place: with nobody of a
    turn there, the server waits for one of them. Cohort = N is everybody, as `uniform`. No state; O(N) for a version.

    Args:
        cohort: as for `Uniform`.

    Reference: Choquette-Choo et al., "(Amplified) Banded Matrix Factorization: A unified approach to private training",
    NeurIPS 2023, section 3 (participation in which visits are b versions apart).
    """

    cohort: Count | None = None

    privacy = drawing("bounded", "takes clients in turn, in one fixed order")

    def invite(self, setup: Setup, state: State, context: InvitationContext) -> tuple[State, Invitations]:
        everybody = context.roster.all()
        order = stream(setup.seed, "cohort", "cycle").permutation(len(everybody))
        first, count = context.version * self.size, min(context.places(self.size), len(everybody))
        turn = [everybody[order[(first + place) % len(everybody)]] for place in range(count)]
        return state, to_train(context.roster.present(tuple(c for c in turn if c not in context.busy)))
