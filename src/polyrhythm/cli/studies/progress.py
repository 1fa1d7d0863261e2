"""Progress of a study: how many of its trials and runs are over, the best so far, and a line for each run under way."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from polyrhythm.studies.planning import Plan, in_words
from polyrhythm.studies.running.performing import Ending, Job
from polyrhythm.studies.running.trials import Record, Trial, best


@final
class Bars:
    """Lines that move in a terminal: one for the whole, one for each run under way. Elsewhere nothing is drawn.

    Args:
        console: where to draw.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress: Progress | None = None
        self._all = TaskID(0)
        self._runs: dict[tuple[str, int], TaskID] = {}

    @property
    def drawn(self) -> bool:
        """Whether there is anything to be seen."""
        return self._progress is not None

    def begin(self, what: str, many: int, over: int = 0, shown: str = "") -> None:
        """Draws the line of the whole: so many runs or trials, of which some are over."""
        if not self._console.is_terminal or self._console.is_dumb_terminal:
            return
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
        self._all = self._progress.add_task(what, total=many, completed=over, shown=shown)
        self._progress.start()

    def count(self, over: int, shown: str = "") -> None:
        """Moves that line on."""
        if self._progress is not None:
            self._progress.update(self._all, completed=over, shown=shown)

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

    def remove(self, whose: Callable[[str, int], bool]) -> None:
        """Takes lines away, by the names and seeds of their runs."""
        if self._progress is not None:
            for key in [key for key in self._runs if whose(*key)]:
                self._progress.remove_task(self._runs.pop(key))

    def end(self) -> None:
        """Takes all lines away."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


@final
class StudyProgress:
    """Lines that move in a terminal; elsewhere one line for each trial and each run that is over.

    Args:
        console: where to draw.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars = Bars(console)
        self._over = self._many = 0
        self._record: Record | None = None
        self._best: dict[str, Trial] = {}

    def begin(self, plan: Plan, record: Record) -> None:
        """Begins with what is there."""
        self._record = record
        self._many = sum(arm.many for arm in record.arms.values()) + len(plan.cells) * len(plan.seeds)
        for trial in record.trials:
            if trial.over:
                self._count(trial)
        self._bars.begin(plan.of.name, self._many, self._over, self._leaders())

    def version(self, job: Job, version: int, rounds: int | None, score: float | None) -> None:
        """Moves the line of a run on."""
        self._bars.version(job, version, rounds, score)

    def tried(self, trial: Trial) -> None:
        """Says what it gave."""
        assert self._record is not None
        self._count(trial)
        score = "" if trial.score is None else f" {trial.score:.4f}"
        what = f"{trial.arm} trial {trial.number}".strip()
        self._say(f"{self._over}/{self._many} {what} {trial.state}{score}: {in_words(trial.setting)}")
        self._bars.count(self._over, self._leaders())
        ran = "/".join(part for part in (self._record.arms[trial.arm].called, str(trial.number)) if part)
        self._bars.remove(lambda name, seed: name == ran)

    def compared(self, job: Job, ending: Ending) -> None:
        """Says how a run has ended; where lines move, only if it failed."""
        self._over += 1
        self._bars.remove(lambda name, seed: (name, seed) == (job.name, job.seed))
        self._bars.count(self._over, self._leaders())
        how = ending.state + (f": {ending.reason}" if ending.reason else "")
        if not self._bars.drawn or ending.state != "finished":
            self._say(f"{self._over}/{self._many} {job.name}, seed {job.seed}: {how}")

    def end(self) -> None:
        """Takes the lines away."""
        self._bars.end()

    def _count(self, trial: Trial) -> None:
        self._over += 1
        leader = self._best.get(trial.arm)
        if trial.state == "finished":
            self._best[trial.arm] = best([trial] if leader is None else [leader, trial], trial.arm) or trial

    def _leaders(self) -> str:
        told = [f"{arm} {trial.score:.4f} ({in_words(trial.setting)})".strip() for arm, trial in self._best.items()]
        return f"best {'; '.join(told)}" if told and len(told) <= _MOST_LEADERS else ""

    def _say(self, text: str) -> None:
        self._console.print(text, style="dim", markup=False, highlight=False, soft_wrap=True)


_MOST_LEADERS = 3  # of a table with many cells there is no room for the best of each
