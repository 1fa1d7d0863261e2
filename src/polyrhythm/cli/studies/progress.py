"""Progress of a study: how many of its trials and runs are over, the best so far, and a line for each run under way."""

from __future__ import annotations

from typing import final

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column

from polyrhythm.studies.planning import Plan, in_words
from polyrhythm.studies.running.performing import Ending, Job
from polyrhythm.studies.running.trials import Record, Trial, best

_NAME = 30  # characters of a run's name
_MOST_LEADERS = 3  # of a table with many cells there is no room for the best of each


@final
class StudyProgress:
    """Progress in the terminal: lines that move; elsewhere a line for each trial and each run that is over.

    Args:
        console: where to draw.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress: Progress | None = None
        self._all = TaskID(0)
        self._runs: dict[tuple[str, int], TaskID] = {}
        self._over = self._many = 0
        self._record = Record(name="")

    def begin(self, plan: Plan, record: Record) -> None:
        """Begins with what is there."""
        self._record = record
        self._many = sum(arm.many for arm in record.arms.values()) + len(plan.cells) * len(plan.seeds)
        self._over = sum(trial.over for trial in record.trials)
        if not self._console.is_terminal or self._console.is_dumb_terminal:
            return
        self._progress = Progress(
            TextColumn("{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis", max_width=_NAME)),
            BarColumn(bar_width=10),
            TextColumn("{task.completed:.0f}/{task.total:.0f}", table_column=Column(no_wrap=True)),
            TextColumn(
                "{task.fields[shown]}",
                markup=False,
                table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1),
            ),
            TextColumn("time"),
            TimeElapsedColumn(),
            expand=True,
            console=self._console,
            transient=True,
            refresh_per_second=4,
        )
        self._all = self._progress.add_task(plan.of.name, total=self._many, shown="")
        self._progress.start()
        self._count(0)

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
            self._remove(*key)

    def tried(self, trial: Trial) -> None:
        """Says what it gave; the lines of its runs go."""
        for seed in trial.runs:
            self._remove(self._record.run_name(trial), seed)
        self._count(1)
        score = "" if trial.score is None else f" {trial.score:.4f}"
        what = f"{trial.arm} trial {trial.number}".strip()
        why = f": {trial.reason.partition(chr(10))[0]}" if trial.state == "failed" else ""
        self._say(f"{what} {trial.state}{score}: {in_words(trial.setting)}{why}")

    def compared(self, job: Job, ending: Ending) -> None:
        """Says how a run has ended; where lines move, only if it failed."""
        self._remove(job.name, job.seed)
        self._count(1)
        if self._progress is None or ending.state != "finished":
            how = ending.state + (f": {ending.reason}" if ending.reason else "")
            self._say(f"{job.name}, seed {job.seed}: {how}")

    def end(self) -> None:
        """Takes all lines away."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def _count(self, more: int) -> None:
        """Moves the line of the whole on."""
        self._over += more
        if self._progress is not None:
            leaders = [(arm, one) for arm in self._record.arms if (one := best(self._record.trials, arm)) is not None]
            told = [f"{arm} {one.score:.4f} ({in_words(one.setting)})".strip() for arm, one in leaders]
            shown = f"best {'; '.join(told)}" if 0 < len(told) <= _MOST_LEADERS else ""
            self._progress.update(self._all, completed=self._over, shown=shown)

    def _remove(self, name: str, seed: int) -> None:
        if self._progress is not None and (name, seed) in self._runs:
            self._progress.remove_task(self._runs.pop((name, seed)))

    def _say(self, text: str) -> None:
        text = f"{self._over}/{self._many} {text}"
        self._console.print(text, style="dim", markup=False, highlight=False, soft_wrap=True)
