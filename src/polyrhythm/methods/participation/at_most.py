"""A limit on how often anybody takes part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from immutables import Map

from polyrhythm.base.frozen import replace_unchecked
from polyrhythm.base.messages import State
from polyrhythm.base.settings import Count
from polyrhythm.methods.mechanism import Setup
from polyrhythm.methods.participation.base import Either, InvitationContext, Invitations, ParticipationModifier
from polyrhythm.methods.privacy.effects import timed


@final
@dataclass(frozen=True, kw_only=True)
class AtMost(ParticipationModifier):
    """Invites nobody to train more than `visits` times; whoever has been is no more there for the participation.

    So what one client adds to all versions is known before the first one, whoever comes: `dp(epsilon=…)` finds its
    noise under any schedule. Visits that were lost or refused count, too. A limit that nobody reaches changes nothing.
    Server state: how often each client was invited, and who has been often enough.

    Args:
        visits: k, invitations of a client in the whole run.

    Reference: with the account of `dp`; corollary 3.3 of Dong, Roth, Su, "Gaussian Differential Privacy", 2022.
    """

    visits: Count = 1

    decides = "how often anybody is invited"
    privacy = timed("leaves out whoever was invited often enough", "poisson")

    @property
    def most(self) -> int | None:
        return self.visits

    def server_start(self, setup: Setup) -> State:
        return {"visits": Map(), "spent": Map()}

    def asked(self, setup: Setup, state: State, context: InvitationContext) -> InvitationContext:
        return replace_unchecked(context, busy=Either(context.busy, state["spent"])) if state["spent"] else context

    def invited(
        self, setup: Setup, state: State, context: InvitationContext, invitations: Invitations
    ) -> tuple[State, Invitations]:
        trained = [invitation.client for invitation in invitations if invitation.kind == "train"]
        if not trained:
            return state, invitations
        visits, spent = state["visits"], state["spent"]
        for client in trained:
            visits = visits.set(client, count := visits.get(client, 0) + 1)
            if count >= self.visits:
                spent = spent.set(client, True)
        return {"visits": visits, "spent": spent}, invitations
