"""Clients whose part in the updates so far is smallest for what they hold, of those that are there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, final

from annotated_types import Gt, Le

from polyrhythm.base.messages import State
from polyrhythm.base.settings import Count
from polyrhythm.methods.mechanism import Setup
from polyrhythm.methods.participation.base import InvitationContext, Invitations, Participation, to_train
from polyrhythm.methods.privacy.effects import refused


@final
@dataclass(frozen=True, kw_only=True)
class RateSampling(Participation):
    """Invites the K clients there with the largest p_i / r_i, K the cohort, and learns at which rate each is invited.

    p_i = n_i / sum of n over all clients that hold data; r_i <- (1 - beta) * r_i + beta * [i is invited], beginning at
    K / N. Of equal ones the lower numbers come first. With `as_invited` an update counts p_i / r_i, with the new r_i:
    sum over those heard of p_i / r_i * update_i is the mean over all clients without bias, once rates are known,
    however seldom one is there.

    K = N, all there, is exactly `by_samples` with everybody: every r_i stays 1. Server state: a number per client, all
    of which change with every version, O(N log N).

    Departures: rates begin at K / N, which they add up to ever after. The authors' program has them begin at p_i or
    1 / N, and divides the step by K to make up for that; as rates grow to their values the step then shrinks K times.

    Args:
        cohort: K; None for the cohort of the participation it takes the place of.
        beta: how fast rates follow, above 0, up to 1; the authors' example has 0.001, their program 0.01.

    Reference: Ribero, Vikalo, de Veciana, "Federated Learning Under Intermittent Client Availability and Time-Varying
    Communication Constraints", IEEE Journal of Selected Topics in Signal Processing, 2022 (F3AST), and the authors'
    program; the step is after its claim to be without bias.
    """

    cohort: Count | None = None
    beta: Annotated[float, Gt(0), Le(1)] = 0.01

    privacy = refused("who is invited follows from how much data all clients hold", "take poisson or uniform")

    @property
    def of_rounds(self) -> bool:
        return True

    def server_start(self, setup: Setup) -> State:
        return {"rates": {}, "held": {}}

    def invite(self, setup: Setup, state: State, context: InvitationContext) -> tuple[State, Invitations]:
        places = context.places(self.size)
        if not places:
            return state, ()
        held, there = context.samples(state["held"])
        first = min(1.0, self.size / len(held))
        rates = {client: state["rates"].get(client, first) for client in held}
        wanted = {client: n / rates[client] if rates[client] else math.inf for client, n in held.items()}
        chosen = sorted(there, key=lambda client: (-wanted[client], client))[:places]
        invited = frozenset(chosen)
        rates = {c: (1 - self.beta) * rate + self.beta * (c in invited) for c, rate in rates.items()}
        return {"rates": rates, "held": held}, to_train(chosen)

    def weight(self, setup: Setup, state: State, client: int) -> float:
        return float(state["held"][client] / state["rates"][client])

    def whole(self, setup: Setup, state: State) -> float | None:
        return float(sum(state["held"].values()))
