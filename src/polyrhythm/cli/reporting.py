"""`polyrhythm report`: runs as a page or as tables for a paper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from polyrhythm import report
from polyrhythm.cli.output import Screen
from polyrhythm.cli.run_display import runs_of
from polyrhythm.runs.costs import On


def report_runs(
    references: Sequence[str],
    out: str,
    output: Path,
    *,
    to: float | None,
    on: On,
    against: str | None,
    level: float,
) -> None:
    """All runs that are named, or all of the folder."""
    unique = runs_of(references, out, Screen(stderr=True))
    path = report.write(unique, output, to=to, on=on, against=against, level=level)
    Screen().print(
        f"{len(unique)} run{'s' if len(unique) != 1 else ''} reported in {path}", markup=False, highlight=False
    )
