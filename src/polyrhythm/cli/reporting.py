"""`polyrhythm report`: runs as a page or as tables for a paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from polyrhythm import report
from polyrhythm.cli.output import Screen
from polyrhythm.cli.run_display import runs_of


def report_runs(
    references: Sequence[str],
    out: str,
    output: Path,
    options: Mapping[str, Any],
) -> None:
    """All runs that are named, or all of the folder."""
    unique = runs_of(references, out, Screen(stderr=True))
    path = report.write(unique, output, **options)
    Screen().print(
        f"{len(unique)} run{'s' if len(unique) != 1 else ''} reported in {path}", markup=False, highlight=False
    )
