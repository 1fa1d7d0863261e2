"""How good advice is: what it loses to the best recipe in settings that it was not made from, beside fixed choices."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

from polyrhythm.runs.paired import Difference, difference
from polyrhythm.studies.advice.evidence import (
    RESOURCES,
    RULE,
    Resource,
    Rule,
    Tried,
    nearest,
    ordered,
    tried,
)

ADVISED, FIRST_THREE = "the first of the advice", "the best of its first three"
Left = Literal["places", "fleets", "both"]
_NEAREST = {f"{many} nearest": Rule(many=many) for many in (1, 2, 3, 5)}
_WIDTHS = {f"all, by distance within {width:g}": Rule(width=width) for width in (0.3, 0.5, 0.7, 1.0, 1.5)}
_OVERALL = {
    f"{name}, and their mean as {overall:g}": Rule(width=of.width, overall=overall)
    for name, of in _WIDTHS.items()
    for overall in (0.1, 0.3, 1.0)
}
RULES: Mapping[str, Rule] = {**_NEAREST, **_WIDTHS, **_OVERALL, "all alike": Rule()}
"""The rules of which the one that loses least was chosen, with a setting's place and fleet left out."""
FIXED = ("FedAvg", "FedAdam", "FedBuff", "SCAFFOLD", "FedAvg by sweeps")
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


def cases(table: Mapping[str, Any], rule: Rule = RULE) -> list[Case]:
    """Every held-out setting of a table with every budget, advised on by the other settings."""
    return [
        _advised(resource, one, nearest(one.situation, known), rule)
        for resource in RESOURCES
        for known in [tried(table, resource)]
        for one in tried(table, resource, held_out=True)
    ]


def left_out(table: Mapping[str, Any], rule: Rule = RULE, what: Left = "places") -> list[Case]:
    """Every setting of the evidence with every budget, advised on without those that are like it.

    Args:
        table: the evidence.
        rule: how settings count.
        what: is left out: "places", those that are dealt alike; "fleets", those on the same devices; or "both".
    """
    return by_rule(table, {"": rule}, what)[""]


def by_rule(table: Mapping[str, Any], rules: Mapping[str, Rule], what: Left) -> dict[str, list[Case]]:
    """The same for several rules, by name."""
    found: dict[str, list[Case]] = {name: [] for name in rules}
    for resource in RESOURCES:
        every = tried(table, resource)
        for one in every:
            if others := [other for other in every if _apart(one, other, what)]:
                near = nearest(one.situation, others)
                for name, rule in rules.items():
                    found[name].append(_advised(resource, one, near, rule))
    return found


def _apart(one: Tried, other: Tried, what: Left) -> bool:
    places, fleets = one.name != other.name, one.fleet != other.fleet
    return (places or what == "fleets") and (fleets or what == "places")


def _advised(resource: Resource, one: Tried, near: Sequence[tuple[float, Tried]], rule: Rule) -> Case:
    distances, settings = zip(*near, strict=True)
    order = tuple(ordered(settings, rule.weights(distances)))
    return Case(resource=resource, of=one, distance=distances[0], order=order)


def by_place(some: Sequence[Case], number: Callable[[Case], float], level: float = 0.95) -> Difference:
    """The mean of a number over places, each the mean of its fleets and budgets, with its interval over places."""
    found: dict[str, list[float]] = {}
    for case in some:
        found.setdefault(case.of.name, []).append(number(case))
    return difference([math.fsum(values) / len(values) for values in found.values()], level)
