"""Carries out a plan: batch after batch of trials, each over its seeds; then every cell over the seeds compared."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, final

from polyrhythm.base.errors import RunFailed, UserError
from polyrhythm.results import Run
from polyrhythm.runs import run_lock
from polyrhythm.runs.database import FILE
from polyrhythm.runs.json_text import to_json
from polyrhythm.simulation.workers.choosing import cores
from polyrhythm.studies.definition import Judge
from polyrhythm.studies.planning import Arm, Cell, Plan
from polyrhythm.studies.running import searching
from polyrhythm.studies.running.performing import Ending, Job
from polyrhythm.studies.running.trials import ArmRecord, Record, Trial, best, differences, history_of, read
from polyrhythm.studies.running.workers import work_off
from polyrhythm.studies.space import Range, Setting
from polyrhythm.trackers import Tracking

_WINDOW = 20
_DIED = "its process died: "


class Listener(Protocol):
    """Listener: whoever wants to know how a study goes."""

    def begin(self, plan: Plan, record: Record) -> None:
        """It begins, or goes on."""

    def version(self, job: Job, version: int, rounds: int | None, score: float | None) -> None:
        """A run has come to a version."""

    def tried(self, trial: Trial) -> None:
        """A trial is over."""

    def compared(self, job: Job, ending: Ending) -> None:
        """A run that is compared has ended."""

    def end(self) -> None:
        """Nothing more will be said."""


def carry_out(
    plan: Plan, out: Path | str, workers: int | None, tracking: Tracking | None = None, listener: Listener | None = None
) -> Record:
    """Makes all trials and runs that are not there yet, of what `check` has looked at, and keeps their record.

    Stopped, or killed, and called again it goes on: trials that are over are not repeated, and runs go on from their
    last checkpoint. Trials, scores and choice do not depend on the number of workers, nor on how often it was stopped.

    Args:
        plan: what is run.
        out: the folder of all records.
        workers: how many runs go on at once, each in a process of its own with one thread; None for as many as there
            are processors. With 1 it is this process.
        tracking: trackers that are told of every run.
        listener: whoever wants to know how it goes.

    Raises:
        UserError: a tracker or Optuna is missing, or another process is at it, or another study of that name is there.
        RunFailed: a trial could not be made, such as on a full disk, without which nothing can be chosen.
        KeyboardInterrupt: it was stopped.
    """
    tracking = tracking or Tracking()
    tracking.check()
    if plan.search is not None and plan.search.kind == "tpe":
        searching.check_optuna()
    folder = plan.folder(out)
    record = record_of(plan, out)
    with run_lock.alone(folder / ".going-on", _going_on(plan)):
        record.write(folder)
        if listener is not None:
            listener.begin(plan, record)
        try:
            _Execution(plan, record, out, tracking, listener).go(workers or cores())
        finally:
            if listener is not None:
                listener.end()
    return record


def record_of(plan: Plan, out: Path | str) -> Record:
    """The record of a study: what there is of it, or a new one. Nothing is written.

    Of its trials those are kept that the plan has, too; one whose run was deleted is to be made again.

    Raises:
        UserError: another study of this name is there, or the record is damaged.
    """
    folder, name, arms = plan.folder(out), plan.of.name, plan.arms
    record = read(folder) or Record(name=name)
    there: dict[str, ArmRecord] = {}
    for key, arm in arms.items():
        earlier, now = record.arms.get(key), arm.describe()
        if earlier is not None and earlier.called != arm.called:
            earlier = None
        if earlier is not None and (differing := differences(earlier.definition, now)):
            raise UserError(
                f"{folder} is of another study {name!r}: they differ in "
                + ", ".join(f"{key}{': ' if key else ''}{one}" for one in differing[:5]),
                expected="the same one, or a name that is not taken",
                why="its trials would be taken for trials of this one",
                fix="give another name (name = …), or another folder (--out FOLDER)",
            )
        chosen = None if earlier is None else earlier.best
        there[key] = ArmRecord(
            called=arm.called, definition=now, many=arm.many, best=chosen, template=arm.make.written()
        )
    kept = {key for key, arm in there.items() if key in record.arms and record.arms[key].called == arm.called}
    trials = [trial for trial in record.trials if trial.arm in kept and trial.number <= there[trial.arm].many]
    trials = _with_runs(trials, plan.trials_folder(out))
    wanted = len(plan.cells) * len(plan.seeds)
    return Record(name=name, headline=record.headline, arms=there, trials=trials, wanted=wanted)


def _with_runs(trials: list[Trial], folder: Path) -> list[Trial]:
    """The same, but those anew whose run is not there any more."""
    if not any(trial.runs for trial in trials):
        return trials
    there = {run.id for run in Run.all(folder, archived=True)} if (folder / FILE).is_file() else set()
    gone = {(t.arm, t.number) for t in trials if not {*t.runs.values()} <= there}
    anew = [(t.arm, t.number) in gone or (t.arm, t.same_as) in gone for t in trials]
    return [
        Trial(arm=t.arm, number=t.number, setting=t.setting) if again else t
        for t, again in zip(trials, anew, strict=True)
    ]


def _going_on(plan: Plan) -> UserError:
    scale = f" at scale {plan.scale}" if plan.of.apart else ""
    return UserError(
        f"the study {plan.of.name} is going on in another process{scale}",
        expected="one process for a study",
        why="both would make the same runs",
        fix="wait for it, look at what it has so far (the same command with --so-far), or give another folder "
        "(--out FOLDER)",
    )


@final
class _Execution:
    """Execution of a plan: what is left to be made, and what came of it."""

    def __init__(
        self, plan: Plan, record: Record, out: Path | str, tracking: Tracking, listener: Listener | None
    ) -> None:
        self._plan, self._record, self._out = plan, record, out
        self._tracking, self._listener = tracking, listener
        self._arms: dict[str, Arm] = plan.arms
        self._jobs: deque[tuple[Trial | Cell, Job]] = deque()
        self._under_way: dict[tuple[str, int], Trial | Cell] = {}
        self._bars: dict[str, dict[int, float]] = {}
        self._at_cells = False
        self._trials_out = str(plan.trials_folder(out))

    def go(self, workers: int) -> None:
        """All of it."""
        for trial in self._record.trials:
            if trial.state == "failed" and trial.reason.startswith(_DIED):
                trial.state, trial.reason = "waiting", ""  # perhaps there is more memory now
        makes = {arm.called: arm.make for arm in self._arms.values()}
        makes |= {cell.called: cell.make for cell in self._plan.cells}
        work_off(self, makes, workers)
        self._keep()

    def _keep(self) -> None:
        self._record.write(self._plan.folder(self._out))

    def _begin_batch(self) -> bool:
        """Puts the jobs of the next batch of every arm in the queue; says whether there are any trials left."""
        more = False
        for name, arm in self._arms.items():
            before = self._record.of(name)
            waiting = [trial for trial in before if not trial.over]
            if not waiting:
                settings = searching.next_batch(arm, before)
                waiting = [Trial(arm=name, number=len(before) + i, setting=s) for i, s in enumerate(settings, 1)]
                self._record.trials += waiting
            for trial in waiting:
                trial.setting = restored(arm, trial.setting)
            more = more or bool(waiting)
            self._bars[name] = self._bars_of(arm, waiting)
            for trial in waiting:
                self._begin(trial)
        if more:
            self._keep()
        return more

    def _bars_of(self, arm: Arm, waiting: Sequence[Trial]) -> dict[int, float]:
        """What the runs of a batch must reach: by the trials of the batches before it."""
        search = arm.search
        if search.prune is None or not waiting:
            return {}
        earlier = (waiting[0].number - 1) // search.batch * search.batch
        histories = []
        for trial in self._record.of(arm.name)[:earlier]:
            if trial.state in ("finished", "pruned") and trial.same_as is None:
                run = Run.open(trial.runs[search.seeds[0]], self._trials_out)
                histories.append(history_of(run.versions, run.headline))
        return searching.bars(histories, search.prune)

    def _begin(self, trial: Trial) -> None:
        """Sends out the runs of a trial, unless an earlier one has the same setting."""
        text = to_json(dict(trial.setting))
        for other in self._record.of(trial.arm):
            if other.number < trial.number and other.same_as is None and to_json(dict(other.setting)) == text:
                trial.same_as = other.number
                if other.over:
                    self._copy(other, trial)
                return
        trial.scores, search = {}, self._arms[trial.arm].search
        for seed in search.seeds[:1] if search.prune else search.seeds:
            self._send(trial, seed)

    def _send(self, trial: Trial, seed: int) -> None:
        arm = self._arms[trial.arm]
        bars = self._bars[trial.arm] if seed == arm.search.seeds[0] else {}
        job = Job(
            of=arm.called,
            name=arm.trial(trial.number),
            setting=trial.setting,
            seed=seed,
            out=self._trials_out,
            bars=bars,
            tracking=self._tracking,
        )
        self._jobs.append((trial, job))

    def next(self) -> Job | None:
        """The next run to be made; those of trials that have failed meanwhile are left out.

        A batch of trials begins when all before it are over, and the cells after the last of them.
        """
        while self._jobs or (not self._under_way and self._refilled()):
            whose, job = self._jobs.popleft()
            if isinstance(whose, Cell) or not whose.over:
                self._under_way[job.name, job.seed] = whose
                return job
        return None

    def _refilled(self) -> bool:
        """Puts the next jobs in the queue; false if there are none any more."""
        while not self._jobs and self._begin_batch():
            pass
        if not self._jobs and not self._at_cells:
            self._at_cells = True
            self._begin_cells()
        return bool(self._jobs)

    def over(self, job: Job, ending: Ending) -> None:
        """A run has ended."""
        whose = self._under_way.pop((job.name, job.seed))
        self._record.headline = ending.headline or self._record.headline
        if isinstance(whose, Cell):
            self._compared(whose, job, ending)
            return
        trial, search = whose, self._arms[whose.arm].search
        if ending.run:
            trial.runs[job.seed] = ending.run
        score = ending.of_clients if search.by == "clients" else judged(ending.history, search.by)
        if score is not None:
            trial.scores[job.seed] = score
        if trial.over:  # another of its runs has failed before
            return
        self._settle(trial, job.seed, ending, score)
        if trial.over:
            self._finish(trial)

    def _compared(self, cell: Cell, job: Job, ending: Ending) -> None:
        if ending.state == "finished":
            runs = self._record.runs.setdefault(cell.name, {})
            self._record.runs[cell.name] = dict(sorted({**runs, job.seed: ending.run}.items()))
        else:
            self._record.failed.setdefault(cell.name, {})[job.seed] = ending.reason
        self._keep()
        if self._listener is not None:
            self._listener.compared(job, ending)

    def _settle(self, trial: Trial, seed: int, ending: Ending, score: float | None) -> None:
        search = self._arms[trial.arm].search
        if ending.state == "hindered":  # the choice among the others would be another one
            whose = f"{trial.arm or self._plan.of.name}, trial {trial.number},"
            raise RunFailed(f"{whose} could not be made: {ending.reason}. The same command goes on with it")
        if ending.state in ("failed", "died"):
            trial.state = "failed"
            trial.reason = f"{_DIED if ending.state == 'died' else ''}{ending.reason} (seed {seed})"
        elif ending.state == "pruned":
            trial.state, trial.reason, trial.score = "pruned", ending.reason, score
        elif score is None:
            trial.state, trial.reason = "failed", f"no score to choose by (seed {seed})"
        elif len(trial.scores) == len(search.seeds):
            trial.state = "finished"
            trial.score = math.fsum(trial.scores[s] for s in search.seeds) / len(search.seeds)
        elif seed == search.seeds[0] and search.prune:
            for other in search.seeds[1:]:
                self._send(trial, other)

    def _finish(self, trial: Trial) -> None:
        trial.runs = dict(sorted(trial.runs.items()))
        trial.scores = dict(sorted(trial.scores.items()))
        if self._listener is not None:
            self._listener.tried(trial)
        for other in self._record.of(trial.arm):
            if other.same_as == trial.number:
                self._copy(trial, other)
        self._keep()

    def _copy(self, trial: Trial, other: Trial) -> None:
        """The results of a trial are those of another one with the same setting."""
        other.state, other.score, other.reason = trial.state, trial.score, trial.reason
        other.scores, other.runs = dict(trial.scores), dict(trial.runs)
        if self._listener is not None:
            self._listener.tried(other)

    def _begin_cells(self) -> None:
        """Puts the runs that are compared in the queue, with what was chosen for each."""
        for name in self._arms:
            found = best(self._record.trials, name)
            self._record.arms[name].best = None if found is None else found.number
        for seed in self._plan.seeds:
            for cell in self._plan.cells:
                chosen: Setting = {}
                if cell.arm is not None:
                    found = best(self._record.trials, cell.arm)
                    if found is None:
                        why = "no setting that was tried came to an end"
                        self._record.failed.setdefault(cell.name, {})[seed] = why
                        continue
                    chosen = restored(self._arms[cell.arm], found.setting)
                out = str(self._plan.runs_folder(self._out))
                job = Job(of=cell.called, name=cell.called, setting=chosen, seed=seed, out=out, tracking=self._tracking)
                self._jobs.append((cell, job))

    def version(self, job: Job, version: int, rounds: int | None, score: float | None) -> None:
        """A run has come to a version."""
        if self._listener is not None:
            self._listener.version(job, version, rounds, score)


def judged(history: searching.History, by: Judge) -> float | None:
    """The number that judges a run; the initial model is no result of it. None if there is none that is finite."""
    scores = [score for version, score in history if version > 0]
    if not scores:
        return None
    last = scores[-_WINDOW:]
    highest = max((score for score in scores if math.isfinite(score)), default=math.nan)
    found = {"best": highest, "last20": math.fsum(last) / len(last)}.get(by, scores[-1])
    return found if math.isfinite(found) else None


def restored(arm: Arm, setting: Setting) -> Setting:
    """A setting as the arm's own values: a file has lists where a tuple may be meant."""
    found = {}
    for key, value in setting.items():
        values = arm.space.get(key, ())
        choices = () if isinstance(values, Range) else values
        found[key] = next((choice for choice in choices if to_json(choice) == to_json(value)), value)
    return found
