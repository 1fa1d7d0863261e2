"""A steady number of clients at work: whoever ends is replaced at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from polyrhythm.base.frozen import replace_unchecked
from polyrhythm.base.messages import State
from polyrhythm.base.settings import Count
from polyrhythm.methods.mechanism import Setup
from polyrhythm.methods.participation.base import (
    Invitation,
    InvitationContext,
    Invitations,
    Participation,
    ParticipationModifier,
)
from polyrhythm.methods.privacy.effects import drawing, timed
from polyrhythm.methods.secure_sum.effects import needs_single

AT_WORK = "how many are at work"


@final
@dataclass(frozen=True, kw_only=True)
class Rolling(ParticipationModifier):
    """Keeps `concurrency` clients at work: a client whose visit has ended is replaced at once, by the participation.

    For buffered asynchrony (`buffer`): fast clients take part more often, slow ones report on older versions. A client
    is never at work twice. One that skipped, or whose report was refused, is not invited again before the next version,
    or instant skippers would fill the buffer. What has arrived is released before its time with nobody left to invite
    and nobody at work, or once so many visits were lost, as many as there are clients more than arrived. Whom the
    participation draws is named by the dispatch number. No state of its own.

    Args:
        concurrency: clients at work; None for the cohort of the participation.
        once_per_buffer: whether a client with an update in the buffer waits for the next version too.

    Reference: Nguyen et al., "Federated Learning with Buffered Asynchronous Aggregation", AISTATS 2022.
    """

    concurrency: Count | None = None
    once_per_buffer: bool = False

    decides = AT_WORK
    privacy = timed("invites whenever somebody has ended")
    in_sums = needs_single(
        "masks cancel only in the sum of those that were invited together", "take rounds: uniform clients and when_all"
    )

    @property
    def fills_places(self) -> bool:
        return True

    @property
    def one_at_a_time(self) -> bool:
        return self.once_per_buffer

    @property
    def size(self) -> int | None:
        return self.concurrency

    def piped(self, onto: Participation) -> tuple[Participation, ParticipationModifier]:
        # The concurrency is the cohort, so that whatever else looks at it sees one size.
        if self.concurrency is None or not hasattr(onto, "cohort"):
            return onto, self
        return onto.resized(self.concurrency), Rolling(once_per_buffer=self.once_per_buffer)

    def asked(self, setup: Setup, state: State, context: InvitationContext) -> InvitationContext:
        known = self.concurrency is None or context.count is not None  # whoever decides on the cohort decides on this
        return context if known else replace_unchecked(context, count=self.concurrency)


@final
@dataclass(frozen=True, kw_only=True)
class OnArrival(Participation):
    """Arbitrary participation: the server invites nobody; whoever comes and asks is given the current model.

    Who comes, and how often, is the fleet's affair: its arrivals (`poisson`, `every`, `arrivals`), or else whoever was
    away and is there again. Nothing guarantees that a client comes at all, and who comes more often counts more. If as
    many visits as there are clients have come to nothing since the last version, and nobody is at work, what has
    arrived is released. Takes the place of `rolling`. No state.

    Args:
        most: clients at work at the same time; later ones are sent away. None for any number.

    Reference: Yang et al., "Anarchic Federated Learning", ICML 2022.
    """

    most: Count | None = None

    decides = AT_WORK
    privacy = drawing("bounded", "whoever comes")
    in_sums = needs_single(
        "masks cancel only in the sum of those that were invited together", "take rounds: uniform clients and when_all"
    )

    @property
    def fills_places(self) -> bool:
        return True

    @property
    def invites(self) -> bool:
        return False

    @property
    def size(self) -> int:
        return self.most or 1

    def invite(self, setup: Setup, state: State, context: InvitationContext) -> tuple[State, Invitations]:
        full = self.most is not None and context.in_flight >= self.most
        if context.caller is None or full or context.caller in context.busy:
            return state, ()
        if not context.roster.present((context.caller,)):  # it was on its way, and has broken down since
            return state, ()
        return state, (Invitation(client=context.caller),)
