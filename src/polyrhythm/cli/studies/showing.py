"""How a study looks in the terminal once it is over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.table import Table as RichTable
from rich.text import Text

from polyrhythm.cli.output import Screen
from polyrhythm.cli.rows import print_rows
from polyrhythm.results.tables import Table
from polyrhythm.studies.page.numbers import mean_sd
from polyrhythm.studies.page.page import BELOW
from polyrhythm.studies.planning import Plan, in_words
from polyrhythm.studies.result import StudyResult

_MOST = 40  # rows of a table


def print_study(screen: Screen, plan: Plan, found: StudyResult) -> None:
    """Its tables, its claims, what was chosen, its verdict, and where the page is."""
    of = found.findings
    tried = {f"trials {arm}".strip() for arm in found.arms}
    for table in of.tables:
        if table.name not in BELOW and (table.name in tried or plan.seeds or plan.of.program):
            _print_table(screen, table)
    for claim in of.claims:
        screen.print(Text(f"{claim.verdict}: {claim.says} ({claim.evidence or 'no numbers'})"))
    if not plan.of.apart:
        print_rows(screen, dict(_chosen(plan, found)))
    for note in of.notes:
        screen.note(note)
    if plan.of.apart or of.verdict:
        screen.print(Text(f"verdict: {of.verdict or 'none'}"))
    screen.print(f"page: {found.page}", highlight=False, markup=False)


def _print_table(screen: Screen, table: Table) -> None:
    screen.print()
    screen.print(Text(table.caption))
    shown = RichTable(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for i, head in enumerate(table.head):
        right: Literal["left", "right"] = "right" if i and table.numbers else "left"
        shown.add_column(Text(head), justify=right, overflow="fold", no_wrap=not i)
    for row in table.rows[:_MOST]:
        shown.add_row(*map(Text, row))
    screen.print_table(shown)
    if len(table.rows) > _MOST:
        screen.print(f"and {len(table.rows) - _MOST:,} more; the page has all of them", style="dim")


def _chosen(plan: Plan, found: StudyResult) -> Iterator[tuple[str, str]]:
    for arm in found.arms:
        label, trial = arm or "best", found.best(arm)
        if trial is None:
            yield label, "no trial has finished"
            continue
        yield label, f"trial {trial.number}: {in_words(trial.setting)}"
        runs = found.runs(arm)
        finals = [run.summary.get("final_accuracy") for run in runs]
        known = [value for value in finals if value is not None]
        which = "fresh seeds" if plan.seeds else "the seeds of the trials"
        seeds = ", ".join(str(run.seed) for run in runs)
        yield f"{label}, on test", f"{mean_sd(known) if known else 'none'} ({which} {seeds})"
    if found.arms:
        where = "" if str(found.runs_folder) == "runs" else f" --out {found.runs_folder}"
        name = found.name if len(found.arms) == 1 else f"{found.name}/{found.arms[0]}"
        yield "as a file", f"polyrhythm best {name}{where}"
