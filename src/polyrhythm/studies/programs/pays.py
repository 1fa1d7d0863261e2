"""What pays when: methods by how unlike clients' data are, by devices, by cohort, and by what may be spent.

The runs of a setting are a study of their own, with a fleet in each column; rates are chosen in the first column by the
validation data, and hold in the others, which change no local step.
"""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from polyrhythm import __version__
from polyrhythm.config.expressions import Pipe
from polyrhythm.experiments.experiment import Experiment
from polyrhythm.experiments.prepared import what_and_how
from polyrhythm.fleet.survey import met
from polyrhythm.results import Run
from polyrhythm.runs.costs import COSTS, Row, score
from polyrhythm.studies.advice.advising import METHODS
from polyrhythm.studies.advice.evidence import FILE, FIRST, RESOURCES
from polyrhythm.studies.advice.judging import FIXED
from polyrhythm.studies.advice.page import told
from polyrhythm.studies.advice.places import EVIDENCE, FLEETS, HELD_OUT, OTHER_FLEETS, Place
from polyrhythm.studies.advice.situation import situation
from polyrhythm.studies.definition import Scale
from polyrhythm.studies.page.findings import Findings
from polyrhythm.studies.planning import planned
from polyrhythm.studies.running.executing import carry_out

SEEDS = (0, 1)


def carried_out(places: Sequence[Place], runs: Path, methods: Sequence[str], seeds: Sequence[int]) -> None:
    """Makes what is not there yet of the runs of some places, each in a folder of its own."""
    for place in places:
        carry_out(planned(place.study(methods, seeds_of(place, seeds))), folder_of(place, runs), 1)


def seeds_of(place: Place, seeds: Sequence[int]) -> Sequence[int]:
    """The seeds of a place: of those that are held out one, as more places count for more than more seeds."""
    return seeds[:1] if place.held_out else seeds


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
    return {"made": made, "seeds": counted, "recipes": list(methods), "settings": settings}


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
    experiments = {seed: what_and_how(make({}, seed))[0] for seed in seeds}
    of = [situation(one, place.cohort, 1, 1.0) for one in experiments.values()]
    means = {key: _mean([getattr(one, key) for one in of]) for key in ("skew", "sizes", "speeds", "there", "cohort")}
    rows = {key: run.versions for key, run in found.items() if key[1] == fleet and key[2] in seeds}
    levels: dict[str, list[dict[str, Any]]] = {resource: [] for resource in RESOURCES}
    for rounds in (place.rounds // 4, place.rounds // 2, place.rounds):
        at = {seed: _at_version(rows[FIRST, fleet, seed], rounds) for seed in seeds}
        seconds = {seed: COSTS["virtual_seconds"].of(row) for seed, row in at.items()}
        share = _mean([_met(one, seconds[seed]) for seed, one in experiments.items()])
        for resource, cost in RESOURCES.items():
            scores = [[_reached(rows[row, fleet, s], cost, COSTS[cost].of(at[s])) for s in seeds] for row in methods]
            levels[resource].append({"rounds": rounds, "met": round(share, 4), "scores": scores})
    return {
        "name": place.name,
        "fleet": fleet,
        "held_out": place.held_out,
        "situation": {key: round(value, 4) for key, value in means.items()},
        "rates": {row: _rates(found[row, fleet, seeds[0]]) for row in methods},
        "levels": levels,
    }


def _met(experiment: Experiment, seconds: float) -> float:
    of = experiment.federation
    return met(experiment.fleet, of.clients, experiment.seed, seconds, labels=of.label_shares())


def _rates(run: Run) -> dict[str, float]:
    """What was chosen for a recipe, by key."""
    given = Pipe.of(str(run.config["method"])).calls[0].named
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
