"""What a report says, before it is written in any language."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from polyrhythm.base.errors import UserError
from polyrhythm.report import record
from polyrhythm.report.record import Recipe
from polyrhythm.results import Comparison, Run, fairness_tables, heard_tables, privacy_tables, result_tables
from polyrhythm.results.tables import Table
from polyrhythm.results.verdict import verdict
from polyrhythm.runs.costs import On


@final
@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of a report.

    Args:
        name: in one word.
        title: for a person.
        tables: what it shows.
        words: what it says before them.
    """

    name: str
    title: str
    tables: tuple[Table, ...]
    words: str = ""


@final
@dataclass(frozen=True, kw_only=True)
class Contents:
    """All of it but the figures.

    Args:
        title: what was compared.
        about: one sentence on the runs.
        verdict: which method is best, and whether that is shown.
        notices: what a reader should know first.
        sections: the tables, in their order.
        recipes: how the runs are made again.
        runs: those that count.
        on: the set that they are judged on.
        baseline: the method that the others are compared with, where one was named.
        group_by: the setting whose values are the rows; None of methods.
    """

    title: str
    about: str
    verdict: str
    notices: tuple[str, ...]
    sections: tuple[Section, ...]
    recipes: tuple[Recipe, ...]
    runs: tuple[Run, ...]
    on: On
    baseline: str | None
    group_by: str | None


def contents(
    runs: Sequence[Run],
    *,
    to: float | None = None,
    on: On = "test",
    baseline: str | None = None,
    group_by: str | None = None,
    level: float = 0.95,
) -> Contents:
    """Reads the runs' records.

    Args:
        runs: in any order; those that differ in their seed alone are one method.
        to: a goal for the headline metric; None for the largest multiple of 0.05 that every run reached.
        on: the set that all of it is judged on, "test" or "validation".
        baseline: the method that the others are compared with; None for the first.
        group_by: the dotted key of a setting whose values take the place of methods.
        level: of confidence intervals.

    Raises:
        UserError: nothing to report, runs that are judged by different metrics, a set that no run was judged on, or no
            such method or setting.
    """
    found = Comparison(runs, group_by=group_by, baseline=baseline)
    _check(found, on)
    tables = {
        "results": (
            result_tables.accuracy(found, on, level),
            result_tables.differences(found, found.baseline, on, level),
            fairness_tables.clients(found),
            fairness_tables.differences(found, found.client_baseline, level),
            fairness_tables.classes(found),
        ),
        "bias": (heard_tables.heard(found), heard_tables.availability(found)),
        "costs": (result_tables.costs(found), result_tables.took(found, on, to), result_tables.faults(found)),
        "privacy": (privacy_tables.statements(found),),
        "setup": (result_tables.settings(found), record.common(found)),
        "record": (record.runs(found), record.machines(found)),
    }
    titles = {
        "results": "Results",
        "bias": "Who was heard",
        "costs": "Costs",
        "privacy": "Privacy",
        "setup": "What was run",
        "record": "Runs and machines",
    }
    return Contents(
        title=_title(found),
        about=_about(found),
        verdict=verdict(found, on, level),
        notices=record.notices(found),
        sections=tuple(
            Section(name=name, title=titles[name], tables=there)
            for name, given in tables.items()
            if (there := tuple(table for table in given if table is not None))
        ),
        recipes=record.recipes(found),
        runs=tuple(record.every(found)),
        on=on,
        baseline=baseline,
        group_by=group_by,
    )


def _check(found: Comparison, on: On) -> None:
    judged = any(row["validation"] for runs in found.versions.values() for rows in runs for row in rows)
    if on == "validation" and not judged:
        raise UserError(
            "no run was judged on validation data",
            expected="runs with samples held out for that",
            why="all numbers of the report would be missing",
            fix="--on test, or run them with --validation 0.1",
        )


def _title(found: Comparison) -> str:
    names = list(found.methods)
    if len(names) == 1:
        return names[0]
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    rows = "methods" if found.group_by is None else f"values of {found.group_by}"
    return f"{len(names)} {rows}: {shown}" if len(names) > 5 else shown


def _about(found: Comparison) -> str:
    runs = record.every(found)
    data = ", ".join(dict.fromkeys(str(run.config.get("data", "data of its own")) for run in runs))
    clients = ", ".join(dict.fromkeys(str(n) for run in runs if (n := run.config.get("clients"))))
    seeds = sorted({run.seed for run in runs})
    days = sorted({run.started[:10] for run in runs})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    told = f"{len(runs)} runs" if len(runs) > 1 else "One run"
    of = f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds[:10]))}{' …' if len(seeds) > 10 else ''}"
    return f"{told} on {data}{f', {clients} clients' if clients else ''}, {of}; {when}."
