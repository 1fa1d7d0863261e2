"""Runs that are kept: carried out, and recorded in a folder; new ones, and earlier ones that go on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, final

from polyrhythm.base.errors import check_kind
from polyrhythm.experiments.data_snapshot import Portrait
from polyrhythm.experiments.execution import AUTO, Execution
from polyrhythm.experiments.experiment import Experiment
from polyrhythm.experiments.prepared import Prepared, prepare
from polyrhythm.experiments.resume import is_done, lost_runs, same_experiment, take_up
from polyrhythm.experiments.room import check_room
from polyrhythm.experiments.runstate import CODEC
from polyrhythm.experiments.session import Backend, carry_out
from polyrhythm.experiments.sums import check_log
from polyrhythm.experiments.usable import Usable, maker
from polyrhythm.results import Run
from polyrhythm.results.run import remember
from polyrhythm.runs.checkpointing import Keeper
from polyrhythm.runs.live import Live
from polyrhythm.runs.observer import Observer
from polyrhythm.runs.recorder import Recorder
from polyrhythm.runs.stop_request import Stopping
from polyrhythm.runs.updates import START, UpdateLog
from polyrhythm.trackers.base import Say, Tracking, trackers


def run(
    experiment: Experiment,
    *,
    execution: Execution = AUTO,
    out: Path | str = "runs",
    observers: Sequence[Observer] = (),
    resume: Literal["auto", "never"] = "never",
    log_updates: bool = False,
    tracking: Tracking | None = None,
) -> Run:
    """Carries out an experiment and keeps its record.

    Ctrl-C stops it at the next step, with a checkpoint; a second one at once, with what there is.

    Args:
        experiment: what to do.
        execution: how.
        out: the folder of the record, shared by any number of runs.
        observers: whoever else wants to know how it goes.
        resume: "auto" goes on with the newest run of the same experiment in that folder, or gives it if it has
            finished; if there is none, or with "never", a new one begins.
        log_updates: also keep every report, as large as the model, so that the server's part can be replayed alone.
        tracking: trackers that are told, too, such as `pr.Tracking(track=("tensorboard",))`.

    Returns:
        The recorded run.

    Raises:
        UserError: something is wrong that can be known before the first round.
        RunFailed: the run could not go on; what it had is recorded.
    """
    _check(experiment, execution, out)
    earlier = same_experiment(experiment, out) if resume == "auto" else None
    if earlier is not None and is_done(earlier):
        return remember(earlier, maker(experiment))
    prepared = prepare(experiment, execution)
    notices = lost_runs(out) if resume == "auto" and earlier is None else ()
    launch = Launch(prepared, out, earlier, log_updates=log_updates, tracking=tracking, notices=notices)
    launch.carry_out(observers)
    return launch.opened()


def resume(
    experiment: Experiment,
    run: Run | str,
    *,
    execution: Execution = AUTO,
    out: Path | str = "runs",
    observers: Sequence[Observer] = (),
) -> Run:
    """Goes on with a run that was killed, stopped or failed, from its last checkpoint.

    Its weights, history and costs are those of a run that nothing has happened to, bit for bit. A checkpoint with which
    the record does not agree gives way to the one before it, with a notice. With more `rounds` in the experiment than
    before, a finished run goes on, too; and if rows of it are missing from the record, to make them again.

    Args:
        experiment: the same one.
        run: the run, its id, its name, or a unique beginning of its id.
        execution: how it goes on: another driver changes no number, another engine rounds otherwise.
        out: the folder of its record.
        observers: whoever else wants to know how it goes.

    Returns:
        The recorded run.

    Raises:
        UserError: another experiment, a run that has finished or is going on, or more rounds where a part of the recipe
            reads their number.
        RunFailed: the run could not go on; what it had is recorded.
    """
    _check(experiment, execution, out)
    check_kind("run", run, (Run, str), "pr.Run.open('night')")
    earlier = run if isinstance(run, Run) else Run.open(run, out)
    launch = Launch(prepare(experiment, execution), earlier.folder, earlier)
    launch.carry_out(observers)
    return launch.opened()


def _check(experiment: object, execution: object, out: object) -> None:
    check_kind("experiment", experiment, Experiment, "pr.Experiment(federation=…, model='mlp', recipe=…, rounds=30)")
    check_kind("execution", execution, Execution, "pr.Execution(workers=2)")
    check_kind("out", out, (Path, str), "'runs'")


@final
class Launch:
    """A run before it is carried out, with those who keep its record. A log of updates is gone on with.

    Args:
        prepared: what to do, and how.
        out: the folder of the record.
        earlier: the run that goes on; None for a new one.
        on_nodes: whether nodes of a real federation are to carry it out.
        log_updates: whether every report is kept, too.
        tracking: trackers that are told.
        say: takes what a tracker has to warn of.
        notices: to be kept beside those of the experiment.

    Raises:
        UserError: the earlier run cannot go on, a tracker is not installed, or there is no room on the disk.
    """

    def __init__(
        self,
        prepared: Prepared,
        out: Path | str,
        earlier: Run | None = None,
        *,
        on_nodes: bool = False,
        log_updates: bool = False,
        tracking: Tracking | None = None,
        say: Say | None = None,
        notices: Sequence[str] = (),
    ) -> None:
        if log_updates and prepared.recipe.sums_only:
            check_log()
        taken_up = None if earlier is None else take_up(earlier, prepared, on_nodes=on_nodes)
        check_room(prepared, Path(out))
        self.notes: tuple[str, ...] = () if taken_up is None else taken_up.notes
        """What is to be said of a run that goes on."""
        keeper = Keeper(prepared.execution.checkpoint, CODEC)
        self.recorder = recorder = Recorder(out, keeper=keeper, taken_up=taken_up, notices=notices)
        self._prepared, self._start = prepared, None if taken_up is None else taken_up.start
        use = Usable(prepared.experiment, lambda: recorder.path)
        self._observers: list[Observer] = [recorder, use, Portrait(prepared, lambda: recorder.path)]
        if log_updates or (taken_up is not None and (Path(out) / taken_up.run_id / START).exists()):
            self._observers.append(UpdateLog(lambda: recorder.path, CODEC))
        if tracking is not None:
            self._observers += trackers(tracking, Path(out), lambda: recorder.run_id, say)
        self._observers += [Stopping(lambda: recorder.path), Live(lambda: recorder.path)]

    def carry_out(self, observers: Sequence[Observer] = (), *, backend: Backend | None = None) -> dict[str, Any]:
        """Carries it out, and gives its summary; the arguments and errors are those of `session.carry_out`."""
        return carry_out(self._prepared, [*self._observers, *observers], start=self._start, backend=backend)

    def opened(self) -> Run:
        """Its record, once it has begun."""
        opened = Run.open(self.recorder.run_id, self.recorder.folder)
        return remember(opened, maker(self._prepared.experiment))
