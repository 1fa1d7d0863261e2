"""One display for a whole sweep: how many trials are over, the best one, and a line for each run under way."""

from __future__ import annotations

from typing import final

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from polyrhythm.sweeps.definition import Sweep, in_words
from polyrhythm.sweeps.performing import Job
from polyrhythm.sweeps.trials import Record, Trial, best


@final
class SweepProgress:
    """Lines that move in a terminal; elsewhere one line for each trial that is over.

    Args:
        console: where to draw.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress: Progress | None = None
        self._all = TaskID(0)
        self._runs: dict[tuple[str, int], TaskID] = {}
        self._over = self._many = 0
        self._best: dict[str, Trial] = {}

    def begin(self, record: Record, sweep: Sweep) -> None:
        """Draws what there is."""
        self._many = sum(record.many.values())
        for trial in record.trials:
            if trial.over:
                self._count(trial)
        if self._over:
            self._say(f"{self._over} of {self._many} trials are over already")
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=20),
                TextColumn("{task.completed:.0f}/{task.total:.0f}"),
                TextColumn("{task.fields[shown]}", markup=False),
                TimeElapsedColumn(),
                console=self._console,
                transient=True,
                refresh_per_second=4,
            )
            self._all = self._progress.add_task("trials", total=self._many, completed=self._over, shown=self._leaders())
            self._progress.start()

    def version(self, job: Job, version: int, rounds: int | None, score: float | None) -> None:
        """Moves the line of a run on; it goes when the run has made its last version."""
        if self._progress is None:
            return
        key = (job.name, job.seed)
        if key not in self._runs:
            self._runs[key] = self._progress.add_task(f"{job.name}, seed {job.seed}", total=rounds or 0, shown="")
        self._progress.update(self._runs[key], completed=version)
        if score is not None:
            self._progress.update(self._runs[key], shown=f"{score:.4f}")
        if version == rounds:
            self._progress.remove_task(self._runs.pop(key))

    def over(self, trial: Trial) -> None:
        """Counts a trial."""
        self._count(trial)
        what = f"{trial.side} trial {trial.number}".strip()
        score = "" if trial.score is None else f" {trial.score:.4f}"
        self._say(f"{self._over}/{self._many} {what} {trial.state}{score}: {in_words(trial.setting)}")
        if self._progress is not None:
            self._progress.update(self._all, completed=self._over, shown=self._leaders())
            for key in [key for key in self._runs if key[0].rpartition("/")[2] == str(trial.number)]:
                if key[0].rpartition("/")[0].endswith(trial.side):
                    self._progress.remove_task(self._runs.pop(key))

    def end(self) -> None:
        """Takes the lines away."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def _count(self, trial: Trial) -> None:
        self._over += 1
        leader = self._best.get(trial.side)
        if trial.state == "finished":
            self._best[trial.side] = best([trial] if leader is None else [leader, trial], trial.side) or trial

    def _leaders(self) -> str:
        told = [f"{side} {trial.score:.4f} ({in_words(trial.setting)})" for side, trial in self._best.items()]
        return f"best {'; '.join(told)}" if told else ""

    def _say(self, text: str) -> None:
        self._console.print(text, style="dim", markup=False, highlight=False, soft_wrap=True)
