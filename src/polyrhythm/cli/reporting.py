"""`polyrhythm report`: runs as a page or as tables for a paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, Progress, TextColumn

from polyrhythm import report
from polyrhythm.cli.named_runs import runs_of
from polyrhythm.cli.output import Screen


def report_runs(
    references: Sequence[str],
    out: str,
    output: Path,
    options: Mapping[str, Any],
) -> None:
    """All runs that are named, or all of the folder."""
    screen = Screen(stderr=True)
    unique = runs_of(references, out, screen)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        TextColumn("{task.completed} of {task.total}"),
    )
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as progress:
        task = progress.add_task("drawing", total=None)
        path = report.write(
            unique, output, told=lambda done, of: progress.update(task, completed=done, total=of), **options
        )
    Screen().print(
        f"{len(unique)} run{'s' if len(unique) != 1 else ''} reported in {path}", markup=False, highlight=False
    )
