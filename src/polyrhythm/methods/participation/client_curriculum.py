"""Which clients are easy? The curriculum over clients."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, final

from polyrhythm.base.messages import Report, State
from polyrhythm.base.settings import Count
from polyrhythm.base.streams import stream
from polyrhythm.methods.mechanism import Need, Release, Setup
from polyrhythm.methods.order.pacing import Pacing
from polyrhythm.methods.participation.base import (
    Invitation,
    InvitationContext,
    Invitations,
    Participation,
)
from polyrhythm.methods.privacy.effects import PrivacyEffect, drawing, refused
from polyrhythm.methods.secure_sum.effects import needs_single


@final
@dataclass(frozen=True, kw_only=True)
class ClientCurriculum(Participation):
    """Easy clients first: a pool of the g(u) easiest clients, taken in shuffled mini-batches of one cohort each.

    When the pool is used up, all clients are scored by the mean loss of the current model on their data, ordered, and
    the first g(u) make the next pool; u counts client updates, out of cohort * rounds. The last cohort of a pool is
    short if the cohort does not divide it.

    Scores come from measuring visits to everybody at each refill (the paper); or from the loss that clients last
    reported while they trained, which costs nothing; or from an expert, a model trained before, whose mean loss every
    client measures on its own samples once and reports. A client that cannot be reached keeps its score; one without a
    score counts as hardest.

    There is no neutral value: with order="random" and a pacing of b = 1 every client takes part once per pool, as with
    `Sweep`, whose law it keeps. Server state: the scores and the pool, O(population).

    Args:
        cohort: clients per version; None for that of the participation it takes the place of.
        pacing: g, over client updates.
        order: "curriculum" (easy first), "anti", "random".
        scores: "measured", "reported" or "expert", see `polyrhythm expert`.

    Reference: "When do curricula work in federated learning?", ICCV 2023, section 5 and the authors' scheduler.
    """

    cohort: Count | None = None
    pacing: Pacing = field(default_factory=Pacing)
    order: Literal["curriculum", "anti", "random"] = "curriculum"
    scores: Literal["measured", "reported", "expert"] = "measured"
    in_sums = needs_single("clients tell their own losses", "take uniform")

    @property
    def guesses(self) -> bool:
        return True

    def under_privacy(self) -> PrivacyEffect:
        if self.order == "random":
            return drawing("bounded", "draws from a pool, everybody in it once")
        return refused(
            "who is invited follows from losses that clients measure and report without noise, so that one of them "
            "would change who else takes part",
            'set order="random", or take poisson or uniform',
        )

    def needs(self) -> frozenset[Need]:
        expert = self.scores == "expert" and self.order != "random"
        return frozenset({"total_rounds", "expert"} if expert else {"total_rounds"})

    def server_start(self, setup: Setup) -> State:
        return {"scores": {}, "pool": [], "refills": 0, "updates": 0, "asked": False}

    def invite(self, setup: Setup, state: State, context: InvitationContext) -> tuple[State, Invitations]:
        places = context.places(self.size)
        if not places:
            return state, ()
        free = self._free(state, context)
        if not free:
            measured = self.scores != "reported" and self.order != "random"
            if measured and not state["asked"]:
                # An expert's verdict stands; the current model's is as old as the model.
                known = state["scores"] if self.scores == "expert" else {}
                unheard = tuple(c for c in context.roster.all() if c not in context.busy and c not in known)
                asked = tuple(Invitation(client=c, kind="measure") for c in context.roster.present(unheard))
                if asked:
                    return {**state, "asked": True}, asked
            state = self._refill(setup, state, context)
            free = self._free(state, context)
        taken = frozenset(free[:places])
        left = [c for c in state["pool"] if c not in taken]
        return {**state, "pool": left}, tuple(Invitation(client=c) for c in free[:places])

    def _free(self, state: State, context: InvitationContext) -> tuple[int, ...]:
        """Who of the pool can be invited now; if nobody can, it counts as used up, or it would stay open for ever."""
        return context.roster.present(tuple(c for c in state["pool"] if c not in context.busy))

    def _refill(self, setup: Setup, state: State, context: InvitationContext) -> State:
        everybody = context.roster.all()
        generator = stream(setup.seed, "cohort", "pool", state["refills"])
        chance = [everybody[i] for i in generator.permutation(len(everybody))]
        ordered = chance
        if self.order != "random":
            sign = 1.0 if self.order == "curriculum" else -1.0
            ordered = sorted(chance, key=lambda c: sign * _hardness(state["scores"].get(c)))
        total = self.size * (setup.total_rounds or 1)
        pool = ordered[: self.pacing.count(len(ordered), state["updates"], total)]
        shuffled = [pool[i] for i in generator.permutation(len(pool))]
        return {**state, "pool": shuffled, "refills": state["refills"] + 1, "asked": False}

    def measured(self, setup: Setup, state: State, report: Report) -> State:
        score = report.measures["expert_loss" if self.scores == "expert" else "loss"]
        return {**state, "scores": {**state["scores"], report.client: score}}

    def after_step(self, setup: Setup, state: State, release: Release) -> State:
        scores = state["scores"]
        if self.scores == "reported":
            scores = {**scores, **{r.client: r.loss for r in release.fresh if r.loss is not None}}
        return {**state, "scores": scores, "updates": state["updates"] + len(release.reports)}

    def measures(self, state: State) -> Mapping[str, float]:
        return {"pool": float(len(state["pool"]))}


def _hardness(score: float | None) -> float:
    """A client without a score, or with one that is no number, counts as hardest."""
    return score if score is not None and math.isfinite(score) else math.inf
