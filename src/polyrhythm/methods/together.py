"""What a part and its modifiers decide together. In whichever order the modifiers are asked, they say the same."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

from torch import Tensor

from polyrhythm.base.errors import UserError
from polyrhythm.base.messages import State
from polyrhythm.base.portions import masks_of
from polyrhythm.base.sums import weighted_sum
from polyrhythm.methods.mechanism import Mechanism, Release, Setup, States, Visit
from polyrhythm.methods.participation.base import InvitationContext, Invitations, Participation, ParticipationModifier
from polyrhythm.methods.release.base import ReleaseContext, ReleaseModifier, ReleasePolicy
from polyrhythm.methods.work.base import OfWork, Plan, Work, WorkModifier


@final
@dataclass(frozen=True)
class Inviting:
    """Who is invited, on which version: a participation under its key, and modifiers under theirs."""

    key: str
    base: Participation
    modifiers: tuple[tuple[str, ParticipationModifier], ...]

    def invite(self, setup: Setup, parts: States, context: InvitationContext) -> tuple[States, Invitations]:
        """The states of all parts, the same object if nothing changed, and who is invited."""
        for key, modifier in self.modifiers:
            context = modifier.asked(setup, parts[key], context)
        state, invitations = self.base.invite(setup, parts[self.key], context)
        found = {self.key: state}
        for key, modifier in self.modifiers:
            found[key], invitations = modifier.invited(setup, parts[key], context, invitations)
        changes = {key: state for key, state in found.items() if state is not parts[key]}
        return {**parts, **changes} if changes else parts, invitations

    def wanted(self, parts: States) -> int | None:
        """How many clients the version under way is to have, where a modifier decides that; else None."""
        sizes = (modifier.wanted(parts[key]) for key, modifier in self.modifiers)
        return next((size for size in sizes if size is not None), None)


@final
@dataclass(frozen=True)
class Planning:
    """How much a client does: work under its key, and modifiers under theirs."""

    key: str
    base: Work
    modifiers: tuple[tuple[str, WorkModifier], ...]

    @property
    def mechanisms(self) -> tuple[tuple[str, Mechanism], ...]:
        """All whose states at the client a plan is made from, with their keys."""
        return ((self.key, self.base), *self.modifiers)

    def plan(self, setup: Setup, visit: Visit, parts: States, briefs: States) -> Plan:
        """The plan of one training visit, from the client's states and what it was sent."""
        plan = self.base.plan(setup, visit, parts[self.key], briefs.get(self.key, {}))
        for key, modifier in self.modifiers:
            plan = modifier.change(setup, visit, parts[key], briefs.get(key, {}), plan)
        if plan.stop is not None and plan.stop.layer not in self._watched:
            raise _unwatched(plan.stop.layer, (self.base, *(modifier for _, modifier in self.modifiers)))
        return plan

    @cached_property
    def _watched(self) -> frozenset[str]:
        return frozenset(self.base.watches).union(*(modifier.watches for _, modifier in self.modifiers))


def _unwatched(layer: str, policies: tuple[OfWork, ...]) -> UserError:
    named = " and ".join(policy.label() for policy in policies)
    return UserError(
        f"a plan of {named} that stops by the representation {layer!r}, which none of them watches",
        expected="a representation that the policy names in its property `watches`",
        why="what is watched is looked for in the model before the first round, and engines are chosen by it",
        fix=f"give the policy that stops a property `watches` with {layer!r} in what it returns",
    )


@final
@dataclass(frozen=True)
class Releasing:
    """When the server steps, and on what: a release policy, and modifiers under their keys."""

    base: ReleasePolicy
    modifiers: tuple[tuple[str, ReleaseModifier], ...]

    def ready(self, context: ReleaseContext) -> bool:
        """Whether to release now. Where nobody is under way, waiting would be for ever."""
        if context.in_flight == 0:
            return True
        complete = self.base.complete(context) or any(m.complete(context) for _, m in self.modifiers)
        return complete and not any(m.waits(context) for _, m in self.modifiers)

    @cached_property
    def due(self) -> float | None:
        """Seconds after which the server wants to be woken in every version; None for never."""
        return min((m.due for _, m in self.modifiers if m.due is not None), default=None)

    @cached_property
    def patience(self) -> float | None:
        """Seconds after which a visit without an answer is given up; None for never."""
        return min((m.patience for _, m in self.modifiers if m.patience is not None), default=None)

    @cached_property
    def surplus(self) -> float:
        """How many times its size a cohort is invited."""
        found = 1.0
        for _, modifier in self.modifiers:
            found *= modifier.surplus
        return found

    @cached_property
    def least(self) -> int:
        """Updates without which a version is skipped."""
        return max((m.least for _, m in self.modifiers), default=1)

    @cached_property
    def forgets(self) -> bool:
        """Whether visits that are under way when a version is released are given up, unless places are refilled."""
        return any(m.forgets(self.base.carries_over) for _, m in self.modifiers)

    @cached_property
    def needing_all(self) -> ReleaseModifier | None:
        """What looks at all updates of a version at once, so that they cannot be summed as they come."""
        return next((m for _, m in self.modifiers if m.needs_all), None)

    @cached_property
    def sets_all(self) -> bool:
        """Whether a modifier says what becomes of coordinates that nobody holds."""
        return any(m.sets_all for _, m in self.modifiers)

    @cached_property
    def private(self) -> bool:
        """Whether what single clients say is hidden."""
        return any(m.private for _, m in self.modifiers)

    @cached_property
    def hiding(self) -> tuple[str, ReleaseModifier] | None:
        """What hides single clients, with its key; None where nobody is hidden."""
        return next(((key, m) for key, m in self.modifiers if m.private), None)

    def mean(self, setup: Setup, parts: States, release: Release) -> tuple[States, Tensor, bool]:
        """What the server is to step on, before other mechanisms change it: the middle of the shortened updates [P].

        Before it the states of all parts, the same object where nothing changed; after it whether each coordinate is
        the middle of those that hold it, and not of all.
        """
        for key, modifier in self.modifiers:
            if (hidden := modifier.private_mean(setup, parts[key], release)) is not None:
                state, mean = hidden
                return {**parts, key: state}, mean, False
        if release.total is not None:
            return parts, (release.total / release.counted).to(release.weights.dtype), False
        scales: Sequence[float] = release.scales
        for key, modifier in self.modifiers:
            if (limits := modifier.limits(parts[key], release)) is not None:
                scales = [a * b for a, b in zip(scales, limits, strict=True)]
        updates = release.updates()
        for _, modifier in self.modifiers if release.portions else ():
            held = masks_of(release.portions, len(release.weights))
            if (middle := modifier.centre_of_held(updates, release.shares, scales, held)) is not None:
                return parts, middle, True
        for _, modifier in self.modifiers:
            if (middle := modifier.centre(updates, release.shares, scales)) is not None:
                return parts, middle, False
        return parts, weighted_sum(updates, [a * b for a, b in zip(release.shares, scales, strict=True)]), False

    def spread(self, parts: States, release: Release) -> float:
        """The standard deviation of the noise on each weight of the mean of a release."""
        return next((m.spread(parts[key], release) for key, m in self.modifiers if m.private), 0.0)

    @property
    def longest(self) -> float | None:
        """How long an update is at most where its client shortens it itself; None where nobody does."""
        return min((m.longest for _, m in self.modifiers if m.longest is not None), default=None)

    def shortens(self, update: Tensor) -> float:
        """By what a client makes its own update [P] shorter for the sum."""
        return math.prod(modifier.shortens(update) for _, modifier in self.modifiers)

    def stride(self, release: Release) -> float:
        """Which share of its way the server goes with a release."""
        return math.prod(m.stride(release) for _, m in self.modifiers)

    def holds_back(self, setup: Setup, parts: Mapping[str, State]) -> str:
        """Why the server keeps its weights although a version is complete; empty if it steps."""
        return next((why for key, m in self.modifiers if (why := m.holds_back(setup, parts[key]))), "")
