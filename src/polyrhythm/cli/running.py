"""`polyrhythm run`: one run per seed, each with its plan, its progress and its result."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from polyrhythm.base.errors import PolyrhythmError, RunFailed
from polyrhythm.cli.consenting import again_with
from polyrhythm.cli.guard import INTERRUPTED, stopped_by_sigterm
from polyrhythm.cli.named_runs import how_to_go_on, how_to_show
from polyrhythm.cli.output import Screen, print_json
from polyrhythm.cli.run_display import print_plan, print_result, print_spread
from polyrhythm.cli.run_warnings import Refused
from polyrhythm.cli.run_words import line_of
from polyrhythm.config.assembly import assemble
from polyrhythm.config.keys import Configuration
from polyrhythm.experiments.execution import Execution
from polyrhythm.experiments.experiment import Experiment
from polyrhythm.experiments.prepared import prepare
from polyrhythm.experiments.resume import is_done, lost_runs, same_experiment
from polyrhythm.experiments.run import Launch
from polyrhythm.experiments.session import in_words
from polyrhythm.results import Run
from polyrhythm.results.progress import LiveProgress
from polyrhythm.trackers import Tracking


def run_all(configuration: Configuration, *, as_json: bool, resume: bool = False, log_updates: bool = False) -> None:
    """One run per seed; with `resume`, what each already has is taken up. A seed that fails leaves the others alone.

    Raises:
        UserError: something is wrong that can be known before the first round.
        RunFailed: a run could not go on; its record is kept. Of several seeds, after all of them.
        typer.Exit: a run was stopped.
    """
    screen = Screen(stderr=as_json)
    summaries: list[dict[str, Any]] = []
    failed: list[int] = []
    many = len(configuration.seeds or (configuration.seed,))
    configuration.tracking.check()
    with stopped_by_sigterm():
        for number, experiment in enumerate(assemble(configuration), start=1):
            if many > 1:
                screen.print(f"seed {experiment.seed}, {number} of {many}", style="bold", highlight=False)
            earlier = same_experiment(experiment, configuration.out) if resume else None
            how: dict[str, Any] = {"earlier": earlier, "log_updates": log_updates, "as_json": as_json}
            how["tracking"] = configuration.tracking
            how["notices"] = lost_runs(configuration.out) if resume and earlier is None else ()
            try:
                summary = run_one(
                    experiment, configuration.execution, configuration.out, screen, planned=number > 1, **how
                )
            except RunFailed as error:
                if many == 1:
                    raise
                failed.append(experiment.seed)
                typer.echo(f"failed: seed {experiment.seed}: {error}", err=True)
                continue
            summaries.append(summary)
            if summary["status"] == "stopped":
                left = many - number
                if left and (again := again_with("--resume auto")):
                    say = f"with the {left} other seed{'s' * (left > 1)}, too: {again}"
                    screen.print(say, markup=False, highlight=False, soft_wrap=True)
                raise typer.Exit(INTERRUPTED)
    if len(summaries) > 1 and not as_json:
        print_spread(screen, summaries)
    if failed:
        raise RunFailed(f"{len(failed)} of {many} seeds have no result: {', '.join(map(str, failed))}; see above")


def run_one(
    experiment: Experiment,
    execution: Execution,
    out: str,
    screen: Screen,
    *,
    earlier: Run | None = None,
    log_updates: bool = False,
    tracking: Tracking | None = None,
    notices: Sequence[str] = (),
    planned: bool = False,
    as_json: bool,
) -> dict[str, Any]:
    """A run, or the rest of an earlier one; one that has finished, with nothing left to do, is shown.

    Raises:
        UserError: something is wrong that can be known before the first round.
        RunFailed: it could not go on; its record is kept.
    """
    if earlier is not None and is_done(earlier) and experiment.rounds == earlier.config["rounds"]:
        screen.note(f"{earlier.id} has finished already")
        return _show(earlier, screen, out, as_json)
    prepared = prepare(experiment, execution)  # builds and checks the model before anything is said
    how: dict[str, Any] = {"log_updates": log_updates, "tracking": tracking, "say": screen.note, "notices": notices}
    launch = Launch(prepared, out, earlier, **how)
    if not as_json and not planned:
        print_plan(screen, prepared)
    for notice in prepared.notices():
        screen.note(notice)
    for note in (*notices, *launch.notes):
        screen.note(note)
    recorder, refused = launch.recorder, Refused()
    try:
        summary = launch.carry_out([refused, LiveProgress(screen)])
    except Exception as error:
        if not recorder.began:
            raise _before_the_record(error) from error
        known = _known(launch)
        if as_json:
            print_json({"run_id": recorder.run_id, **known, "status": "failed", "reason": in_words(error)})
        kept = f"what was recorded is kept: {how_to_show(recorder.run_id, out)}" if known else "there is no record"
        raise RunFailed(_explained(error, recorder.path, kept)) from error
    run = launch.opened()
    said = {*prepared.notices(), *notices, *launch.notes}
    for notice in (*refused.notices(), *(notice for notice in run.notices if notice not in said)):
        screen.note(notice)
    return _told(run, summary, screen, out, as_json)


def _known(launch: Launch) -> dict[str, Any]:
    """What the record says of a run that has failed; nothing if there is none, or none that can be read."""
    try:
        return line_of(launch.opened())
    except PolyrhythmError:
        return {}


def _show(run: Run, screen: Screen, out: str, as_json: bool) -> dict[str, Any]:
    return _told(run, {"status": run.status, "reason": run.reason, **run.summary}, screen, out, as_json)


def _told(run: Run, summary: dict[str, Any], screen: Screen, out: str, as_json: bool) -> dict[str, Any]:
    if as_json:
        print_json(line_of(run, summary))
    else:
        print_result(screen, run, summary, out)
    if summary["status"] == "stopped":
        screen.print(f"to go on: {how_to_go_on(run, out)}", markup=False, highlight=False, soft_wrap=True)
    return summary


def _before_the_record(error: Exception) -> Exception:
    return error if isinstance(error, PolyrhythmError) else RunFailed("".join(traceback.format_exception(error)))


def _explained(error: Exception, folder: Path, kept: str) -> str:
    """Readable lines; the traceback of what nobody foresaw goes into the run's folder."""
    if isinstance(error, PolyrhythmError):
        return f"{error}\n{kept}"
    log = folder / "error.log"
    told = "".join(traceback.format_exception(error))
    try:
        log.write_text(told, encoding="utf-8")
    except OSError as unwritten:  # such as a full disk, which may be what failed
        return f"{in_words(error)}\n{told}the traceback could not be kept ({unwritten.strerror}); {kept}"
    return f"{in_words(error)}\nthe traceback is in {log}; {kept}"
