"""Carries out a reproduction, or what is left of it: tunes rates if asked to, then every cell over its seeds."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, final

from polyrhythm.base.errors import Mistakes, UserError
from polyrhythm.experiments.prepared import prepare, what_and_how
from polyrhythm.results import Run
from polyrhythm.runs import run_lock
from polyrhythm.runs.json_text import to_json
from polyrhythm.simulation.workers.choosing import cores
from polyrhythm.studies.searches.checking import check as check_sweep
from polyrhythm.studies.searches.crew import crew
from polyrhythm.studies.searches.definition import Judge, Side, Sweep
from polyrhythm.studies.searches.performing import Ending, Job
from polyrhythm.studies.searches.result import Swept
from polyrhythm.studies.searches.space import Setting
from polyrhythm.studies.searches.sweeping import Listener as SweepListener
from polyrhythm.studies.searches.sweeping import carry_out as sweep_through
from polyrhythm.studies.tables.definition import CellMaker, Scaled, Tuning, laid_over
from polyrhythm.trackers import Tracking

TUNING = "tuning"
_JUDGES: Mapping[str, Judge] = {"final": "final", "best": "best", "last10": "last20", "last20": "last20"}


class Listener(Protocol):
    """Whoever wants to know how it goes."""

    def tuning(self) -> SweepListener:
        """Rates are chosen now; whoever wants to know how that goes."""

    def begin(self, jobs: int) -> None:
        """The runs begin."""

    def version(self, job: Job, version: int, rounds: int | None, score: float | None) -> None:
        """A run has come to a version."""

    def over(self, job: Job, ending: Ending) -> None:
        """A run has ended."""

    def end(self) -> None:
        """Nothing more will be said."""


@final
@dataclass(kw_only=True)
class Made:
    """What came of the runs.

    Args:
        scaled: what was run.
        folder: of the runs.
        runs: by row and column, then by seed.
        failed: why runs failed, by row, column and seed.
        chosen: the tuned values of each cell.
        tuned: the sweeps that chose them.
    """

    scaled: Scaled
    folder: Path
    runs: dict[tuple[str, str], dict[int, Run]] = field(default_factory=dict)
    failed: dict[tuple[str, str, int], str] = field(default_factory=dict)
    chosen: dict[tuple[str, str], Setting] = field(default_factory=dict)
    tuned: dict[tuple[str, str], Swept] = field(default_factory=dict)


def folder_of(scaled: Scaled, out: Path | str) -> Path:
    """Where the runs of a reproduction are kept."""
    return Path(out) / "reproduce" / scaled.of.name / scaled.scale


def carry_out(scaled: Scaled, out: Path | str, workers: int | None, listener: Listener | None = None) -> Made:
    """Makes all runs that are not there yet, of what `check` has looked at.

    Stopped and called again it goes on: runs that are over are kept, those under way go on from their last checkpoint.

    Args:
        scaled: what is run.
        out: the folder of all records.
        workers: runs at once, each in a process of its own with one thread; None for as many as there are processors.
        listener: whoever wants to know how it goes.

    Raises:
        UserError: what is tuned has no validation data, or another process is at it.
        KeyboardInterrupt: it was stopped.
    """
    made = Made(scaled=scaled, folder=folder_of(scaled, out))
    workers = workers or cores()
    with run_lock.alone(made.folder / ".reproducing", _going_on(scaled)):
        if scaled.tuning is not None:
            _tune(made, scaled.tuning, workers, listener)
        _Cells(made, listener).go(workers)
    return made


def _going_on(scaled: Scaled) -> UserError:
    return UserError(
        f"{scaled.of.name} is going on in another process at scale {scaled.scale}",
        expected="one process for a reproduction",
        why="both would make the same runs",
        fix="wait for it, or give another folder (--out FOLDER)",
    )


def check(scaled: Scaled) -> None:
    """Goes on if every cell makes an experiment.

    Raises:
        UserError: some do not; each mistake once, with the first cell that has it.
    """
    wrong, told = Mistakes(), set[str]()
    for cell in scaled.cells:
        try:
            prepare(*what_and_how(cell.make({}, scaled.seeds[0])))  # builds the model, and checks it against the data
        except UserError as error:
            for mistake in error.mistakes:
                if str(mistake) not in told:
                    told.add(str(mistake))
                    wrong.add(mistake.at(f"{scaled.of.name} ({cell.name})"))
    wrong.refuse()
    if scaled.tuning is not None and {*scaled.tuning.seeds} & {*scaled.seeds}:
        raise UserError(
            f"{scaled.of.name}: seeds {sorted({*scaled.tuning.seeds} & {*scaled.seeds})} tune and are compared",
            expected="other seeds for the comparison than for the tuning",
            why="the chosen rates are the best ones on the seeds that they were tuned with, partly by luck",
            fix="--seeds with others",
        )


def _tune(made: Made, tuning: Tuning, workers: int, listener: Listener | None) -> None:
    """Chooses the values of every cell that has several to choose from: a sweep for each."""
    scaled = made.scaled
    columns = (tuning.column,) if tuning.column else scaled.columns
    sweeps = {(row, c): sweep for c in columns for row in scaled.rows if (sweep := _sweep(scaled, row, c, tuning))}
    for sweep in sweeps.values():
        check_sweep(sweep)
    for (row, column), sweep in sweeps.items():
        hears = None if listener is None else listener.tuning()
        found = sweep_through(sweep, made.folder / TUNING, workers, Tracking(), hears, {})
        best = found.best("")
        for other in scaled.columns if tuning.column else (column,):
            made.tuned[row, other] = found
            if best is not None:
                made.chosen[row, other] = best.setting
            for seed in scaled.seeds if best is None else ():
                made.failed[row, other, seed] = "no setting that was tried came to an end"


def _sweep(scaled: Scaled, row: str, column: str, tuning: Tuning) -> Sweep | None:
    """The sweep of a cell; None if it has nothing to choose from."""
    cell = scaled.cell(row, column)
    space = {**tuning.space, **tuning.rows.get(row, {})}
    if not space:
        return None
    make = CellMaker(maker=cell.make.maker, fixed=laid_over(cell.make.fixed, tuning.over))
    side = Side(make=make, space=space, about={**make.maker.values, **make.fixed})
    # A file that was changed is another sweep, which needs another name.
    what = hashlib.sha256(to_json([side.describe(), tuning.seeds, scaled.of.measure]).encode()).hexdigest()
    name = f"{cell.name.replace('/', '|')} {what[:6]}"
    return Sweep(name=name, sides={"": side}, seeds=tuning.seeds, by=_JUDGES[scaled.of.measure])


@final
class _Cells:
    """The runs of all cells: what is left to be made, and what came of it."""

    def __init__(self, made: Made, listener: Listener | None) -> None:
        self._made, self._listener = made, listener
        scaled = made.scaled
        self._jobs: deque[Job] = deque()
        self._cells = {cell.name: cell for cell in scaled.cells}
        for seed in scaled.seeds:
            for cell in scaled.cells:
                if (cell.row, cell.column, seed) not in made.failed:
                    chosen = made.chosen.get((cell.row, cell.column), {})
                    out = str(made.folder)
                    self._jobs.append(Job(side=cell.name, name=cell.name, setting=chosen, seed=seed, out=out))

    def go(self, workers: int) -> None:
        """All of it."""
        if self._listener is not None:
            self._listener.begin(len(self._jobs))
        try:
            with crew({name: cell.make for name, cell in self._cells.items()}, workers) as hands:
                hands.work_off(self, self._hear)
        finally:
            if self._listener is not None:
                self._listener.end()

    def next(self) -> Job | None:
        """The next run to be made."""
        return self._jobs.popleft() if self._jobs else None

    def over(self, job: Job, ending: Ending) -> None:
        """A run has ended."""
        cell = self._cells[job.side]
        if ending.state == "finished":
            run = Run.open(ending.run, job.out)
            self._made.runs.setdefault((cell.row, cell.column), {})[job.seed] = run
        else:
            self._made.failed[cell.row, cell.column, job.seed] = ending.reason
        if self._listener is not None:
            self._listener.over(job, ending)

    def _hear(self, job: Job, version: int, rounds: int | None, score: float | None) -> None:
        if self._listener is not None:
            self._listener.version(job, version, rounds, score)
