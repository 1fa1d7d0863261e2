"""The tables that answer: how good, how much better, at what cost, and what did it take?"""

from __future__ import annotations

import math
from collections.abc import Mapping

from polyrhythm.base.faults import WORDS
from polyrhythm.base.metric_names import in_words, title_of
from polyrhythm.results import tables
from polyrhythm.results.tables import NONE, Table
from polyrhythm.results.verdict import Best, best
from polyrhythm.runs.comparison import ComparedRuns, spread
from polyrhythm.runs.costs import COSTS, GOALS, TOTALS, Cost, On, reached
from polyrhythm.runs.paired import Difference
from polyrhythm.runs.recorded import RecordedRun
from polyrhythm.runs.result_rule import READINGS, Reading, chosen_by

_SETS: Mapping[On, str] = {"test": "test set", "validation": "validation set"}
_READINGS = ("final", "best", "last 20")
_STEP = 0.05  # between goals that are chosen here
_COSTS = tuple(COSTS[name] for name in ("rounds", *(cost.name for cost in TOTALS), "wall_seconds"))
_GOAL = tuple(COSTS[name] for name in GOALS if name != "mean_cohort")


def accuracy(found: ComparedRuns[RecordedRun], on: On, level: float = 0.95) -> Table:
    """Every reading of every method; the best one stands out where it is shown to be better than the second."""
    lines = []
    for name in found.methods:
        of = [found.read(name, reading, on) for reading in READINGS]
        n = len({run.seed for run in found.methods[name]})
        cells = [tables.scores(spread(list(values.values())), n) for values in of]
        lines.append((tables.marked(name, found.unfinished[name]), str(n), *cells))
    first = {reading: best(found, reading, on, level) for reading in READINGS}
    names = list(found.methods)
    return Table(
        name="results",
        caption=f"{title_of(found.headline)} on the {_SETS[on]}, {over_seeds(found)}. {meant(found, on)}"
        + _best_in_words(first)
        + _unfinished(found),
        head=(row_head(found), "seeds", *_READINGS),
        rows=tables.rows(lines),
        marked=frozenset(
            (names.index(one.method), 2 + place)
            for place, one in enumerate(first.values())
            if one is not None and one.shown
        ),
    )


def row_head(found: ComparedRuns[RecordedRun]) -> str:
    """What a row is of."""
    return "method" if found.group_by is None else found.group_by


def _best_in_words(first: Mapping[Reading, Best | None]) -> str:
    """What is bold, and of which reading nothing is."""
    several = {reading: one for reading, one in first.items() if one is not None and one.second is not None}
    if not several:
        return ""
    names = dict(zip(READINGS, _READINGS, strict=True))
    open_ = [
        f"{names[reading]} ({one.method} before {one.second})" for reading, one in several.items() if not one.shown
    ]
    told = " Bold: the highest mean, where the interval of its paired difference to the second leaves out 0"
    return f"{told}; that is not shown of {', '.join(open_)}." if open_ else f"{told}."


def over_seeds(found: ComparedRuns[RecordedRun]) -> str:
    """What a mean is over, in words."""
    single = all(len(members) == 1 for members in found.methods.values())
    return "one run each" if single else "mean ± sample sd over seeds"


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
    by = {r: found.differences(baseline=base, reading=r, on=on, level=level) for r in READINGS}
    if len(found.methods) == 1:
        return None
    finals = by["final"]
    lines = [
        (
            tables.marked(name, found.unfinished[name]),
            str(final.n),
            tables.gain(final),
            tables.chance(final.p),
            tables.chance(final.holm),
            *(tables.gain(by[reading][name]) for reading in READINGS[1:]),
        )
        for name, final in finals.items()
    ]
    none = any(one.mean is not None and one.holds_zero is None for one in finals.values())
    return Table(
        name="differences",
        caption=f"Difference in {in_words(found.headline)} to {base}, paired by seed: mean and {level * 100:g} % "
        f"confidence interval (Student's t), on the {_SETS[on]}. n is the number of pairs; an interval is for one "
        f"comparison. {tables.HOLDS_ZERO} It holds 0: neither is shown to be better. {corrected_words(finals)}"
        + (" A single pair, or pairs that all differ by the same, have no interval." if none else ""),
        head=(row_head(found), "n", "final", "p", "p (Holm)", "best", "last 20"),
        rows=tables.rows(lines),
        marked=frozenset((place, 4) for place, one in enumerate(finals.values()) if one.shown),
    )


def corrected_words(found: Mapping[str, Difference]) -> str:
    """Which tests were made, and how they were corrected."""
    tests = sum(one.p is not None for one in found.values())
    if not tests:
        return "No test could be made."
    if tests == 1:
        return "p: of the paired t-test of the final; as it is the only one, Holm's correction leaves it."
    return f"p: of the paired t-test of the final; Holm: corrected for the {tests} tests of this column."


def settings(found: ComparedRuns[RecordedRun]) -> Table | None:
    """The settings in which methods differ; None if they differ in none."""
    lines = [(key, *(NONE if v is None else v for v in values.values())) for key, values in found.settings.items()]
    marked = {(i, j) for i, row in enumerate(lines) for j in range(2, len(row)) if row[j] != row[1]}
    return (
        Table(
            name="settings",
            caption=f"What differs between the {'methods' if found.group_by is None else 'rows'}. "
            "Marked: other than in the first.",
            head=("setting", *found.methods),
            rows=tables.rows(lines),
            marked=frozenset(marked),
            numbers=False,
            code=True,
        )
        if lines
        else None
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
        name: {
            cost.name: found.over_seeds(name, [None if t is None else t[cost.name] for t in ts])  # type: ignore[literal-required]
            for cost in _GOAL
        }
        for name, ts in by.items()
    }
    units = {c.name: tables.scale([s[c.name]["mean"] for s in spreads.values()], c.unit) for c in _GOAL}
    lines = [
        (
            tables.marked(name, found.unfinished[name]),
            f"{sum(t is not None for t in by[name])} of {len(by[name])}",
            *(tables.amounts(of[cost.name], units[cost.name]) for cost in _GOAL),
        )
        for name, of in spreads.items()
    ]
    why = "" if asked is not None else " The goal is the largest multiple of 0.05 that every run reached."
    return Table(
        name="goal",
        caption=f"What it took until the {in_words(found.headline)} on the {_SETS[on]} was {target:g} for the first "
        f"time, {over_seeds(found)}, of the runs that reached it.{why}{_unfinished(found)}",
        head=(row_head(found), "reached", *(tables.headed(c.words, c.unit, units[c.name]) for c in _GOAL)),
        rows=tables.rows(lines),
    )


def costs(found: ComparedRuns[RecordedRun]) -> Table:
    """What every method cost in all."""
    lines = [line for cost in _COSTS if (line := _cost(found, cost)) is not None]
    return Table(
        name="costs",
        caption=f"What the runs cost in all, {over_seeds(found)}.{_unfinished(found)}",
        head=("cost", *_heads(found)),
        rows=tables.rows(lines),
    )


def _heads(found: ComparedRuns[RecordedRun]) -> list[str]:
    return [tables.marked(name, found.unfinished[name]) for name in found.methods]


def _unfinished(found: ComparedRuns[RecordedRun]) -> str:
    return f" {tables.UNFINISHED}" if any(found.unfinished.values()) else ""


def _cost(found: ComparedRuns[RecordedRun], cost: Cost) -> tuple[str, ...] | None:
    """A line of it; None where no run says anything."""
    spreads = [
        found.over_seeds(name, [cost.of(rows[-1]) if rows else None for rows in runs])
        for name, runs in found.versions.items()
    ]
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
            caption=f"What went wrong on visits, over all seeds of a method.{_unfinished(found)}",
            head=("fault", *_heads(found)),
            rows=tables.rows(lines),
        )
        if lines
        else None
    )
