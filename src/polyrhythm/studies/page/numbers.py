"""The tables of a page: what was tried, ours beside the paper, at equal costs, and what it cost."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from polyrhythm.base.metric_names import NAN_OUTPUTS, in_words
from polyrhythm.results import tables
from polyrhythm.results.tables import NONE, Table, signed
from polyrhythm.runs.comparison import spread
from polyrhythm.runs.costs import Row
from polyrhythm.runs.paired import mean_and_spread
from polyrhythm.studies.claims import BUDGETS, MEASURES, Number
from polyrhythm.studies.names import named
from polyrhythm.studies.page import measures
from polyrhythm.studies.page.judging import Key, Results, agreement, ordered, survived
from polyrhythm.studies.running.trials import Record, Trial

HEADS: Mapping[str, str] = {
    "client_updates": "client updates",
    "samples": "samples",
    "flops": "FLOPs",
    "bytes": "traffic",
    "virtual_seconds": "virtual time",
    "joules": "energy",
}
"""Costs that rows can have spent as much of, as they are headed."""
# A cost's name in a version's record, its words, its unit.
_COSTS = (
    ("version", "rounds", ""),
    ("client_updates", "client updates", ""),
    ("samples", "samples", ""),
    ("flops", "computing", "FLOPs"),
    ("bytes_up", "traffic up", "B"),
    ("bytes_down", "traffic down", "B"),
    ("time", "virtual time", "s"),
    ("joules", "energy", "J"),
    ("wall", "time here", "s"),
)

_OF_A_FLEET = ("time", "joules")


def trials(record: Record, arm: str) -> Table:
    """What was tried for an arm, the best first."""
    tried = sorted(record.of(arm), key=_rank)
    keys = list(dict.fromkeys(key for trial in tried for key in trial.setting))
    lines = [(str(t.number), *(_value(t.setting.get(key)) for key in keys), _scores(t), t.state) for t in tried]
    return Table(
        name=f"trials {arm}".strip(),
        caption=f"Tried{f' for {arm}' if arm else ''}, the best first: mean ± sample standard deviation over seeds, "
        "on the validation data.",
        head=("trial", *keys, f"validation {in_words(record.headline)}", "state"),
        rows=tables.rows(lines),
    )


def _rank(trial: Trial) -> tuple[int, float, int]:
    order = ("finished", "pruned", "failed", "waiting").index(trial.state)
    return order, -(trial.score if trial.score is not None else -math.inf), trial.number


def _scores(trial: Trial) -> str:
    return NONE if trial.score is None else mean_sd([*trial.scores.values()] or [trial.score])


def mean_sd(values: Sequence[float]) -> str:
    """Mean and sample standard deviation, as far as there is one."""
    mean, sd = mean_and_spread(values)
    return f"{mean:.4f}" if sd is None else f"{mean:.4f} ± {sd:.4f}"


def _value(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def beside(results: Results) -> Table:
    """Ours beside the paper's, a line for each cell."""
    of = results.plan.of
    what = f"{results.headlines[:1].upper()}{results.headlines[1:]}, {MEASURES[of.measure]}, in percent"
    if not any(key in of.numbers for key in _keys(results)):
        return _ours(results, what)
    rounds = of.spread == "rounds of one run"
    unsaid = of.spread == "none" and any(number.sd is not None for number in of.numbers.values())
    lines = []
    for key in _keys(results):
        paper, values = of.numbers.get(key), results.values(key)
        gap = NONE
        if paper is not None and values:
            gap = signed(math.fsum(values.values()) / len(values) - paper.mean, digits=2)
        judged = agreement(paper, values) if paper is not None else ""
        jitter = (_jitter(results, key),) if rounds else ()
        lines.append((named(*key), _paper(paper), _result(results, key), *jitter, gap, judged or NONE))
    orders = "; ".join(
        f"{column or 'rows'}: {agreed} of {many}"
        for column in results.plan.columns
        for agreed, many in [ordered(results, column)]
        if many
    )
    return Table(
        name="beside",
        caption=f"{what}. The paper's ± is {_whose('not said' if unsaid else of.spread)}; ours is the sample standard "
        f"deviation over seeds ({_seeds(results)}). Within spread: no further apart than both together."
        + (f" Pairs of rows in the paper's order: {orders}." if orders else ""),
        head=("", "paper", "ours", *(("ours, over rounds",) if rounds else ()), "difference", "verdict"),
        rows=tables.rows(lines),
    )


def _result(results: Results, key: Key) -> str:
    """The result of a cell, with the number of its seeds where some have none."""
    values = results.values(key)
    return percent(values) + survived(results, key[1], len(values))


def _jitter(results: Results, key: Key) -> str:
    """How much a cell's runs move over their last rounds, as the paper's ± has it."""
    versions, runs = results.versions.get(key, {}), results.runs.get(key, {})
    found = [measures.jitter(rows, runs[seed].headline) for seed, rows in versions.items()]
    known = [value for value in found if value is not None]
    return f"± {100 * math.fsum(known) / len(known):.2f}" if known else NONE


def _ours(results: Results, what: str) -> Table:
    """Rows by columns, where the paper's text has no numbers."""
    plan = results.plan
    lines = [(row, *(_result(results, (row, column)) for column in plan.columns)) for row in plan.rows]
    return Table(
        name="ours",
        caption=f"{what}: mean ± sample standard deviation over seeds ({_seeds(results)})."
        + (" The paper shows curves, without numbers in its text." if plan.of.of_paper else ""),
        head=("", *(column or "ours" for column in plan.columns)),
        rows=tables.rows(lines),
    )


def equal_costs(results: Results) -> Table | None:
    """Every cell's result when it had spent what the cheapest of its column spent; None for a single row."""
    plan = results.plan
    if len(plan.rows) == 1:
        return None
    lines, rows_of = [], {c: [row for row in plan.rows if results.runs.get((row, c))] for c in plan.columns}
    all_budgets = {c: {cost: results.least(rows, c, cost) for cost in BUDGETS} for c, rows in rows_of.items()}
    spent = [cost for cost in BUDGETS if any(any(of[cost].values()) for of in all_budgets.values())]
    for column, rows in rows_of.items():
        budgets = all_budgets[column]
        for row in rows:
            found = [percent(results.at_budget((row, column), cost, budgets[cost])) for cost in spent]
            lines.append((named(row, column), _result(results, (row, column)), *found))
    return Table(
        name="equal",
        caption="The same result at equal rounds, and where each row had spent as much as the cheapest row of its "
        "column had in all.",
        head=("", "equal rounds", *(f"equal {HEADS[cost]}" for cost in spent)),
        rows=tables.rows(lines),
    )


def other_metrics(results: Results) -> Table | None:
    """What the task measures beside the headline metric and the loss; None if that is nothing.

    On the common test, and as the mean over clients' own tests: there of the global model, or of clients' own where
    nobody exchanges anything.
    """
    last = {
        key: [next((row for row in reversed(rows) if row["test"] and row["version"] > 0), None) for rows in of.values()]
        for key, of in results.versions.items()
    }
    ends = [row for rows in last.values() for row in rows if row]
    names = dict.fromkeys(name for row in ends for name in row["test"])
    told = {"loss", NAN_OUTPUTS, *(run.headline for runs in results.runs.values() for run in runs.values())}
    wanted = [name for name in names if name not in told]
    found: list[tuple[str, list[str]]] = []
    for name in wanted:
        for where, key_of, words in (("test", name, "common test"), ("clients", f"{name}_mean", "own tests, mean")):
            cells = [
                _spread_of([(row[where] or {}).get(key_of) for row in last.get(key, []) if row])
                for key in _keys(results)
            ]
            if any(cell != NONE for cell in cells):
                found.append((f"{in_words(name)}, {words}", cells))
    lines = [(named(*key), *(cells[i] for _, cells in found)) for i, key in enumerate(_keys(results))]
    lines = [line for line in lines if any(cell != NONE for cell in line[1:])]
    if not found:
        return None
    return Table(
        name="metrics",
        caption="What else the task measures, of the last evaluated version: mean ± sample standard deviation over "
        "seeds. On clients' own tests it is that of the global model, whether or not they use it, and of their own "
        "where each trains alone.",
        head=("", *(head for head, _ in found)),
        rows=tables.rows(lines),
    )


def _spread_of(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return NONE
    mean, sd = mean_and_spread(known)
    return f"{mean:.4g}" if sd is None else f"{mean:.4g} ± {sd:.2g}"


def costs(results: Results) -> Table:
    """What every cell cost, over its seeds."""
    last = {key: [rows[-1] for rows in of.values() if rows] for key, of in results.versions.items()}
    found: list[tuple[str, list[str]]] = []
    for cost, label, unit in _COSTS:
        spreads = {key: spread([row[cost] for row in rows]) for key, rows in last.items()}
        if all(s["mean"] is None for s in spreads.values()) or (cost in _OF_A_FLEET and not _any(spreads)):
            continue
        divisor = tables.scale([s["mean"] for s in spreads.values()], unit)
        cells = [tables.amounts(spreads[key], divisor) if key in spreads else NONE for key in _keys(results)]
        found.append((tables.headed(label, unit, divisor), cells))
    lines = [(named(*key), *(cells[i] for _, cells in found)) for i, key in enumerate(_keys(results))]
    return Table(
        name="costs",
        caption="What a run of each cell cost: mean ± sample standard deviation over seeds.",
        head=("", *(head for head, _ in found)),
        rows=tables.rows(lines),
    )


def _any(spreads: Mapping[Key, Mapping[str, Any]]) -> bool:
    return any(one["mean"] for one in spreads.values())


def percent(values: Mapping[int, float]) -> str:
    """A result over seeds."""
    if not values:
        return NONE
    mean, sd = mean_and_spread(list(values.values()))
    return signed(mean, digits=2, plus=False) + ("" if sd is None else f" ± {sd:.2f}")


def wall(versions: Mapping[Key, Mapping[int, Sequence[Row]]]) -> float:
    """Seconds that all runs took here."""
    return math.fsum(rows[-1]["wall"] for of in versions.values() for rows in of.values() if rows)


def _keys(results: Results) -> list[Key]:
    """All cells, row by row in each column."""
    return [(cell.row, cell.column) for cell in results.plan.cells]


def _paper(number: Number | None) -> str:
    if number is None:
        return NONE
    return f"{number.mean:.2f}" + ("" if number.sd is None else f" ± {number.sd:.2f}")


def _whose(what: str) -> str:
    return {
        "seeds": "over seeds",
        "rounds of one run": "over the rounds of one run, not over seeds",
        "not said": "of a kind that it does not say",
        "none": "absent",
    }[what]


def _seeds(results: Results) -> str:
    seeds = sorted({seed for runs in results.runs.values() for seed in runs})
    return ", ".join(map(str, seeds)) or "none"
