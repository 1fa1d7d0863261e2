"""Runs that a command is about, and the commands that are about a run; loads nothing that trains."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from polyrhythm.cli.consenting import modules_of
from polyrhythm.cli.output import Screen
from polyrhythm.results import Run
from polyrhythm.runs.database import damaged_runs


def runs_of(references: Sequence[str], out: str, screen: Screen) -> list[Run]:
    """The runs that are named, or all of a folder, each once; says which are left out as their record is damaged.

    Their versions are read here, and not again.

    Raises:
        UserError: no run fits, or there is no run database.
    """
    runs = [run for reference in references for run in Run.find(reference, out)] if references else Run.all(out)
    damaged = dict[str, str]()
    meant: Sequence[str | None] = references or [None]
    for reference in meant:
        damaged |= damaged_runs(Path(out), reference)
    unique = list({run.id: run for run in runs}.values())
    damaged |= {run.id: damage for run in unique if (damage := run.checked())}
    for run_id, damage in damaged.items():
        screen.note(f"the run {run_id} is left out: its record is damaged ({damage})")
    return [run for run in unique if run.id not in damaged]


def how_to_show(run_id: str, out: str) -> str:
    """The command that shows a run again."""
    return f"polyrhythm show {run_id}{'' if out == 'runs' else f' --out {shlex.quote(out)}'}"


def how_to_go_on(run: Run, out: str) -> str:
    """The command that goes on with a run."""
    trusted = "".join(f" --trust {module}" for module in modules_of(run.config))
    return f"polyrhythm resume {run.id}{'' if out == 'runs' else f' --out {shlex.quote(out)}'}{trusted}"
