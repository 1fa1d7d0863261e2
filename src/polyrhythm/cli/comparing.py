"""`polyrhythm compare`, and what `polyrhythm show` says about a goal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from polyrhythm.base.metric_names import in_words
from polyrhythm.cli.output import Screen, print_json
from polyrhythm.cli.run_display import runs_of
from polyrhythm.figures import check_file
from polyrhythm.results import Comparison, tables
from polyrhythm.runs.costs import COSTS, On, amount, seconds

_GOAL = [COSTS[name] for name in ("virtual_seconds", "joules", "bytes", "client_updates")]


def compare_runs(
    references: Sequence[str],
    out: str,
    *,
    to: float | None,
    at_time: float | None,
    on: On,
    output: Path | None,
    as_json: bool,
) -> None:
    """One row per method: runs that differ in their seed alone are one."""
    if output is not None:
        check_file(output)
    screen = Screen(stderr=as_json)
    found = Comparison(runs_of(references, out, screen))
    results = found.results(to=to, at_time=at_time, on=on)
    for note in found.notes:
        screen.note(note)
    if output is not None:
        found.plot.costs(on=on, save=output)
    if as_json:
        for entry in results:
            print_json({**entry, "headline": found.headline, "on": on})
        return
    screen.print_table(_table(results, found.headline, at_time))
    if to is not None:
        screen.print(f"what it took to {in_words(found.headline)} {to:g}", highlight=False)
        screen.print_table(_goals(results))
    dagger = f"; {tables.UNFINISHED}" if any(found.unfinished.values()) else ""
    screen.print(f"mean ± sample sd over seeds; {on} set{dagger}", style="dim", highlight=False)
    if output is not None:
        screen.print(f"drawn into {output}", highlight=False)


def goal_lines(goal: float, found: Mapping[str, Any] | None) -> dict[str, str]:
    """What a goal took one run, in words."""
    label = f"to {goal:g}"
    if found is None:
        return {label: "not reached"}
    cohort = "" if found["mean_cohort"] is None else f", {found['mean_cohort']:.3g} clients each"
    return {
        label: f"{found['rounds']:,} rounds{cohort}; {seconds(found['virtual_seconds'])}; "
        f"{amount(found['joules'], 'J')}, {amount(found['bytes'], 'B')}; {found['client_updates']:,} client updates"
    }


def _table(results: Sequence[Mapping[str, Any]], headline: str, at_time: float | None) -> Table:
    table = _empty("method", "seeds", f"final {in_words(headline)}")
    if at_time is not None:
        table.add_column(f"after {seconds(at_time)}", justify="right")
    for entry in results:
        cells = [
            tables.marked(entry["method"], entry["unfinished"]),
            str(entry["n"]),
            tables.scores(entry["final_accuracy"], entry["n"]),
        ]
        if at_time is not None:
            cells.append(tables.scores(entry["accuracy_at_time"], entry["n"]))
        table.add_row(*map(Text, cells))
    return table


def _goals(results: Sequence[Mapping[str, Any]]) -> Table:
    scales = {c.name: tables.scale([entry[c.name]["mean"] for entry in results], c.unit) for c in _GOAL}
    heads = [tables.headed(c.words, c.unit, scales[c.name]).replace(" ", "\n") for c in _GOAL]  # for narrow screens
    table = _empty("method", "reached", *heads)
    for entry in results:
        cells = [tables.marked(entry["method"], entry["unfinished"]), f"{entry['reached']}/{entry['n']}"]
        cells += [_pair(entry[c.name], scales[c.name]) for c in _GOAL]
        table.add_row(*map(Text, cells))
    return table


def _empty(first: str, *others: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(first, overflow="fold")
    for name in others:
        table.add_column(name, justify="right", overflow="fold")
    return table


def _pair(spread: Mapping[str, Any], scale: float) -> str:
    if spread["mean"] is None:
        return "–"
    sd = "" if spread["sd"] is None else f"±{spread['sd'] / scale:.2g}"
    return f"{spread['mean'] / scale:.3g}{sd}"
