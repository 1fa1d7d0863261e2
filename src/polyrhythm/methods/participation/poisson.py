"""Every client by a coin of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, final

from annotated_types import Gt, Le

from polyrhythm.base.errors import UserError
from polyrhythm.base.messages import State
from polyrhythm.base.settings import Count
from polyrhythm.base.streams import kept_from_others
from polyrhythm.methods.mechanism import Setup
from polyrhythm.methods.participation.base import InvitationContext, Invitations, Participation, to_train
from polyrhythm.methods.privacy.effects import drawing


@final
@dataclass(frozen=True, kw_only=True)
class Poisson(Participation):
    """Tosses a coin for every client in every version, so that who else takes part says nothing of anybody.

    A client is invited if its uniform number of the version is below the rate, and it is there and free: so a larger
    rate draws a superset, and a client that is away is never made up for by another. A version may have any number of
    clients; one without any is over at once, and changes nothing, unless noise is added to it (`dp`). No state; O(N)
    for a version.

    Neutral situation: rate = 1 is everybody, as `uniform` with a cohort of all.

    Args:
        rate: q, the chance of each client, over 0 and at most 1; None for cohort / N.
        cohort: clients per version on average; None for that of the participation it takes the place of, unless there
            is a rate.

    Raises:
        UserError: a rate and a cohort.

    Reference: Abadi et al., "Deep Learning with Differential Privacy", CCS 2016, section 3.1, for clients as in
    McMahan, Ramage, Talwar, Zhang, ICLR 2018, Algorithm 1.
    """

    rate: Annotated[float, Gt(0), Le(1)] | None = None
    cohort: Count | None = None

    privacy = drawing("poisson", "tosses a coin for every client in every version")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rate is not None and self.cohort is not None:
            raise UserError(
                f"poisson: rate = {self.rate:g} and cohort = {self.cohort}",
                expected="one of them",
                why="a rate is a cohort's share of all clients, and both say how many a version has on average",
                fix="leave cohort out",
            )

    @property
    def may_be_empty(self) -> bool:
        return True

    def chance(self, holders: int) -> float:
        return min(1.0, self.size / max(1, holders)) if self.rate is None else self.rate

    def over(self, earlier: Participation) -> Participation:
        return self if self.rate is not None else super().over(earlier)

    def resized(self, size: int) -> Participation:
        return self if self.rate is not None else super().resized(size)

    def invite(self, setup: Setup, state: State, context: InvitationContext) -> tuple[State, Invitations]:
        rate = self.chance(setup.holders)
        # By client, whoever is there.
        draw = kept_from_others(setup.seed, setup.secret, "cohort", "coins", context.version)
        coins = draw.random(setup.population)
        drawn = tuple(c for c in context.roster.all() if coins[c] < rate and c not in context.busy)
        return state, to_train(context.roster.present(drawn))
