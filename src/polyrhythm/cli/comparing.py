"""`polyrhythm compare`, and what `polyrhythm show` says about a goal."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from polyrhythm.base.metric_names import in_words
from polyrhythm.cli.named_runs import runs_of
from polyrhythm.cli.output import Screen, print_json
from polyrhythm.figures import check_file
from polyrhythm.results import Comparison, fairness_tables, heard_tables, in_text, result_tables, tables
from polyrhythm.results.chart import takes_unicode
from polyrhythm.results.verdict import best, verdict
from polyrhythm.runs.costs import COSTS, On, amount, seconds

_GOAL = [COSTS[name] for name in ("virtual_seconds", "joules", "bytes", "client_updates")]


def compare_runs(
    references: Sequence[str],
    out: str,
    *,
    to: float | None,
    at_time: float | None,
    on: On,
    baseline: str | None,
    group_by: str | None,
    output: Path | None,
    all_settings: bool,
    as_json: bool,
) -> None:
    """One row per method: runs that differ in their seed alone are one."""
    if output is not None:
        check_file(output)
    screen = Screen(stderr=as_json)
    found = Comparison(runs_of(references, out, screen), group_by=group_by, baseline=baseline)
    results = found.results(to=to, at_time=at_time, on=on)
    for note in found.notes:
        screen.note(note)
    if output is not None:
        found.plot.costs(on=on, save=output)
    if as_json:
        _print_json(found, results, on)
        return
    drawn, scale = in_text.curves(found, on) if takes_unicode(sys.stdout) else ({}, "")
    table = _table(found, results, at_time, on, drawn)
    screen.print_table(table if screen.fits(table) else _table(found, results, at_time, on, {}))
    if to is not None:
        screen.print(f"what it took to {in_words(found.headline)} {to:g}", highlight=False)
        screen.print_table(_goals(found, results))
    if (apart := in_text.differences(found, on)) is not None:
        screen.print(
            f"{in_words(found.headline)} minus that of {found.baseline}, paired by seed", markup=False, highlight=False
        )
        screen.print_table(_as_rich(apart))
        screen.print(apart.caption, style="dim", markup=False, highlight=False)
    if (fair := fairness_tables.clients(found)) is not None:
        screen.print(fair.caption, markup=False, highlight=False)
        screen.print_table(_as_rich(fair))
    if (gained := fairness_tables.differences(found, found.client_baseline)) is not None:
        screen.print(gained.caption, markup=False, highlight=False)
        screen.print_table(_as_rich(gained))
    for bias in (heard_tables.heard(found), heard_tables.availability(found)):
        if bias is not None:
            screen.print(bias.caption, markup=False, highlight=False)
            screen.print_table(_as_rich(bias))
    _print_settings(screen, found, everything=all_settings)
    screen.print(verdict(found, on), markup=False, highlight=False)
    dagger = f"; {tables.UNFINISHED}" if any(found.unfinished.values()) else ""
    more = f"; {scale}" if scale else ""
    screen.print(f"mean ± sample sd over seeds; {on} set{more}{dagger}", style="dim", highlight=False)
    if output is not None:
        screen.print(f"drawn into {output}", highlight=False)


def _print_json(found: Comparison, results: Sequence[Mapping[str, Any]], on: On) -> None:
    gains, settings, of_clients = found.differences(on=on), found.settings, found.client_differences()
    bias = {entry.pop("method"): entry for entry in found.bias()}
    for entry in results:
        name = entry["method"]
        print_json(
            {
                **entry,
                "headline": found.headline,
                "on": on,
                "baseline": found.baseline,
                "group_by": found.group_by,
                "bias": bias[name],
                "difference": dataclasses.asdict(gains[name]) if name in gains else None,
                "client_baseline": found.client_baseline,
                "client_difference": dataclasses.asdict(of_clients[name]) if name in of_clients else None,
                "settings": {key: values[name] for key, values in settings.items()},
            }
        )


def _print_settings(screen: Screen, found: Comparison, *, everything: bool) -> None:
    """What differs between the methods: of each setting the values, and who has them; where that is long, a count."""
    lines = in_text.settings(found)
    if lines and not everything and len(lines) > in_text.FEW:
        screen.print(f"{len(lines)} settings differ; --settings lists them\n", style="dim", highlight=False)
    elif lines:
        screen.print("what differs", highlight=False)
        for line in lines:
            screen.print(Padding(Text(line), (0, 0, 0, 1)), highlight=False, soft_wrap=False)
        screen.print()


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


def _table(
    found: Comparison, results: Sequence[Mapping[str, Any]], at_time: float | None, on: On, drawn: Mapping[str, str]
) -> Table:
    table = _empty(result_tables.row_head(found), "seeds", f"final {in_words(found.headline)}")
    if at_time is not None:
        table.add_column(f"after {seconds(at_time)}", justify="right")
    if drawn:
        table.add_column("curve", no_wrap=True)
    first_of_all = best(found, "final", on)
    for entry in results:
        name = entry["method"]
        final = Text(tables.scores(entry["final_accuracy"], entry["n"]))
        if first_of_all is not None and first_of_all.shown and first_of_all.method == name:
            final.stylize("bold")
        cells = [Text(tables.marked(name, entry["unfinished"])), Text(str(entry["n"])), final]
        if at_time is not None:
            cells.append(Text(tables.scores(entry["accuracy_at_time"], entry["n"])))
        table.add_row(*cells, *([Text(drawn[name])] if drawn else []))
    return _whole_words(table)


def _goals(found: Comparison, results: Sequence[Mapping[str, Any]]) -> Table:
    scales = {c.name: tables.scale([entry[c.name]["mean"] for entry in results], c.unit) for c in _GOAL}
    heads = [tables.headed(c.words, c.unit, scales[c.name]).replace(" ", "\n") for c in _GOAL]  # for narrow screens
    table = _empty(result_tables.row_head(found), "reached", *heads)
    for entry in results:
        cells = [tables.marked(entry["method"], entry["unfinished"]), f"{entry['reached']}/{len(entry['runs'])}"]
        cells += [_pair(entry[c.name], scales[c.name]) for c in _GOAL]
        table.add_row(*map(Text, cells))
    return _whole_words(table)


def _as_rich(given: tables.Table) -> Table:
    """A table of the report for a terminal."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for place, head in enumerate(given.head):
        table.add_column(head, overflow="fold", justify="right" if place and given.numbers else "left")
    for i, row in enumerate(given.rows):
        table.add_row(*(Text(cell, style="bold" if (i, j) in given.marked else "") for j, cell in enumerate(row)))
    return _whole_words(table)


def _empty(first: str, *others: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(first, overflow="fold")
    for name in others:
        table.add_column(name, justify="right", overflow="fold")
    return table


def _whole_words(table: Table) -> Table:
    """The same with a first column that breaks no word: names are searched for, and typed again."""
    first = table.columns[0]
    first.min_width = max(len(word) for cell in (first.header, *first.cells) for word in str(cell).split() or [""])
    return table


def _pair(spread: Mapping[str, Any], scale: float) -> str:
    if spread["mean"] is None:
        return "–"
    sd = "" if spread["sd"] is None else f"±{spread['sd'] / scale:.2g}"
    return f"{spread['mean'] / scale:.3g}{sd}"
