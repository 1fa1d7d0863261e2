"""A steady number of clients at work: whoever ends is replaced at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from polyrhythm.settings import Count
from polyrhythm.slots.mechanism import Mechanism, Setup
from polyrhythm.slots.participation import Around, Call, Invitation, Invitations, Participation, resized
from polyrhythm.values import changed
from polyrhythm.wires import State


@final
@dataclass(frozen=True, kw_only=True)
class Rolling(Around):
    """Keeps `concurrency` clients at work: a client whose visit has ended is replaced at once, by the policy inside.

    For buffered asynchrony (`buffer`): fast clients take part more often, slow ones report on older versions. A client
    is never at work twice. One that skipped is not invited again before the next version, or instant skippers would
    fill the buffer. Whom the policy inside draws is named by the dispatch number. No state of its own.

    Args:
        concurrency: clients at work; None for the cohort of the policy inside.
        once_per_buffer: whether a client with an update in the buffer waits for the next version too.

    Reference: Nguyen et al., "Federated Learning with Buffered Asynchronous Aggregation", AISTATS 2022.
    """

    concurrency: Count | None = None
    once_per_buffer: bool = False

    @property
    def fills_places(self) -> bool:
        return True

    @property
    def one_at_a_time(self) -> bool:
        return self.once_per_buffer

    def over(self, earlier: Mechanism) -> Mechanism:
        # The concurrency is the cohort, so that policies around and inside see one size, in whatever order they stand.
        if self.concurrency is None or not isinstance(earlier, Participation):
            return super().over(earlier)
        return Rolling(inner=resized(earlier, self.concurrency), once_per_buffer=self.once_per_buffer)

    @property
    def size(self) -> int:
        return self.concurrency or self.inner.size

    def invite(self, setup: Setup, state: State, call: Call) -> tuple[State, Invitations]:
        count = self.concurrency if call.count is None else call.count
        return super().invite(setup, state, changed(call, count=count))


@final
@dataclass(frozen=True, kw_only=True)
class OnArrival(Participation):
    """Arbitrary participation: the server invites nobody; whoever comes and asks is given the current model.

    Who comes, and how often, is the fleet's affair (`poisson`, `every`, `arrivals`): nothing guarantees that a client
    comes at all, and who comes more often counts more. No state.

    Args:
        most: clients at work at the same time; later ones are sent away. None for any number.

    Reference: Yang et al., "Anarchic Federated Learning", ICML 2022.
    """

    most: Count | None = None

    @property
    def fills_places(self) -> bool:
        return True

    @property
    def size(self) -> int:
        return self.most or 1

    def over(self, earlier: Mechanism) -> Mechanism:
        return self

    def invite(self, setup: Setup, state: State, call: Call) -> tuple[State, Invitations]:
        full = self.most is not None and call.in_flight >= self.most
        if call.caller is None or full or call.caller in call.busy:
            return state, ()
        return state, (Invitation(client=call.caller),)
