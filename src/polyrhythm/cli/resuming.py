"""`polyrhythm resume`: a recorded run goes on, as the experiment that its record describes."""

from __future__ import annotations

from typing import Any

import typer
from pydantic import ValidationError

from polyrhythm.base.consent import NOBODY, Trust, check_cluster
from polyrhythm.base.errors import Mistakes, UserError
from polyrhythm.cli.guard import INTERRUPTED, stopped_by_sigterm
from polyrhythm.cli.output import Screen
from polyrhythm.cli.running import run_one
from polyrhythm.config.assembly import assemble
from polyrhythm.config.configuration import OF_THE_MACHINE, TAKES, Configuration, configure
from polyrhythm.config.mistakes import explained
from polyrhythm.experiments.experiment import Experiment
from polyrhythm.runs import Run

_NOT_CONFIGURED = {"resolved", "computed_by"}  # which follows from the rest


def resume_run(
    reference: str,
    out: str,
    *,
    rounds: int | None,
    as_json: bool,
    track: str | None = None,
    trust: Trust,
    **changes: Any,
) -> None:
    """Goes on with a run; `changes` may name another driver and its workers.

    Raises:
        UserError: there is no such run, or it cannot go on.
        RunFailed: it could not go on; its record is kept.
        typer.Exit: it was stopped.
    """
    screen, run = Screen(stderr=as_json), Run.open(reference, out)
    tracking = configure(None, {"track": track}, []).trackers
    with stopped_by_sigterm():
        experiment = experiment_of(run, rounds=rounds, trust=trust, **changes)
        summary = run_one(experiment, out, screen, earlier=run, tracking=tracking, as_json=as_json)
    if summary["status"] == "stopped":
        raise typer.Exit(INTERRUPTED)


def experiment_of(run: Run, *, rounds: int | None = None, trust: Trust = NOBODY, **changes: Any) -> Experiment:
    """The experiment that a run is one of; the arguments are those of `configuration_of`.

    Raises:
        UserError: it was made in Python, something that it needs is not there any more, or it was computed on a Ray
            cluster that the user has not named.
    """
    configuration = configuration_of(run, rounds=rounds, trust=trust, **changes)
    if changes.get("address") is None:
        check_cluster(configuration.address, trust, f"the record of {run.id}")
    (experiment,) = assemble(configuration)
    return experiment


def configuration_of(run: Run, *, rounds: int | None = None, trust: Trust = NOBODY, **changes: Any) -> Configuration:
    """A run's experiment as it was written, with the engine and the driver that it had.

    Args:
        run: the run.
        rounds: how many; None for as many as it was started with.
        trust: the modules that the user has named; the record cannot.
        changes: to what decides no number: driver, workers, address and gpus; None to leave it.

    Raises:
        UserError: it was made in Python, or the record says what no experiment can.
    """
    written = {key: value for key, value in run.config.items() if key not in _NOT_CONFIGURED}
    if "resolved" not in run.config:
        raise UserError(
            f"{run.id} was started from Python",
            expected="a run that `polyrhythm run` has started",
            why="its record describes its experiment, but cannot make its model and data",
            fix="use pr.resume(experiment, run), pr.verify or pr.replay, with the experiment that it was started with",
        )
    if rounds is not None:
        written["rounds"] = rounds
    # The engine that computed, whatever had been asked for and would be chosen today.
    written["engine"] = str(run.config["computed_by"]).partition(" ")[0]
    carried = ("checkpoint",) if run.on_nodes else (*OF_THE_MACHINE, "checkpoint")
    written |= {key: run.machine[key] for key in carried if key in run.machine}
    given = {key: value for key, value in changes.items() if value is not None}
    if (driver := given.get("driver", written.get("driver"))) != written.get("driver"):
        written["workers"] = None
    if driver != "ray":
        written |= {"address": None, "gpus": None}
    written |= given
    try:
        made = Configuration.model_validate({**written, "out": str(run.folder), "name": run.name})
    except ValidationError as error:
        wrong = Mistakes()
        wrong.add(*explained(error, TAKES, lambda key: f"the record of {run.id}"))
        wrong.refuse()
        raise
    return made.trusting(trust)
