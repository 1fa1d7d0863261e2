"""Evidence: what recipes gave in the settings that were tried, and which of these are like an experiment."""

from __future__ import annotations

import functools
import importlib.resources
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

from polyrhythm.runs.paired import Difference, corrected, difference
from polyrhythm.studies.advice.situation import Situation

Resource = Literal["updates", "time", "bytes", "joules"]
RESOURCES: Mapping[Resource, str] = {
    "updates": "client_updates",
    "time": "virtual_seconds",
    "bytes": "bytes",
    "joules": "joules",
}
"""What a budget may be of, and what that is called in a run's costs."""
FIRST = "FedAvg"
FAR = 1.5
"""Distance beyond which a setting is not like the experiment."""
FILE = "evidence.json"


@final
@dataclass(frozen=True, kw_only=True)
class Tried:
    """What all recipes gave in one setting at one budget.

    Args:
        name: of the data and how they are dealt.
        fleet: of the devices.
        situation: of it.
        rates: the rate that was chosen for each recipe.
        scores: accuracy of each recipe, by seed.
    """

    name: str
    fleet: str
    situation: Situation
    rates: Mapping[str, Mapping[str, float]]
    scores: Mapping[str, tuple[float, ...]]

    @property
    def words(self) -> str:
        """The setting in words."""
        return f"{self.name}; {self.fleet}; {self.situation.rounds:.0f} rounds"

    @functools.cached_property
    def gains(self) -> Mapping[str, float]:
        """Of each recipe over FedAvg, added up over seeds."""
        first = math.fsum(self.scores[FIRST])
        return {row: math.fsum(values) - first for row, values in self.scores.items()}


@final
@dataclass(frozen=True, kw_only=True)
class Standing:
    """How a recipe stands in the settings that count for an experiment.

    Args:
        recipe: what people call it.
        gain: over FedAvg, in shares of 1: seed by seed, the mean over the settings, with its 95 % interval, and
            Holm's correction for all recipes.
        best: the share of settings and seeds in which it is the highest, weighted alike.
    """

    recipe: str
    gain: Difference
    best: float


@final
@dataclass(frozen=True, kw_only=True)
class Rule:
    """Rule: how much the settings of the evidence count for an experiment, by their distance from it.

    A setting at distance d counts exp(-(d / width)^2 / 2), among the `many` nearest; and all of them together count
    `overall` beside that, evenly, so that far from everything the mean over all settings is left.

    Args:
        many: nearest settings that count; None for all.
        width: distance within which a setting is like the experiment; None for those that count alike.
        overall: what all settings count, in settings at distance 0.
    """

    many: int | None = None
    width: float | None = None
    overall: float = 0.0

    def weights(self, distances: Sequence[float]) -> list[float]:
        """The share of each setting, of all from the nearest on; together 1."""
        known = len(distances)
        among = [n < (self.many or known) for n in range(known)]
        # from the nearest on, so that far away not all of them are 0
        near = [
            float(counts) if self.width is None else counts * math.exp(-0.5 * (distance / self.width) ** 2)
            for counts, distance in zip(among, distances, strict=True)
        ]
        if not self.overall and not sum(near):
            near[0] = 1.0
        found = [self.overall / known + one for one in near]
        return [one / math.fsum(found) for one in found]


RULE = Rule(width=0.3, overall=0.3)
"""How advice is made: of `judging.RULES` what loses least where the place and the fleet of a setting are left out."""


@functools.cache
def evidence() -> Mapping[str, Any]:
    """The table that comes with the package: when and by what it was made, and its settings."""
    text = importlib.resources.files(__package__).joinpath(FILE).read_text(encoding="utf-8")
    found: Mapping[str, Any] = json.loads(text)
    return found


def tried(table: Mapping[str, Any], resource: Resource, *, held_out: bool = False) -> list[Tried]:
    """All settings of a table at all budgets of a kind.

    Args:
        table: as `polyrhythm.studies.programs.pays` makes it.
        resource: what is spent.
        held_out: those by which advice is judged, instead of those from which it is made.
    """
    return [
        Tried(
            name=one["name"],
            fleet=one["fleet"],
            situation=Situation(**one["situation"], rounds=level["rounds"], met=level["met"]),
            rates=one["rates"],
            scores={
                row: tuple(v / 1e4 for v in values)
                for row, values in zip(table["recipes"], level["scores"], strict=True)
            },
        )
        for one in table["settings"]
        if one["held_out"] == held_out
        for level in one["levels"][resource]
    ]


def nearest(of: Situation, known: Sequence[Tried]) -> list[tuple[float, Tried]]:
    """All settings with their distances from a situation, the nearest first, each at its nearest budget."""
    found: dict[tuple[str, str], tuple[float, Tried]] = {}
    for one in known:
        distance, key = of.distance(one.situation), (one.name, one.fleet)
        if key not in found or distance < found[key][0]:
            found[key] = (distance, one)
    return sorted(found.values(), key=lambda pair: pair[0])


def ordered(some: Sequence[Tried], weights: Sequence[float]) -> list[str]:
    """All recipes in the order of `standings`, without what is shown beside it."""
    gains = dict.fromkeys(some[0].scores, 0.0)
    for one, share in zip(some, weights, strict=True):
        if share:
            for row, gain in one.gains.items():
                gains[row] += share * gain
    return sorted(gains, key=lambda row: (-gains[row], row != FIRST))


def standings(some: Sequence[Tried], weights: Sequence[float] | None = None) -> list[Standing]:
    """All recipes by their mean gain over FedAvg in some settings, the highest first.

    Seeds are the same in all settings: a seed's gain is the mean over the settings, so that seeds are independent.

    Args:
        some: the settings.
        weights: the share of each in the mean, together 1; None for the same of all.
    """
    shares = weights or [1.0 / len(some)] * len(some)
    rows, seeds = list(some[0].scores), range(len(some[0].scores[FIRST]))
    counting = [(one, share) for one, share in zip(some, shares, strict=True) if share]
    gains = {
        row: [math.fsum(share * (one.scores[row][s] - one.scores[FIRST][s]) for one, share in counting) for s in seeds]
        for row in rows
    }
    found = corrected({row: difference(of) for row, of in gains.items() if row != FIRST})
    found[FIRST] = Difference(mean=0.0)
    best = dict.fromkeys(rows, 0.0)
    for one, share in counting:
        for s in seeds:
            highest = max(of[s] for of in one.scores.values())
            for row in rows:
                best[row] += share / len(seeds) * (one.scores[row][s] >= highest)
    order = sorted(rows, key=lambda row: (-(found[row].mean or 0.0), row != FIRST))
    return [Standing(recipe=row, gain=found[row], best=best[row]) for row in order]
