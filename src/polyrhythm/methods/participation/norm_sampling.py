"""Clients whose updates are long send them; those of the others are known to be short."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from polyrhythm.base.messages import Report, State
from polyrhythm.base.settings import Count
from polyrhythm.methods.mechanism import Setup
from polyrhythm.methods.participation.base import (
    Invitation,
    InvitationContext,
    Invitations,
    Participation,
    to_train,
)
from polyrhythm.methods.privacy.effects import refused
from polyrhythm.methods.secure_sum.effects import needs_single


@final
@dataclass(frozen=True, kw_only=True)
class NormSampling(Participation):
    """A cohort of n trains and says how long its updates are; client i sends its own with probability p_i, m in all.

    With s_i = n_i / sum of n over the cohort and u_i = s_i * |update_i|, p_i = 1 for all but the l shortest, of which
    p_i = (m + l - n) * u_i / (sum of u over these l); l is the largest for which 0 < m + l - n <= (the same sum) / (the
    longest of the l). With `as_invited` an update counts s_i / p_i: the mean of the cohort without bias, and with the
    least variance of all independent draws of m in the mean. Where nobody is drawn all are drawn again, and s_i / p_i
    is multiplied by the chance that somebody is.

    m = n is exactly the whole cohort, by samples, and asks for no lengths. A client says one number first; whoever is
    drawn then trains again, to the same update, since between two messages it may have been off: n + m visits of work,
    n + m models down, m updates and n numbers up. Server state: two numbers per client of the cohort. Who would skip a
    visit has the length 0.

    Departure: in the paper a client keeps its update until it is asked for it.

    Args:
        cohort: n; None for the cohort of the participation it takes the place of.
        uploads: m, how many send an update in the mean.
        rescalings: None for p as above; else the approximation that needs sums over clients alone, so that no single
            length is told: p_i = min(1, m * u_i / sum of u), and as often as this the p_i below 1 are scaled up to add
            up to what is left of m.

    Reference: Chen, Horvath, Richtarik, "Optimal Client Sampling for Federated Learning", TMLR 2022, eq. (7), and
    Algorithm 2 for the approximation, where 4 rescalings are enough.
    """

    cohort: Count | None = None
    uploads: Count = 3
    rescalings: Count | None = None

    privacy = refused(
        "who sends its update follows from how long updates are, without noise", "take poisson or uniform"
    )
    in_sums = needs_single("clients tell how long their own updates are", "take uniform")

    @property
    def of_rounds(self) -> bool:
        return True

    @property
    def guesses(self) -> bool:
        return True

    def server_start(self, setup: Setup) -> State:
        return {"held": {}, "norms": {}, "weights": {}, "whole": 1.0}

    def invite(self, setup: Setup, state: State, context: InvitationContext) -> tuple[State, Invitations]:
        if state["norms"]:
            return self._drawn(setup, state, context)
        places = context.places(self.size)
        cohort = context.roster.draw(places, context.draws(setup), context.busy) if places else ()
        if not cohort:
            return state, ()
        held, _ = context.samples(state["held"])
        state = {**state, "held": held}
        if len(cohort) > self.uploads:
            return state, tuple(Invitation(client=client, kind="rehearse") for client in cohort)
        weights = {client: float(held[client]) for client in cohort}
        return {**state, "weights": weights, "whole": sum(weights.values())}, to_train(cohort)

    def _drawn(self, setup: Setup, state: State, context: InvitationContext) -> tuple[State, Invitations]:
        """Who sends, of those that have said how long their updates are."""
        heard = sorted(state["norms"])
        held = [state["held"][client] for client in heard]
        lengths = [n * state["norms"][client] for n, client in zip(held, heard, strict=True)]
        p = np.array(chances(lengths, self.uploads, self.rescalings))
        draws = context.stream(setup, "uploads")
        while not (falls := draws.random(len(p)) < p).any():
            pass
        drawn = {heard[i]: held[i] / float(p[i]) for i in np.flatnonzero(falls)}
        whole = sum(held) / (1 - math.prod((1 - p).tolist()))
        return {**state, "norms": {}, "weights": drawn, "whole": whole}, to_train(context.there(drawn, len(drawn)))

    def measured(self, setup: Setup, state: State, report: Report) -> State:
        norm = report.measures.get("norm", 0.0)
        return {**state, "norms": {**state["norms"], report.client: norm if math.isfinite(norm) else 0.0}}

    def weight(self, setup: Setup, state: State, client: int) -> float:
        return float(state["weights"].get(client, 0.0))

    def whole(self, setup: Setup, state: State) -> float | None:
        return float(state["whole"])


def chances(lengths: Sequence[float], uploads: int, rescalings: int | None = None) -> list[float]:
    """With which probability each is drawn, so that `uploads` are in the mean, of these lengths of updates."""
    count, whole = len(lengths), math.fsum(lengths)
    if uploads >= count:
        return [1.0] * count
    if not whole:
        return [uploads / count] * count
    if rescalings is not None:
        p = [min(1.0, uploads * u / whole) for u in lengths]
        for _ in range(rescalings):
            below = [q for q in p if q < 1]
            factor = (uploads - count + len(below)) / math.fsum(below) if any(below) else 1.0
            p = [min(1.0, factor * q) if 0 < q < 1 else q for q in p]  # a factor may be infinite
            if factor <= 1:
                break
        return p
    ranked, left, longest, least = sorted(lengths), 0.0, 0.0, count
    for least in range(count, count - uploads, -1):
        left, longest = math.fsum(ranked[:least]), ranked[least - 1]
        if (uploads + least - count) * longest <= left:
            break
    part = (uploads + least - count) / left if left else 0.0
    return [1.0 if u > longest else min(1.0, part * u) if u else 0.0 for u in lengths]
