"""Carries out a sweep: batch after batch of trials, each over its seeds, then the chosen settings over fresh ones."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, final

from polyrhythm.base.consent import in_python
from polyrhythm.base.errors import UserError
from polyrhythm.results import Run
from polyrhythm.runs import run_lock
from polyrhythm.runs.json_text import to_json
from polyrhythm.simulation.workers.choosing import cores
from polyrhythm.studies.searches import searching
from polyrhythm.studies.searches.crew import Crew, crew
from polyrhythm.studies.searches.definition import Judge, Side, Sweep, called
from polyrhythm.studies.searches.performing import Ending, Job
from polyrhythm.studies.searches.result import Swept
from polyrhythm.studies.searches.space import Range, Setting
from polyrhythm.studies.searches.trials import FOLDER, Record, Trial, best, differences, history_of, place, read
from polyrhythm.trackers import Tracking

_WINDOW = 20
BEST = "best"


class Listener(Protocol):
    """Whoever wants to know how a sweep goes."""

    def begin(self, record: Record, sweep: Sweep) -> None:
        """It begins, or goes on."""

    def version(self, job: Job, version: int, rounds: int | None, score: float | None) -> None:
        """A run has come to a version."""

    def over(self, trial: Trial) -> None:
        """A trial is over."""

    def end(self) -> None:
        """Nothing more will be said."""


def sweep(
    what: Sweep | Path | str | None = None,
    *,
    out: Path | str | None = None,
    workers: int | None = None,
    tracking: Tracking | None = None,
    listener: Listener | None = None,
    trust: Sequence[str] = (),
) -> Swept:
    """Carries out a sweep, or what is left of it, and keeps its record.

    Ctrl-C stops it; called again it goes on: trials that are over are not repeated, and runs go on from their last
    checkpoint. Trials, scores and choice do not depend on the number of workers, nor on how often it was stopped.

    Args:
        what: the sweep, or the path of a file that `polyrhythm sweep` takes.
        out: the folder of the record; None for the file's, or "runs".
        workers: how many runs go on at once, each in a process of its own with one thread; None for as many as there
            are processors. With 1 it is this process.
        tracking: trackers that are told of every run; None for the file's.
        listener: whoever wants to know how it goes.
        trust: modules of yours that a file may name, as with `--trust` on the command line: they are imported and run.

    Raises:
        UserError: something is wrong that can be known before the first run, such as no validation data; all settings
            of a grid, of a list and of a random search are looked at. Or another sweep of this name is in the folder.
    """
    if what is None:
        raise UserError(
            "sweep() without a sweep",
            expected="a sweep, or the path of a file",
            why="it would be carried out",
            fix="for the participation that goes through all clients in turn write pr.parts.sweep()",
        )
    if not isinstance(what, Sweep):
        from polyrhythm.studies.searches.written import written

        told = written(Path(what), trust=in_python(trust))
        out, tracking = out or told.out, tracking or told.tracking
        return carry_out(told.sweep, Path(out), workers, tracking, listener, told.templates)
    from polyrhythm.studies.searches.checking import check

    check(what)
    return carry_out(what, Path(out or "runs"), workers, tracking or Tracking(), listener, {})


def carry_out(
    sweep: Sweep,
    out: Path,
    workers: int | None,
    tracking: Tracking,
    listener: Listener | None,
    templates: Mapping[str, Mapping[str, Any]],
) -> Swept:
    """The same for a sweep that has been looked at."""
    tracking.check()
    if sweep.search == "tpe":
        searching.check_optuna()
    record = _opened(sweep, out, templates)
    with run_lock.alone(out / FOLDER / f".{sweep.name}", _going_on(sweep.name)):
        record.write(out)
        if listener is not None:
            listener.begin(record, sweep)
        try:
            _Sweeping(sweep, record, out, tracking, listener, workers or cores()).go()
        finally:
            if listener is not None:
                listener.end()
    return Swept(record, out)


def _opened(sweep: Sweep, out: Path, templates: Mapping[str, Mapping[str, Any]]) -> Record:
    """The record of a sweep: what there is of it, or a new one."""
    definition = sweep.describe()
    record = read(out, sweep.name) or Record(name=sweep.name, definition=definition)
    if differing := differences(record.definition, definition):
        raise UserError(
            f"{place(out, sweep.name)} is of another sweep {sweep.name!r}: they differ in {', '.join(differing[:5])}",
            expected="the same one, or a name that is not taken",
            why="its trials would be taken for trials of this one",
            fix="give another name (name = …), or another folder (--out FOLDER)",
        )
    record.many = {side: sweep.many(side) for side in sweep.sides}
    record.templates = {side: dict(template) for side, template in templates.items()}
    return record


def _going_on(name: str) -> UserError:
    return UserError(
        f"the sweep {name} is going on in another process",
        expected="one process for a sweep",
        why="both would make the same runs",
        fix=f"wait for it, or look at it with `polyrhythm best {name}`",
    )


@final
@dataclass
class _Progress:
    """What has come of the runs of a trial."""

    trial: Trial
    sent: set[int] = field(default_factory=set)
    endings: dict[int, Ending] = field(default_factory=dict)


@final
class _Sweeping:
    """A sweep that is going on."""

    def __init__(
        self, sweep: Sweep, record: Record, out: Path, tracking: Tracking, listener: Listener | None, workers: int
    ) -> None:
        self.sweep, self.record, self.out, self.workers = sweep, record, out, workers
        self._tracking, self._listener = tracking, listener
        self._jobs: deque[tuple[_Progress | None, Job]] = deque()
        self._under_way: dict[tuple[str, int], tuple[_Progress | None, Job]] = {}
        self._bars: dict[str, dict[int, float]] = {}

    def go(self) -> None:
        """All of it."""
        for trial in self.record.trials:
            if trial.state == "failed" and trial.reason.startswith(_DIED):
                trial.state, trial.reason = "waiting", ""  # perhaps there is more memory now
        makes = {name: side.make for name, side in self.sweep.sides.items()}
        with crew(makes, self.workers) as hands:
            while self._begin_batch():
                self._work(hands)
            self._choose()
            self._work(hands)

    def _work(self, hands: Crew) -> None:
        hands.work_off(self, self._hear)

    def _begin_batch(self) -> bool:
        """Puts the jobs of the next batch of every side in the queue; says whether there are any trials left."""
        more = False
        for side, own in self.sweep.sides.items():
            before = self.record.of(side)
            waiting = [trial for trial in before if not trial.over]
            if not waiting:
                settings = searching.next_batch(self.sweep, side, before)
                first = len(before) + 1
                waiting = [Trial(side=side, number=first + i, setting=s) for i, s in enumerate(settings)]
                self.record.trials += waiting
            for trial in waiting:
                trial.setting = restored(own, trial.setting)
            more = more or bool(waiting)
            self._bars[side] = self._bars_of(side, waiting)
            for trial in waiting:
                self._begin(trial)
        if more:
            self.record.write(self.out)
        return more

    def _bars_of(self, side: str, waiting: list[Trial]) -> dict[int, float]:
        """What the runs of a batch must reach: by the trials of the batches before it."""
        if self.sweep.prune is None or not waiting:
            return {}
        size = self.sweep.batch
        earlier = (waiting[0].number - 1) // size * size
        seed, histories = self.sweep.seeds[0], []
        for trial in self.record.of(side)[:earlier]:
            if trial.state in ("finished", "pruned") and trial.same_as is None:
                run = Run.open(trial.runs[seed], self.out)
                histories.append(history_of(run.versions, run.headline))
        return searching.bars(histories, self.sweep.prune)

    def _begin(self, trial: Trial) -> None:
        """Sends out the runs of a trial, unless an earlier one has the same setting."""
        text = to_json(dict(trial.setting))
        for other in self.record.of(trial.side):
            if other.number < trial.number and other.same_as is None and to_json(dict(other.setting)) == text:
                trial.same_as = other.number
                if other.over:
                    self._copy(other, trial)
                return
        progress = _Progress(trial)
        seeds = self.sweep.seeds[:1] if self.sweep.prune else self.sweep.seeds
        for seed in seeds:
            self._send(progress, seed)

    def _send(self, progress: _Progress, seed: int) -> None:
        trial = progress.trial
        job = Job(
            side=trial.side,
            name=called(self.sweep.name, trial.side, trial.number),
            setting=trial.setting,
            seed=seed,
            out=str(self.out),
            bars=self._bars[trial.side] if seed == self.sweep.seeds[0] else {},
            tracking=self._tracking,
        )
        progress.sent.add(seed)
        self._jobs.append((progress, job))

    def next(self) -> Job | None:
        """The next run to be made; those of trials that have failed meanwhile are left out."""
        while self._jobs:
            progress, job = self._jobs.popleft()
            if progress is None or not progress.trial.over:
                self._under_way[job.name, job.seed] = progress, job
                return job
        return None

    def over(self, job: Job, ending: Ending) -> None:
        """A run has ended."""
        progress, _ = self._under_way.pop((job.name, job.seed))
        self.record.headline = ending.headline or self.record.headline
        if progress is None:
            if ending.run:
                self.record.chosen.setdefault(job.side, {})[job.seed] = ending.run
            self.record.write(self.out)
            return
        trial = progress.trial
        progress.endings[job.seed] = ending
        if ending.run:
            trial.runs[job.seed] = ending.run
        if (score := judged(ending.history, self.sweep.by)) is not None:
            trial.scores[job.seed] = score
        if trial.over:  # another of its runs has failed before
            return
        self._settle(progress, job.seed, ending, score)
        if trial.over:
            self._finish(trial)

    def _settle(self, progress: _Progress, seed: int, ending: Ending, score: float | None) -> None:
        trial, seeds = progress.trial, self.sweep.seeds
        if ending.state in ("failed", "died"):
            trial.state = "failed"
            trial.reason = f"{_DIED if ending.state == 'died' else ''}{ending.reason} (seed {seed})"
        elif ending.state == "pruned":
            trial.state, trial.reason, trial.score = "pruned", ending.reason, score
        elif score is None:
            trial.state, trial.reason = "failed", f"no score on the validation data (seed {seed})"
        elif len(progress.endings) == len(seeds):
            trial.state = "finished"
            trial.score = math.fsum(trial.scores[s] for s in seeds) / len(seeds)
        elif seed == seeds[0] and self.sweep.prune:
            for other in seeds[1:]:
                self._send(progress, other)

    def _finish(self, trial: Trial) -> None:
        trial.runs = dict(sorted(trial.runs.items()))
        trial.scores = dict(sorted(trial.scores.items()))
        if self._listener is not None:
            self._listener.over(trial)
        for other in self.record.of(trial.side):
            if other.same_as == trial.number:
                self._copy(trial, other)
        self.record.write(self.out)

    def _copy(self, trial: Trial, other: Trial) -> None:
        """The results of a trial are those of another one with the same setting."""
        other.state, other.score, other.reason = trial.state, trial.score, trial.reason
        other.scores, other.runs = dict(trial.scores), dict(trial.runs)
        if self._listener is not None:
            self._listener.over(other)

    def _choose(self) -> None:
        """Puts the runs of each side's best setting over fresh seeds in the queue."""
        for side, own in self.sweep.sides.items():
            found = best(self.record.trials, side)
            if found is None:
                continue
            if self.record.best.get(side) != found.number:  # with more trials another one may be the best
                self.record.best[side], self.record.chosen[side] = found.number, {}
            for seed in self.sweep.fresh:
                if seed not in self.record.chosen[side]:
                    job = Job(
                        side=side,
                        name=called(self.sweep.name, side, BEST),
                        setting=restored(own, found.setting),
                        seed=seed,
                        out=str(self.out),
                        tracking=self._tracking,
                    )
                    self._jobs.append((None, job))

    def _hear(self, job: Job, version: int, rounds: int | None, score: float | None) -> None:
        if self._listener is not None:
            self._listener.version(job, version, rounds, score)


_DIED = "its process died: "


def judged(history: searching.History, by: Judge) -> float | None:
    """The number that judges a run; the initial model is no result of it. None if there is none that is finite."""
    scores = [score for version, score in history if version > 0]
    if not scores:
        return None
    last = scores[-_WINDOW:]
    found = {"final": scores[-1], "best": max(scores), "last20": math.fsum(last) / len(last)}[by]
    return found if math.isfinite(found) else None


def restored(side: Side, setting: Setting) -> Setting:
    """A setting as the side's own values: a file has lists where a tuple may be meant."""
    found = {}
    for key, value in setting.items():
        values = side.space.get(key, ())
        choices = () if isinstance(values, Range) else values
        found[key] = next((choice for choice in choices if to_json(choice) == to_json(value)), value)
    return found
