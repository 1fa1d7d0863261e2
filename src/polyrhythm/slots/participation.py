"""Who is invited now?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

from polyrhythm.settings import Count
from polyrhythm.slots.mechanism import Mechanism, Setup
from polyrhythm.streams import stream
from polyrhythm.wires import Roster, State

DEFAULT_COHORT = 10


@dataclass(frozen=True, kw_only=True)
class Participation(Mechanism):
    """Base: invites nobody. Called once per version, and by rolling releases whenever a place is free."""

    def invite(
        self, setup: Setup, state: State, version: int, roster: Roster, busy: frozenset[int]
    ) -> tuple[State, tuple[int, ...]]:
        """The clients to invite on `version`, distinct and none of them in `busy` (never two visits in flight)."""
        return state, ()

    @property
    def size(self) -> int:
        """How many clients one version invites at most."""
        raise NotImplementedError


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

    def invite(
        self, setup: Setup, state: State, version: int, roster: Roster, busy: frozenset[int]
    ) -> tuple[State, tuple[int, ...]]:
        return state, roster.draw(self.size, stream(setup.seed, "cohort", version), busy)

    @property
    def size(self) -> int:
        return self.cohort or DEFAULT_COHORT

    def over(self, earlier: Mechanism) -> Mechanism:
        return _inherit(self, earlier)


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

    def server_start(self, setup: Setup) -> State:
        return {"sweep": 0, "rest": []}

    def invite(
        self, setup: Setup, state: State, version: int, roster: Roster, busy: frozenset[int]
    ) -> tuple[State, tuple[int, ...]]:
        sweep, rest = state["sweep"], state["rest"]
        if not rest:
            everybody = roster.all()
            order = stream(setup.seed, "cohort", "sweep", sweep).permutation(len(everybody))
            rest = [everybody[i] for i in order]
            sweep += 1
        present = roster.present(tuple(c for c in rest if c not in busy))[: self.size]
        invited = frozenset(present)
        return {"sweep": sweep, "rest": [c for c in rest if c not in invited]}, present

    @property
    def size(self) -> int:
        return self.cohort or DEFAULT_COHORT

    def over(self, earlier: Mechanism) -> Mechanism:
        return _inherit(self, earlier)


def _inherit(part: Uniform | Sweep, earlier: Mechanism) -> Mechanism:
    if part.cohort is not None or not isinstance(earlier, Participation):
        return part
    return replace(part, cohort=earlier.size)
