"""How good advice is: what it loses to the best recipe in settings that it was not made from, beside fixed choices."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

from polyrhythm.runs.paired import Difference, difference
from polyrhythm.studies.advice.evidence import NEAREST, RESOURCES, Resource, Tried, nearest, standings, tried

ADVISED, FIRST_THREE = "the first of the advice", "the best of its first three"
Left = Literal["places", "fleets", "both"]
FIXED = ("FedAvg", "FedAdam", "FedBuff", "SCAFFOLD")
"""What it is compared with: always the same recipe."""


@final
@dataclass(frozen=True, kw_only=True)
class Case:
    """Case: a held-out setting with a budget, and what was advised for it.

    Args:
        resource: of the budget.
        of: the setting, with what all recipes gave.
        distance: to the nearest setting of the evidence.
        order: recipes as they were advised.
    """

    resource: Resource
    of: Tried
    distance: float
    order: tuple[str, ...]

    @property
    def best(self) -> str:
        """The recipe with the highest mean over seeds."""
        return max(self.of.scores, key=self.mean)

    def mean(self, recipe: str) -> float:
        """What a recipe gave, mean over seeds."""
        values = self.of.scores[recipe]
        return math.fsum(values) / len(values)

    def given(self, policy: str) -> float:
        """What somebody gets who follows a policy: the advice, or always the same recipe."""
        if policy == ADVISED:
            return self.mean(self.order[0])
        return max(map(self.mean, self.order[:3])) if policy == FIRST_THREE else self.mean(policy)

    def regret(self, policy: str) -> float:
        """What is lost to the best recipe."""
        return self.mean(self.best) - self.given(policy)


def cases(table: Mapping[str, Any], many: int = NEAREST) -> list[Case]:
    """Every held-out setting of a table with every budget, advised on by the other settings."""
    return [
        _advised(resource, one, tried(table, resource), many)
        for resource in RESOURCES
        for one in tried(table, resource, held_out=True)
    ]


def left_out(table: Mapping[str, Any], many: int = NEAREST, what: Left = "places") -> list[Case]:
    """Every setting of the evidence with every budget, advised on without those that are like it.

    Args:
        table: the evidence.
        many: settings that the advice goes by.
        what: is left out: "places", those that are dealt alike; "fleets", those on the same devices; or "both".
    """
    return [
        _advised(resource, one, others, many)
        for resource in RESOURCES
        for every in [tried(table, resource)]
        for one in every
        if (others := [other for other in every if _apart(one, other, what)])
    ]


def _apart(one: Tried, other: Tried, what: Left) -> bool:
    places, fleets = one.name != other.name, one.fleet != other.fleet
    return (places or what == "fleets") and (fleets or what == "places")


def _advised(resource: Resource, one: Tried, known: Sequence[Tried], many: int) -> Case:
    near = nearest(one.situation, known, many)
    order = tuple(standing.recipe for standing in standings([of for _, of in near]))
    return Case(resource=resource, of=one, distance=near[0][0], order=order)


def by_place(some: Sequence[Case], number: Callable[[Case], float]) -> Difference:
    """The mean of a number over places, each the mean of its fleets and budgets, with its interval over places."""
    found: dict[str, list[float]] = {}
    for case in some:
        found.setdefault(case.of.name, []).append(number(case))
    return difference([math.fsum(values) / len(values) for values in found.values()])
