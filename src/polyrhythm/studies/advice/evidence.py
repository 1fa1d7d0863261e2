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
NEAREST = 1
"""Settings that advice goes by: of 1, 2, 3 and 5 what loses least with places, fleets or both left out."""
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


@final
@dataclass(frozen=True, kw_only=True)
class Standing:
    """How a recipe stands in the settings nearest to an experiment.

    Args:
        recipe: what people call it.
        gain: over FedAvg, in shares of 1: seed by seed, over the mean of the settings, with its 95 % interval, and
            Holm's correction for all recipes.
        best: the share of settings and seeds in which it is the highest.
    """

    recipe: str
    gain: Difference
    best: float


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
            situation=Situation(**one["situation"], rounds=level["rounds"]),
            rates=one["rates"],
            scores={row: tuple(v / 1e4 for v in values) for row, values in level["scores"].items()},
        )
        for one in table["settings"]
        if one["held_out"] == held_out
        for level in one["levels"][resource]
    ]


def nearest(of: Situation, known: Sequence[Tried], many: int = NEAREST) -> list[tuple[float, Tried]]:
    """The settings nearest to a situation with their distances, each at its nearest budget."""
    found: dict[tuple[str, str], tuple[float, Tried]] = {}
    for one in known:
        distance, key = of.distance(one.situation), (one.name, one.fleet)
        if key not in found or distance < found[key][0]:
            found[key] = (distance, one)
    return sorted(found.values(), key=lambda pair: pair[0])[:many]


def standings(near: Sequence[Tried]) -> list[Standing]:
    """All recipes by their mean gain over FedAvg in some settings, the highest first.

    Seeds are the same in all settings: a seed's gain is the mean over the settings, so that seeds are independent.
    """
    rows, seeds = list(near[0].scores), range(len(near[0].scores[FIRST]))
    gains = {
        row: [math.fsum(one.scores[row][s] - one.scores[FIRST][s] for one in near) / len(near) for s in seeds]
        for row in rows
    }
    found = corrected({row: difference(of) for row, of in gains.items() if row != FIRST})
    found[FIRST] = Difference(mean=0.0)
    cells = [(one, s) for one in near for s in seeds]
    wins = {
        row: sum(one.scores[row][s] >= max(of[s] for of in one.scores.values()) for one, s in cells) for row in rows
    }
    order = sorted(rows, key=lambda row: (-(found[row].mean or 0.0), row != FIRST))
    return [Standing(recipe=row, gain=found[row], best=wins[row] / len(cells)) for row in order]
