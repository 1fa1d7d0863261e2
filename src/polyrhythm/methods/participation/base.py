"""Who is invited now, and on which version?"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from torch import Tensor

from polyrhythm.base.frozen import replace_unchecked
from polyrhythm.base.messages import Kind, Model, Report, Roster, State
from polyrhythm.base.settings import Count
from polyrhythm.base.streams import FewIntegers, Integers, stream
from polyrhythm.base.vectors import Buffers
from polyrhythm.methods.mechanism import DEFAULT_COHORT, Mechanism, Modifier, Setup
from polyrhythm.methods.privacy.effects import drawing
from polyrhythm.methods.work.budgets import EPSILON


@final
@dataclass(frozen=True, kw_only=True)
class InvitationContext:
    """What a participation may look at when it is asked for invitations.

    Args:
        version: the server's version.
        weights, buffers: of that version.
        roster: who is there.
        busy: clients that must not be invited: those with an assignment in flight, and those that rest.
        in_flight: training visits under way; they take up places of the cohort.
        count: the size of the cohort, decided by a modifier; None for the participation's own size.
        surplus: how many times the size of the cohort to invite, decided by the release policy.
        occasion: names this call's random draws: the version, or the dispatch number where places are filled one by
            one.
        now: seconds since the run began.
        caller: a client that has just asked for work, if that is why the participation is asked.
    """

    version: int
    weights: Tensor
    buffers: Buffers
    roster: Roster
    busy: Collection[int] = frozenset()
    in_flight: int = 0
    count: int | None = None
    surplus: float = 1.0
    occasion: tuple[int | str, ...] = ()
    now: float = 0.0
    caller: int | None = None

    def places(self, size: int) -> int:
        """How many to invite, for a policy whose own size is `size`."""
        wanted = size if self.count is None else self.count
        return max(0, math.ceil(wanted * self.surplus - EPSILON) - self.in_flight)

    def draws(self, setup: Setup) -> Integers:
        """What decides whom the roster draws now."""
        return FewIntegers(setup.seed, "cohort", *self.occasion) if self.occasion else self.stream(setup)

    def stream(self, setup: Setup, *names: int | str) -> np.random.Generator:
        """The generator that decides who is invited now, for policies that draw by other means than the roster.

        Args:
            setup: has the seed.
            names: tell apart several draws of one call.
        """
        return stream(setup.seed, "cohort", *(self.occasion or (self.version,)), *names)

    def there(self, clients: Iterable[int], count: int) -> tuple[int, ...]:
        """The first `count` of these clients that are present and not busy; the roster is asked in few questions."""
        free = (client for client in clients if client not in self.busy)
        found: list[int] = []
        asked = count
        while len(found) < count and (some := tuple(itertools.islice(free, asked))):
            found += self.roster.present(some)
            asked *= 2
        return tuple(found[:count])

    def samples(self, known: Mapping[int, int]) -> tuple[Mapping[int, int], tuple[int, ...]]:
        """The samples of every eligible client, and those that are there and not busy; O(population).

        Args:
            known: what this gave before. The roster is asked anew only where a client is there that is not in it.
        """
        everybody = self.roster.all()
        there = self.there(everybody, len(everybody))
        if not all(known.get(client) for client in there):
            known = dict(zip(everybody, self.roster.samples(), strict=True))
        return known, there


@final
class Either:
    """Whoever is in one of several groups."""

    def __init__(self, *groups: Container[int]) -> None:
        self._groups = groups

    def __contains__(self, client: object) -> bool:
        return any(client in group for group in self._groups)


@final
@dataclass(frozen=True, kw_only=True)
class Invitation:
    """One client to send work to.

    Args:
        client: whom.
        kind: "train", "measure", or "rehearse": to train, and tell no more than how long the update is.
        version: of `model`; None for the server's current version.
        model: an older version to work on; None for the current one.
        samples: how many of its samples a client measures on, drawn by chance; None for all.
    """

    client: int
    kind: Kind = "train"
    version: int | None = None
    model: Model | None = None
    samples: int | None = None


Invitations = tuple[Invitation, ...]
_TO_TRAIN = Invitation(client=-1)


def to_train(clients: Iterable[int]) -> Invitations:
    """These clients, to train on the current model."""
    return tuple([replace_unchecked(_TO_TRAIN, client=client) for client in clients])


@dataclass(frozen=True, kw_only=True)
class OfParticipation(Mechanism):
    """What a policy says of when clients are invited."""

    @property
    def fills_places(self) -> bool:
        """Whether a client whose visit has ended is replaced at once, whatever the version."""
        return False

    @property
    def one_at_a_time(self) -> bool:
        """Whether a client whose update waits for the next version is not invited before it."""
        return False


@dataclass(frozen=True, kw_only=True)
class Participation(OfParticipation):
    """Base. Asked after every step, and when clients it had measured have all answered; never while one has not.

    A participation that `fills_places` is asked too whenever a visit ends or a client asks for work. A setting `cohort`
    of None is that of the participation whose place it takes.
    """

    sees = ("measured",)

    @property
    def invites(self) -> bool:
        """Whether it calls clients, rather than only answering those that come by themselves."""
        return True

    def invite(self, setup: Setup, state: State, context: InvitationContext) -> tuple[State, Invitations]:
        """Distinct clients, none of them busy."""
        raise NotImplementedError

    def measured(self, setup: Setup, state: State, report: Report) -> State:
        """May learn from a visit that measured or rehearsed: `measures` of the task, or "norm"."""
        return state

    def weight(self, setup: Setup, state: State, client: int) -> float:
        """What an update of a client counts by why it was invited, where the recipe's shares are `as_invited`."""
        return 1.0

    def whole(self, setup: Setup, state: State) -> float | None:
        """What all weights make up, of which those heard are a part; None where those heard are all there is."""
        return None

    @property
    def of_rounds(self) -> bool:
        """Whether it must invite a whole cohort at a time, so that places cannot be filled one by one."""
        return False

    @property
    def may_be_empty(self) -> bool:
        """Whether a version to which it invites nobody is over at once, rather than waiting for somebody."""
        return False

    def chance(self, holders: int) -> float:
        """The chance of each client to be drawn for a version, where a coin of its own decides; else 1."""
        return 1.0

    @property
    def size(self) -> int:
        """How many clients one version invites, as far as the settings say."""
        return getattr(self, "cohort", None) or DEFAULT_COHORT

    def over(self, earlier: Participation) -> Participation:
        """This part in the place of an earlier one, whose cohort it takes over if it has none of its own."""
        return self.resized(earlier.size) if getattr(self, "cohort", 0) is None else self

    def resized(self, size: int) -> Participation:
        """The same with another cohort, if it has one."""
        return replace(self, cohort=size) if hasattr(self, "cohort") else self  # type: ignore[call-arg]


@dataclass(frozen=True, kw_only=True)
class ParticipationModifier(OfParticipation, Modifier):
    """Base of what changes how many are invited, or on which version they work."""

    @property
    def size(self) -> int | None:
        """How many clients one version invites; None for as many as the participation says."""
        return None

    @property
    def most(self) -> int | None:
        """How often a client is invited at most in the whole run; None for any number."""
        return None

    def piped(self, onto: Participation) -> tuple[Participation, ParticipationModifier]:
        """A participation, and this modifier, once it has been piped onto that one."""
        return onto, self

    def wanted(self, state: State) -> int | None:
        """How many clients the version under way is to have, where it decides that; else None."""
        return None

    def asked(self, setup: Setup, state: State, context: InvitationContext) -> InvitationContext:
        """What the participation is asked."""
        return context

    def invited(
        self, setup: Setup, state: State, context: InvitationContext, invitations: Invitations
    ) -> tuple[State, Invitations]:
        """What becomes of its answer."""
        return state, invitations


@final
@dataclass(frozen=True, kw_only=True)
class Uniform(Participation):
    """A fresh uniform draw without replacement in every version.

    The cohort is the first `cohort` of one permutation per version, so a smaller cohort is a prefix of a larger one
    and comparisons between sizes are paired. No state; O(cohort), whatever the population.

    Args:
        cohort: clients per version; None for that of the participation it takes the place of, 10 if there is none.

    Reference: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS
    2017, Algorithm 1.
    """

    cohort: Count | None = None

    privacy = drawing("fixed_size", "draws so many clients, without replacement")

    def invite(self, setup: Setup, state: State, context: InvitationContext) -> tuple[State, Invitations]:
        places = context.places(self.size)
        drawn = context.roster.draw(places, context.draws(setup), context.busy) if places else ()
        return state, to_train(drawn)


@final
@dataclass(frozen=True, kw_only=True)
class Sweep(Participation):
    """Passes over the whole population without replacement: everybody once, then a new shuffle.

    If the cohort does not divide the population, the last version of a sweep is smaller. Server state: the sweep's
    number and the clients still to come, O(population).

    Args:
        cohort: as for `Uniform`.

    Reference: the authors' code of "When do curricula work in federated learning?", ICCV 2023; every client takes
    part exactly once in population / cohort versions.
    """

    cohort: Count | None = None

    privacy = drawing("bounded", "everybody once in a pass")

    def server_start(self, setup: Setup) -> State:
        return {"sweep": 0, "rest": []}

    def invite(self, setup: Setup, state: State, context: InvitationContext) -> tuple[State, Invitations]:
        sweep, rest = state["sweep"], state["rest"]
        if not rest:
            everybody = context.roster.all()
            order = stream(setup.seed, "cohort", "sweep", sweep).permutation(len(everybody))
            rest = [everybody[i] for i in order]
            sweep += 1
        present = context.roster.present(tuple(c for c in rest if c not in context.busy))[: context.places(self.size)]
        invited = frozenset(present)
        left = [c for c in rest if c not in invited]
        return {"sweep": sweep, "rest": left}, to_train(present)
