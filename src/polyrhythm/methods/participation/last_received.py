"""Clients that go on from what they last had, rather than from what the server has now."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

from immutables import Map

from polyrhythm.base.messages import Model, State
from polyrhythm.methods.mechanism import Release, Setup
from polyrhythm.methods.participation.base import InvitationContext, Invitations, ParticipationModifier
from polyrhythm.methods.privacy.effects import after
from polyrhythm.methods.secure_sum.effects import ONLY_FACTS


@final
@dataclass(frozen=True, kw_only=True)
class LastReceived(ParticipationModifier):
    """A client works on the model that came of the last version in which it was heard; on the first one before that.

    So only those who take part get a new model, and who comes back after long brings the old one along: its staleness
    is how many versions it was away. Together with `from_current(scaled=false)` models mix as they are by gossip, and
    with `staleness(rule=catch_up)` an update counts for all the versions that were missed.

    Neutral situation: everybody in every version: exactly nothing. Server state: a version per client heard, and the
    models of those versions, N * P at most. A version that was stepped to while clients were measured is not kept; the
    next one stands for it.
    """

    decides = "which version a client works on"
    privacy = after("sends out older versions, which are released as well")
    in_sums = ONLY_FACTS

    def server_start(self, setup: Setup) -> State:
        return {"since": Map(), "models": {}}

    def invited(
        self, setup: Setup, state: State, context: InvitationContext, invitations: Invitations
    ) -> tuple[State, Invitations]:
        since, needed = state["since"], set(state["since"].values())
        if len(since) < setup.holders:
            needed.add(0)
        models = {version: model for version, model in state["models"].items() if version in needed}
        if context.version not in models:
            models[context.version] = {"weights": context.weights, "buffers": list(context.buffers)}
        changed = []
        for invitation in invitations:
            if invitation.kind != "measure":
                version = min(v for v in models if v >= since.get(invitation.client, 0))
                model = Model(weights=models[version]["weights"], buffers=tuple(models[version]["buffers"]))
                invitation = replace(invitation, version=version, model=model)
            changed.append(invitation)
        return {**state, "models": models}, tuple(changed)

    def after_step(self, setup: Setup, state: State, release: Release) -> State:
        since = state["since"].update({report.client: release.version + 1 for report in release.reports})
        return {**state, "since": since}
