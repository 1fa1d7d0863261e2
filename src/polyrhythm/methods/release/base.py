"""When does the server step, and on what?

One base policy says when a version is complete; modifiers add a reason to step earlier (`Deadline`, `OverSelect`) or a
reason to wait (`MinReports`). A version is released once the base or any of the added reasons says so and nothing says
wait, or once nobody is under way any more. So the order of the modifiers does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple, final

from annotated_types import Ge
from torch import Tensor

from polyrhythm.base.messages import State
from polyrhythm.base.settings import Count, Positive
from polyrhythm.methods.mechanism import Mechanism, Modifier, Release, Setup
from polyrhythm.methods.privacy.effects import timed
from polyrhythm.methods.secure_sum.effects import needs_single
from polyrhythm.methods.work.budgets import EPSILON


@final
@dataclass(frozen=True, kw_only=True)
class ReleaseContext:
    """How far the next version has come.

    Args:
        waiting: accepted updates that are not yet in a version.
        in_flight: visits under way that still count: neither answered, nor lost, nor given up. Where a place that has
            become free is filled again at once, there is always one.
        invited: training visits that were begun since the last version.
        elapsed: seconds since the first of them, or since the last version if there was none.
    """

    waiting: int
    in_flight: int
    invited: int = 0
    elapsed: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ReleasePolicy(Mechanism):
    """Base: when what has arrived becomes a version."""

    def complete(self, context: ReleaseContext) -> bool:
        """Whether there is a reason to step now."""
        raise NotImplementedError

    @property
    def release_size(self) -> int | None:
        """Updates in a version, where that does not follow from how many are invited."""
        return None

    @property
    def carries_over(self) -> bool:
        """Whether an update that comes after a version is meant for a later one."""
        return False

    @property
    def waits_for_all(self) -> bool:
        """Whether it steps only once nobody is under way, which never is where places are filled at once."""
        return False


class Hidden(NamedTuple):
    """What a client adds to a sum in which it is hidden.

    Args:
        factor: by which its update is multiplied.
        tally: what it adds beside it, where something is counted.
    """

    factor: float
    tally: float


@dataclass(frozen=True, kw_only=True)
class ReleaseModifier(Modifier):
    """Base of what adds a reason to step or to wait, or changes what is stepped on."""

    sees = ("limits", "centre", "private_mean")

    def complete(self, context: ReleaseContext) -> bool:
        """Whether there is another reason to step now."""
        return False

    def waits(self, context: ReleaseContext) -> bool:
        """Whether there is a reason not to step yet, although visits are under way."""
        return False

    @property
    def due(self) -> float | None:
        """Seconds after which the server wants to be woken in every version; None for never."""
        return None

    @property
    def patience(self) -> float | None:
        """Seconds after which a visit without an answer is given up; None for never."""
        return None

    @property
    def surplus(self) -> float:
        """How many times its size a cohort is invited."""
        return 1.0

    @property
    def least(self) -> int:
        """Updates without which a version is skipped."""
        return 1

    def forgets(self, carries_over: bool) -> bool:
        """Whether visits that are under way when a version is released are given up, unless places are refilled.

        Args:
            carries_over: whether a late update is meant for a later version.
        """
        return False

    @property
    def needs_all(self) -> bool:
        """Whether it looks at all updates of a version at once, so that they cannot be summed as they come."""
        return False

    @property
    def sets_all(self) -> bool:
        """Whether it says itself what becomes of coordinates that nobody holds, rather than that they stay."""
        return False

    def limits(self, state: State, release: Release) -> Sequence[float] | None:
        """By how much each update is made shorter, before it counts: factors from 0 to 1; None for not at all."""
        return None

    def centre(self, updates: Sequence[Tensor], shares: Sequence[float], scales: Sequence[float]) -> Tensor | None:
        """Another middle of updates [P] than sum_i share_i * scale_i * update_i; None for that one."""
        return None

    def centre_of_held(
        self, updates: Sequence[Tensor], shares: Sequence[float], scales: Sequence[float], held: Sequence[Tensor]
    ) -> Tensor | None:
        """The same where clients hold parts of the model: of each coordinate over its holders; None for the mean.

        Args:
            updates, shares, scales: as for `centre`.
            held: of each update which coordinates its client holds, bool [P].
        """
        return None

    @property
    def private(self) -> bool:
        """Whether it hides what single clients say: then a version is made of whatever has come, of nothing too, and an
        update of which nothing can be used is one of zero.
        """
        return False

    def private_mean(self, setup: Setup, state: State, release: Release) -> tuple[State, Tensor] | None:
        """What the server is to step on [P] in place of any middle of updates, if it hides them; and its new state."""
        return None

    def spread(self, state: State, release: Release) -> float:
        """The standard deviation of the noise on each weight of that mean, if it hides clients; 0 without noise."""
        return 0.0

    def clip_in_sums(self, state: State) -> float | None:
        """The most by which a client moves a sum, where it hides clients and they clip themselves; None elsewhere."""
        return None

    def clipped_alone(self, update: Tensor, num_samples: int, scale: float, clip: float, longest: float) -> Hidden:
        """What a client adds to a sum of what single clients hide in, in clips; only where it hides them."""
        raise NotImplementedError

    def charged(self, state: State, versions: Sequence[Collection[int]]) -> State:
        """Its state with the cost of all versions that were made, where it hides clients: who was in each of them."""
        return state

    @property
    def takes_back(self) -> bool:
        """Whether later versions take back noise of earlier ones."""
        return False

    @property
    def tallies(self) -> int:
        """How many numbers beside its update a client adds to a sum."""
        return 0

    @property
    def longest(self) -> float | None:
        """How long an update is at most where its client shortens it itself; None where nobody does."""
        return None

    def shortens(self, update: Tensor) -> float:
        """By what a client makes its own update shorter for the sum, a factor from 0 to 1."""
        return 1.0

    def stride(self, release: Release) -> float:
        """Which share of its way the server goes with a release."""
        return 1.0

    def holds_back(self, setup: Setup, state: State) -> str:
        """Why the server keeps its weights although a version is complete; empty if it steps."""
        return ""


@final
@dataclass(frozen=True, kw_only=True)
class WhenAll(ReleasePolicy):
    """Synchronous rounds: the server steps once everybody invited has reported or is lost. No state."""

    privacy = timed("waits for everybody", "poisson", "fixed_size")

    def complete(self, context: ReleaseContext) -> bool:
        return context.in_flight == 0

    @property
    def waits_for_all(self) -> bool:
        return True


@final
@dataclass(frozen=True, kw_only=True)
class Buffer(ReleasePolicy):
    """Buffered asynchrony: the server steps once `size` updates have arrived, whoever is still under way.

    The server optimiser is handed their mean. size = cohort is exactly `WhenAll` while nobody is lost. If nobody is
    under way any more, what has arrived is released, so losses cannot stop a run. No state.

    Args:
        size: updates per version.

    Reference: Nguyen et al., "Federated Learning with Buffered Asynchronous Aggregation", AISTATS 2022, Algorithm 1.
    """

    size: Count = 5

    privacy = timed("makes a version of whoever comes first")
    in_sums = needs_single(
        "masks cancel only in the sum of those that were invited together", "take rounds: uniform clients and when_all"
    )

    def complete(self, context: ReleaseContext) -> bool:
        return context.waiting >= self.size

    @property
    def release_size(self) -> int | None:
        return self.size

    @property
    def carries_over(self) -> bool:
        return True


@final
@dataclass(frozen=True, kw_only=True)
class Deadline(ReleaseModifier):
    """The server steps at the latest `seconds` after a version's first invitation, on what has arrived by then.

    Whoever is later is given up: its report is dropped when it comes, and it is not invited before. With `buffer`,
    and under `rolling`, nobody is given up: a late update lands in a later version, and so counts from the last version
    on if somebody is still at work then. With nobody in time the version is skipped, and the model stays. Exactly in
    time is in time. A deadline that everybody keeps changes nothing. No state.

    Args:
        seconds: from the first invitation of a version, on the fleet's clock.

    Reference: Bonawitz et al., "Towards Federated Learning at Scale: System Design", MLSys 2019, section 2.2.
    """

    seconds: Positive = 60.0

    decides = "when a version ends at the latest"
    privacy = timed("leaves out whoever is late", "poisson")

    def complete(self, context: ReleaseContext) -> bool:
        return context.elapsed >= self.seconds

    @property
    def due(self) -> float | None:
        return self.seconds

    def forgets(self, carries_over: bool) -> bool:
        return not carries_over


@final
@dataclass(frozen=True, kw_only=True)
class OverSelect(ReleaseModifier):
    """Invites `factor` times the cohort, steps once a cohort has reported, and gives the rest up.

    factor = 1 changes nothing. Where fewer are there than it would invite, the same share of those invited is enough.
    Those given up have worked for nothing; slow clients are heard less often. No state.

    Args:
        factor: clients invited per client needed, 1 or more.

    Reference: Bonawitz et al., "Towards Federated Learning at Scale: System Design", MLSys 2019, section 9: 1.3.
    """

    factor: Annotated[float, Ge(1)] = 1.3

    decides = "how many more are invited"
    privacy = timed("leaves out whoever is slowest", excludes="poisson")

    def complete(self, context: ReleaseContext) -> bool:
        return context.waiting >= max(1, math.floor(context.invited / self.factor + EPSILON))

    @property
    def surplus(self) -> float:
        return self.factor

    def forgets(self, carries_over: bool) -> bool:
        return True


@final
@dataclass(frozen=True, kw_only=True)
class MinReports(ReleaseModifier):
    """A version needs so many updates: the server waits for them, and skips the version if they cannot come.

    count = 1 changes nothing. A version skipped has spent its clients' work, and its note says so; what its reports
    said of their clients (control variates, duals, movements) is kept at both ends. No state.

    Args:
        count: updates without which there is no step.
    """

    count: Count = 2

    decides = "how many updates a version needs"
    privacy = timed("skips a version of few, which tells how many were drawn", excludes="poisson")

    def waits(self, context: ReleaseContext) -> bool:
        return context.waiting < self.count

    @property
    def least(self) -> int:
        return self.count


@final
@dataclass(frozen=True, kw_only=True)
class TimeOut(ReleaseModifier):
    """A visit that has no answer `seconds` after it was begun is given up.

    It no longer counts as under way. Its report is dropped if it comes after all, and the client is not invited before
    the driver has heard of it. No state.

    Args:
        seconds: from invitation to report, on the fleet's clock.
    """

    seconds: Positive = 60.0

    decides = "how long a visit may take"
    privacy = timed("leaves out whoever takes too long", "poisson")

    @property
    def patience(self) -> float | None:
        return self.seconds
