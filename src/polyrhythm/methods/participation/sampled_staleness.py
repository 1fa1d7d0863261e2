"""Staleness without a clock: every invited client works on one of the last models, drawn by chance."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

from polyrhythm.base.messages import Model, State
from polyrhythm.base.settings import Count
from polyrhythm.base.streams import stream
from polyrhythm.methods.mechanism import Setup
from polyrhythm.methods.participation.base import InvitationContext, Invitations, ParticipationModifier
from polyrhythm.methods.privacy.effects import after


@final
@dataclass(frozen=True, kw_only=True)
class SampledStaleness(ParticipationModifier):
    """Each invitation is for one of the last `max_delay` models, drawn uniformly among those that exist.

    How the client-centric paper simulates asynchrony: no event clock, delays in {0, ..., max_delay - 1}.
    A buffer smaller than the cohort delays updates beyond that. max_delay = 1 changes nothing. Server state: the last
    max_delay models.

    Args:
        max_delay: how many models back a client may work on.

    Reference: "Client-Centric Federated Adaptive Optimization", 2025, section 5.
    """

    max_delay: Count = 5

    decides = "which version a client works on"
    privacy = after("sends out older versions, which are released as well")

    def server_start(self, setup: Setup) -> State:
        return {"models": []}

    def invited(
        self, setup: Setup, state: State, context: InvitationContext, invitations: Invitations
    ) -> tuple[State, Invitations]:
        models = state["models"]
        if not models or models[-1]["version"] < context.version:
            current = {"version": context.version, "weights": context.weights, "buffers": list(context.buffers)}
            # A version that was stepped to while clients were measured is none of them: nobody was invited for it.
            models = [m for m in (*models, current) if m["version"] > context.version - self.max_delay]
        named = context.occasion or (context.version,)
        delayed = []
        for invitation in invitations:
            if invitation.kind != "measure":
                drawn = stream(setup.seed, "delay", *named, invitation.client).integers(len(models))
                old = models[-1 - int(drawn)]
                model = Model(weights=old["weights"], buffers=tuple(old["buffers"]))
                invitation = replace(invitation, version=old["version"], model=model)
            delayed.append(invitation)
        return {**state, "models": models}, tuple(delayed)
