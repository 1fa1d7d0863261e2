"""What pays when: methods by how unlike clients' data are, by devices, by cohort, and by what may be spent.

The runs of a setting are a study of their own, with a fleet in each column; rates are chosen in the first column by the
validation data, and hold in the others, which change no local step.
"""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

from polyrhythm import __version__
from polyrhythm.config.expressions import parse_call
from polyrhythm.experiments.prepared import what_and_how
from polyrhythm.results import Run
from polyrhythm.runs.costs import COSTS, Row, score
from polyrhythm.studies.advice.advising import METHODS
from polyrhythm.studies.advice.evidence import FILE, FIRST, RESOURCES
from polyrhythm.studies.advice.judging import FIXED
from polyrhythm.studies.advice.page import told
from polyrhythm.studies.advice.situation import situation
from polyrhythm.studies.definition import Scale, Search, Study
from polyrhythm.studies.files.maker import Maker
from polyrhythm.studies.page.findings import Findings
from polyrhythm.studies.planning import planned
from polyrhythm.studies.running.executing import carry_out
from polyrhythm.studies.space import Setting

LONGER: Mapping[str, int] = {"FedBuff": 3, "FADAS": 3, "HeteroFL": 2, "CCFL": 2}
"""How many times as many versions those make that spend less on one, so that they reach the others' budgets."""

RATES: Mapping[str, Any] = {"method.lr": (0.03, 0.1, 0.3)}
OWN_RATES: Mapping[str, Mapping[str, Any]] = {
    row: {"method.lr": (0.1,), "method.server_lr": rates}
    for row, rates in {
        "FedAdam": (0.01, 0.03, 0.1),
        "FADAS": (0.01, 0.03, 0.1),
        "CC-FedAdam": (0.01, 0.03, 0.1),
    }.items()
}
"""What is tried for each row: three settings."""

_LINKS = "links(down=1e6, up=2.5e5, latency=0.05)"
_ENERGY = "energy(joules_per_flop=1e-8)"
FLEETS: Mapping[str, str] = {
    "alike": f"uniform(seconds_per_sample=0.05) | {_LINKS} | {_ENERGY}",
    "five tiers": f"tiers(slowdown=[1, 2, 4, 8, 16], seconds_per_sample=0.05) | {_LINKS} | {_ENERGY}",
    "phones": f"phones | {_ENERGY}",
}
OTHER_FLEETS: Mapping[str, str] = {
    "three tiers": f"tiers(slowdown=[1, 3, 10], seconds_per_sample=0.05) | {_LINKS} | {_ENERGY}",
    "lognormal": f"lognormal(median=0.05, sigma=1) | {_LINKS} | {_ENERGY}",
    "phones, half there": f"phones | markov(mean_on=3600, mean_off=3600) | {_ENERGY}",
}
SEEDS = (0, 1, 2)
TUNED_ON = (100,)


@final
@dataclass(frozen=True, kw_only=True)
class Place:
    """Place: data, how they are dealt, and a cohort; what one study is of.

    Args:
        name: of it.
        data, partition, model, local: as an experiment file has them.
        clients, cohort, rounds, every: clients in all, in a round, rounds of FedAvg, and rounds between evaluations.
        fleets: the columns, by name.
        held_out: whether advice is judged by it, instead of made from it.
    """

    name: str
    partition: str
    cohort: int
    rounds: int
    every: int = 1
    data: str = "digits"
    model: str = "mlp(hidden=[32])"
    local: str = "epochs=2, batch=10, lr=0.1"
    clients: int = 30
    fleets: Mapping[str, str]
    held_out: bool = False

    def study(self, methods: Sequence[str], seeds: Sequence[int]) -> Study:
        """The study of it: all methods, with rates that were tried over half as many rounds."""
        shared = {
            "data": self.data,
            "clients": self.clients,
            "partition": self.partition,
            "model": self.model,
            "validation": 0.15,
            "evaluation": {"every": self.every},
        }
        texts = {row: METHODS[row].format(cohort=self.cohort, local=self.local) for row in methods}
        rows = {row: {"method": text, "rounds": self.rounds * LONGER.get(row, 1)} for row, text in texts.items()}
        search = Search(
            kind="grid",
            space=RATES,
            rows={row: space for row, space in OWN_RATES.items() if row in rows},
            seeds=TUNED_ON,
            by="final",
            column=next(iter(self.fleets)),
            over={"rounds": max(1, self.rounds // 2)},
        )
        columns: dict[str, Setting] = {name: {"fleet": text} for name, text in self.fleets.items()}
        return Study(
            name="pays", rows=rows, make=Maker(values=shared), columns=columns, seeds=tuple(seeds), search=search
        )


_SKEWS = {
    "iid": "iid",
    "dirichlet 0.5": "dirichlet(alpha=0.5, min_size=4, repair=true)",
    "dirichlet 0.1": "dirichlet(alpha=0.1, min_size=4, repair=true)",
}
_COHORTS: Mapping[int, Mapping[str, Any]] = {3: {"rounds": 60, "every": 3}, 12: {"rounds": 20}}
EVIDENCE: tuple[Place, ...] = tuple(
    Place(name=f"digits, {skew}, {cohort} of 30", partition=partition, cohort=cohort, fleets=FLEETS, **of)
    for skew, partition in _SKEWS.items()
    for cohort, of in _COHORTS.items()
)
HELD_OUT: tuple[Place, ...] = (
    Place(
        name="digits, dirichlet 0.3, 6 of 30",
        partition="dirichlet(alpha=0.3, min_size=4, repair=true)",
        cohort=6,
        rounds=32,
        every=2,
        fleets={key: OTHER_FLEETS[key] for key in ("three tiers", "phones, half there")},
        held_out=True,
    ),
    Place(
        name="digits, two classes each, 6 of 40",
        partition="shards(per_client=2)",
        clients=40,
        cohort=6,
        rounds=32,
        every=2,
        fleets={key: OTHER_FLEETS[key] for key in ("lognormal", "phones, half there")},
        held_out=True,
    ),
)


def carried_out(places: Sequence[Place], runs: Path, methods: Sequence[str], seeds: Sequence[int]) -> None:
    """Makes what is not there yet of the runs of some places, each in a folder of its own."""
    for place in places:
        carry_out(planned(place.study(methods, seeds)), folder_of(place, runs), 1)


def folder_of(place: Place, runs: Path) -> Path:
    """Where its runs lie."""
    return runs / place.name.replace(", ", "-").replace(" ", "_")


def gathered(places: Sequence[Place], runs: Path, methods: Sequence[str], seeds: Sequence[int]) -> dict[str, Any]:
    """The table of all settings, as `evidence.json` is: what each recipe had reached at each budget, by seed.

    A budget is what FedAvg had spent, with the same seed, after a quarter, half and all of its rounds. What a recipe
    has reached is the test accuracy of the version that is best on the validation data by then. Those seeds count that
    are there in all cells: of the places of the evidence, and of those that are held out.
    """
    found = {place.name: _finished(place, runs) for place in places}
    settings, counted = list[dict[str, Any]](), dict[str, list[int]]()
    for held_out in (False, True):
        some = [place for place in places if place.held_out == held_out]
        cells = [(place, row, fleet) for place in some for fleet in place.fleets for row in methods]
        common = [s for s in seeds if all((row, fleet, s) in found[place.name] for place, row, fleet in cells)]
        counted["held out" if held_out else "evidence"] = common if some else []
        settings += [_setting(p, fleet, found[p.name], methods, common) for p in some for fleet in p.fleets]
    made = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "polyrhythm": __version__,
        "command": "polyrhythm study heterogeneity/pays --scale paper",
    }
    return {"made": made, "seeds": counted, "settings": settings}


def _finished(place: Place, runs: Path) -> dict[tuple[str, str, int], Run]:
    """The finished runs that are compared, by recipe, fleet and seed."""
    found = {}
    for run in Run.all(folder_of(place, runs), archived=True):
        parts = run.first_name.split("/")
        if run.status == "finished" and len(parts) == 4 and parts[-1] == "best":
            found[parts[1], parts[2], run.seed] = run
    return found


def _setting(
    place: Place, fleet: str, found: Mapping[tuple[str, str, int], Run], methods: Sequence[str], seeds: Sequence[int]
) -> dict[str, Any]:
    make = planned(place.study(methods, seeds)).cell(FIRST, fleet).make
    of = [situation(what_and_how(make({}, seed))[0], place.cohort, 1) for seed in seeds]
    means = {key: _mean([getattr(one, key) for one in of]) for key in ("skew", "sizes", "speeds", "there", "cohort")}
    rows = {key: run.versions for key, run in found.items() if key[1] == fleet and key[2] in seeds}
    levels: dict[str, list[dict[str, Any]]] = {resource: [] for resource in RESOURCES}
    for resource, cost in RESOURCES.items():
        for rounds in (place.rounds // 4, place.rounds // 2, place.rounds):
            spent = {s: COSTS[cost].of(_at_version(rows[FIRST, fleet, s], rounds)) for s in seeds}
            scores = {row: [_reached(rows[row, fleet, s], cost, spent[s]) for s in seeds] for row in methods}
            levels[resource].append({"rounds": rounds, "scores": scores})
    return {
        "name": place.name,
        "fleet": fleet,
        "held_out": place.held_out,
        "situation": {key: round(value, 4) for key, value in means.items()},
        "rates": {row: _rates(found[row, fleet, seeds[0]]) for row in methods},
        "levels": levels,
    }


def _rates(run: Run) -> dict[str, float]:
    """What was chosen for a recipe, by key."""
    given = parse_call(str(run.config["method"])).named
    return {f"method.{key}": given[key] for key in ("lr", "server_lr") if key in given}


def _at_version(rows: Sequence[Row], version: int) -> Row:
    return next(row for row in rows if row["version"] == version)


def _reached(rows: Sequence[Row], cost: str, budget: float) -> int:
    """The test accuracy, in ten-thousandths, of the version within a budget that is best on the validation data."""
    known = [row for row in rows if row["test"] and COSTS[cost].of(row) <= budget * (1 + 1e-9)]
    best = max(known, key=lambda row: (score(row, "accuracy", "validation") or 0.0, -row["version"]))
    return round(1e4 * (score(best, "accuracy") or 0.0))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def findings(scale: Scale, folder: Path, runs: Path) -> Findings:
    """What pays, setting by setting; and how good the advice is that is made from it, in settings that are held out.

    Beside the runs it writes `evidence.json`, the table that `polyrhythm advise` goes by.

    Args:
        scale: how much of it.
        folder: of the page.
        runs: where runs are kept.
    """
    places, methods, seeds = SCALED[scale]
    carried_out(places, runs, methods, seeds)
    table = gathered(places, runs, methods, seeds)
    (runs / FILE).write_text(as_text(table), encoding="utf-8")
    return told(table)


def as_text(table: Mapping[str, Any]) -> str:
    """The table as a file has it."""
    return json.dumps(table, separators=(",", ":")) + "\n"


_SMOKE = (
    replace(EVIDENCE[1], rounds=4, fleets={"five tiers": FLEETS["five tiers"]}),
    replace(HELD_OUT[0], rounds=4, fleets={"three tiers": OTHER_FLEETS["three tiers"]}),
)
SCALED: Mapping[Scale, tuple[Sequence[Place], Sequence[str], Sequence[int]]] = {
    "paper": ((*EVIDENCE, *HELD_OUT), tuple(METHODS), SEEDS),
    "smoke": (_SMOKE, FIXED, (0,)),
}
"""Places, recipes and seeds at each scale."""
