"""What is said of a recorded run in a line or a curve; imports nothing that trains."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console

from polyrhythm.base.metric_names import in_words
from polyrhythm.results import Run
from polyrhythm.results.chart import curve, takes_unicode

_SPAN = 0.05  # of the axis of a score, so that nothing looks like something


def line_of(run: Run, summary: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What `--json` says of a run: how it stands, what came of it, what it announced, and what its record lacks.

    Args:
        run: the run.
        summary: what came of it; None for what its record says.
    """
    stands = {"run_id": run.id, "status": run.status, "reason": run.reason}
    found = run.summary if summary is None else summary
    return {**stands, **found, "notices": list(run.notices), "missing": list(run.missing)}


def draw_scores(console: Console, run: Run) -> None:
    """The curve of the headline metric, in characters."""
    title = f"test {in_words(run.headline)}"
    drawn = curve(run.scores, title=title, width=min(console.width, 80), least=_SPAN, unicode=takes_unicode(sys.stdout))
    console.print(drawn, markup=False, highlight=False, soft_wrap=True)
