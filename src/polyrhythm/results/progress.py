"""The observer that shows how a run goes while it goes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, final

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from polyrhythm.base.metric_names import in_words
from polyrhythm.runs.costs import decimals
from polyrhythm.runs.observer import Observer
from polyrhythm.runs.records import ModelView, Plan, RunStatus, VersionRecord


@final
class LiveProgress(Observer):
    """One line in the terminal: round, loss, accuracy, client updates, privacy spent, time left.

    Silent when output goes elsewhere.

    Args:
        console: where to draw; standard output by default.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console()
        self._progress: Progress | None = None
        self._task = TaskID(0)
        self._headline = ""
        self._shown: dict[str, str] = {}

    def begin(self, plan: Plan) -> None:
        """Draws the line, if somebody can see it."""
        # What a notebook runs by `!` sees a terminal, and keeps every state of a line that moves.
        if not self._console.is_terminal or self._console.is_dumb_terminal or "JPY_PARENT_PID" in os.environ:
            return
        self._headline = plan.headline
        self._shown = {"loss": "–", "score": "–", "updates": "0", "privacy": ""}
        label = in_words(plan.headline)
        self._progress = Progress(
            TextColumn("round {task.completed:.0f}" + ("/{task.total:.0f}" if plan.rounds else "")),
            BarColumn(bar_width=None),
            TextColumn("loss {task.fields[shown][loss]}"),
            TextColumn(label + " [bold]{task.fields[shown][score]}[/]"),
            TextColumn("{task.fields[shown][updates]} client updates{task.fields[shown][privacy]}"),
            TextColumn("time left" if plan.rounds else "time"),
            TimeRemainingColumn(compact=True) if plan.rounds else TimeElapsedColumn(),
            console=self._console,
            transient=True,
            refresh_per_second=8,
        )
        self._task = self._progress.add_task("run", total=plan.rounds, shown=self._shown)
        self._progress.start()

    def version(self, record: VersionRecord, model: ModelView) -> None:
        """Moves the line on."""
        if self._progress is None:
            return
        if record.test is not None and self._headline in record.test:
            self._shown["score"] = decimals(record.test[self._headline])
        if record.train_loss is not None:
            self._shown["loss"] = decimals(record.train_loss)
        self._shown["updates"] = f"{record.client_updates:,}"
        if (epsilon := record.measures.get("epsilon")) is not None:
            self._shown["privacy"] = f", epsilon {decimals(epsilon)}"
        self._progress.update(self._task, completed=record.version, shown=self._shown)

    def end(self, status: RunStatus, reason: str, summary: Mapping[str, Any]) -> None:
        """Takes the line away, so that the result stands alone."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
