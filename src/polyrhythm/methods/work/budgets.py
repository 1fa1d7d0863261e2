"""How much each client can afford: the share p_i of its visits in which it trains.

Budgets belong to the fleet; a mechanism that skips work reads them from there unless it is given its own.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Annotated, Literal, final

from annotated_types import Gt, Le

from polyrhythm.base.errors import UserError
from polyrhythm.base.settings import Count, Fraction, Settings
from polyrhythm.base.streams import stream

Share = Annotated[float, Gt(0), Le(1)]

EPSILON = 1e-9
"""A share of a count that misses a whole number by less is that number: 0.29 * 100 is 29, and 0.07 * 100 is 7."""


@dataclass(frozen=True, kw_only=True)
class Budgets(Settings):
    """Base."""

    def share(self, client: int, population: int, seed: int) -> float:
        """p_i of one client, above 0 and at most 1."""
        raise NotImplementedError


@final
@dataclass(frozen=True, kw_only=True)
class Levels(Budgets):
    """p_i = (1/2) ** floor(levels * i / N): equal groups of clients with 1, 1/2, 1/4, ... of full work.

    Args:
        levels: groups (the paper's beta); 4 gives a mean of 0.469.
        order: "paper" gives the first clients most; "code" the last ones, as the authors' program does; "random" deals
            the places by the experiment's seed.

    Reference: Zhang et al., "CCFL: Computationally Customized Federated Learning", section 6.1.
    """

    levels: Count = 4
    order: Literal["paper", "code", "random"] = "paper"

    def share(self, client: int, population: int, seed: int) -> float:
        place = client
        if self.order == "code":
            place = population - 1 - client
        elif self.order == "random":
            place = _places(population, seed)[client]
        return float(0.5 ** (self.levels * place // population))


@final
@dataclass(frozen=True, kw_only=True)
class SlowShare(Budgets):
    """A share of the clients trains in one visit of `period`, all others in every one.

    Args:
        share_slow: of the clients that are slow (the paper's r), the first ones.
        period: visits for one that trains (the paper's W).

    Reference: CCFL, section 6.3 and figure 4.
    """

    share_slow: Fraction = 0.5
    period: Count = 2

    def share(self, client: int, population: int, seed: int) -> float:
        return 1 / self.period if client < part_of(population, self.share_slow) else 1.0


@final
@dataclass(frozen=True, kw_only=True)
class Listed(Budgets):
    """One share per client, given as a list; repeated if there are more clients.

    Args:
        shares: above 0 and at most 1.
    """

    shares: tuple[Share, ...] = (1.0,)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.shares:
            raise UserError(
                "listed: shares=[]",
                expected="at least one share",
                why="the list is repeated over the clients, and nothing repeats to nothing",
                fix="shares=[1, 0.5] for every second client at half of its visits",
            )

    def share(self, client: int, population: int, seed: int) -> float:
        return float(self.shares[client % len(self.shares)])


def part_of(many: int, share: float) -> int:
    """A share of many things, rounded down."""
    return math.floor(share * many + EPSILON)


@functools.lru_cache(maxsize=4)
def _places(population: int, seed: int) -> tuple[int, ...]:
    """Every client's place in one random order of all clients."""
    return tuple(int(i) for i in stream(seed, "work", "budgets").permutation(population))
