"""The tables that answer: how good, how much better, at what cost, and what did it take?"""

from __future__ import annotations

import math
from collections.abc import Mapping

from polyrhythm.base.faults import WORDS
from polyrhythm.base.metric_names import in_words, title_of
from polyrhythm.results import tables
from polyrhythm.results.tables import Table
from polyrhythm.runs.comparison import ComparedRuns, spread
from polyrhythm.runs.costs import COSTS, GOALS, TOTALS, Cost, On, reached
from polyrhythm.runs.recorded import RecordedRun
from polyrhythm.runs.result_rule import READINGS, chosen_by

_SETS: Mapping[On, str] = {"test": "test set", "validation": "validation set"}
_STEP = 0.05  # between goals that are chosen here
_COSTS = tuple(COSTS[name] for name in ("rounds", *(cost.name for cost in TOTALS), "wall_seconds"))
_GOAL = tuple(COSTS[name] for name in GOALS if name != "mean_cohort")


def accuracy(found: ComparedRuns[RecordedRun], on: On) -> Table:
    """Every reading of every method."""
    lines = []
    for name, members in found.methods.items():
        cells = [tables.scores(spread(list(found.read(name, r, on).values())), len(members)) for r in READINGS]
        lines.append((tables.marked(name, found.unfinished[name]), str(len(members)), *cells))
    return Table(
        name="results",
        caption=f"{title_of(found.headline)} on the {_SETS[on]}, {over_seeds(found)}. {meant(found, on)}"
        + (f" {tables.UNFINISHED}" if any(found.unfinished.values()) else ""),
        head=("method", "seeds", "final", "best", "last 20"),
        rows=tables.rows(lines),
    )


def over_seeds(found: ComparedRuns[RecordedRun]) -> str:
    """What a mean is over, in words."""
    return "one run each" if all(len(m) == 1 for m in found.methods.values()) else "mean ± sample sd over seeds"


def meant(found: ComparedRuns[RecordedRun], on: On) -> str:
    """What the three readings are, and whether the best one can be believed."""
    judges = {chosen_by(rows, found.headline) for runs in found.versions.values() for rows in runs}
    best = " or ".join(f"by the {_SETS[judge]}" for judge in ("validation", "test") if judge in judges)
    told = f"Final: the last evaluated version. Best: the version chosen {best}"
    if on in judges:
        told += ", which flatters it, as the choice and the number are of one set"
    return f"{told}. Last 20: the mean over the last 20 evaluated versions."


def differences(found: ComparedRuns[RecordedRun], base: str, on: On, level: float) -> Table | None:
    """What the other methods give more than one of them; None if there are no others."""
    by = {r: found.differences(to=base, reading=r, on=on, level=level) for r in READINGS}
    if len(found.methods) == 1:
        return None
    lines = [
        (
            tables.marked(name, found.unfinished[name]),
            str(by["final"][name].n),
            *(tables.gain(by[reading][name]) for reading in READINGS),
        )
        for name in by["final"]
    ]
    single = any(difference.n == 1 for difference in by["final"].values())
    return Table(
        name="differences",
        caption=f"Difference in {in_words(found.headline)} to {base}, paired by seed: mean and {level * 100:g} % "
        "confidence interval (Student's t), on the "
        + f"{_SETS[on]}. n is the number of pairs; intervals are for one comparison each."
        + (" A single pair has no interval." if single else ""),
        head=("method", "n", "final", "best", "last 20"),
        rows=tables.rows(lines),
    )


def goal(found: ComparedRuns[RecordedRun], on: On) -> float | None:
    """The largest multiple of 0.05 that every run reached and no initial model had; None if there is none."""
    best, first = [], []
    for runs in found.versions.values():
        for rows in runs:
            known = [(row["version"], row[on][found.headline]) for row in rows if found.headline in (row[on] or {})]
            known = [(version, value) for version, value in known if value is not None and math.isfinite(value)]
            best.append(max((value for _, value in known), default=-math.inf))
            first += [value for version, value in known if version == 0]
    least = min(best)
    if not math.isfinite(least):
        return None
    chosen = round(math.floor(least / _STEP + 1e-9) * _STEP, 10)
    return chosen if chosen > max(first, default=-math.inf) else None


def took(found: ComparedRuns[RecordedRun], on: On, asked: float | None) -> Table | None:
    """What it took to a goal, the one that was asked for or one that is chosen here; None without any."""
    target = goal(found, on) if asked is None else asked
    if target is None:
        return None
    by = {name: [reached(rows, found.headline, target, on) for rows in runs] for name, runs in found.versions.items()}
    spreads = {
        name: {cost.name: spread([t[cost.name] for t in ts if t is not None]) for cost in _GOAL}  # type: ignore[literal-required]
        for name, ts in by.items()
    }
    units = {c.name: tables.scale([s[c.name]["mean"] for s in spreads.values()], c.unit) for c in _GOAL}
    lines = [
        (
            name,
            f"{sum(t is not None for t in by[name])} of {len(by[name])}",
            *(tables.amounts(of[cost.name], units[cost.name]) for cost in _GOAL),
        )
        for name, of in spreads.items()
    ]
    why = "" if asked is not None else " The goal is the largest multiple of 0.05 that every run reached."
    return Table(
        name="goal",
        caption=f"What it took until the {in_words(found.headline)} on the {_SETS[on]} was {target:g} for the first "
        f"time, {over_seeds(found)}, of the runs that reached it.{why}",
        head=("method", "reached", *(tables.headed(c.words, c.unit, units[c.name]) for c in _GOAL)),
        rows=tables.rows(lines),
    )


def costs(found: ComparedRuns[RecordedRun]) -> Table:
    """What every method cost in all."""
    lines = [line for cost in _COSTS if (line := _cost(found, cost)) is not None]
    return Table(
        name="costs",
        caption=f"What the runs cost in all, {over_seeds(found)}.",
        head=("cost", *found.methods),
        rows=tables.rows(lines),
    )


def _cost(found: ComparedRuns[RecordedRun], cost: Cost) -> tuple[str, ...] | None:
    """A line of it; None where no run says anything."""
    spreads = [spread([cost.of(rows[-1]) for rows in runs if rows]) for runs in found.versions.values()]
    means = [s["mean"] for s in spreads]
    if all(mean is None for mean in means) or (cost.words.startswith("of ") and not any(means)):
        return None
    unit = "%" if cost.percent else cost.unit
    divisor = tables.scale(means, unit)
    cells = [tables.amounts(s, divisor, 100.0 if cost.percent else 1.0) for s in spreads]
    return (tables.headed(cost.words, unit, divisor), *cells)


def faults(found: ComparedRuns[RecordedRun]) -> Table | None:
    """What went wrong, by kind; None if nothing did."""
    ends = {name: [rows[-1] for rows in runs if rows] for name, runs in found.versions.items()}
    kinds = [k for k in WORDS if any(row["faults"].get(k) for rows in ends.values() for row in rows)]
    lines = [
        (WORDS[kind], *(f"{sum(row['faults'].get(kind, 0) for row in rows):,}" for rows in ends.values()))
        for kind in kinds
    ]
    return (
        Table(
            name="faults",
            caption="What went wrong on visits, over all seeds of a method.",
            head=("fault", *found.methods),
            rows=tables.rows(lines),
        )
        if lines
        else None
    )
