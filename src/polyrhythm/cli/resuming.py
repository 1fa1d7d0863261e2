"""`polyrhythm resume`: a recorded run goes on, as the experiment that its record describes."""

from __future__ import annotations

from typing import Any

import typer

from polyrhythm.base.consent import NOBODY, Trust, check_cluster
from polyrhythm.cli.guard import INTERRUPTED, stopped_by_sigterm
from polyrhythm.cli.output import Screen
from polyrhythm.cli.running import run_one
from polyrhythm.config.assembly import assemble
from polyrhythm.config.configuration import configure
from polyrhythm.config.written import configuration_of
from polyrhythm.experiments.execution import Execution
from polyrhythm.experiments.experiment import Experiment
from polyrhythm.results import Run


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
    tracking = configure(None, {"track": track}, []).tracking
    with stopped_by_sigterm():
        experiment, execution = experiment_of(run, rounds=rounds, trust=trust, **changes)
        summary = run_one(experiment, execution, out, screen, earlier=run, tracking=tracking, as_json=as_json)
    if summary["status"] == "stopped":
        raise typer.Exit(INTERRUPTED)


def experiment_of(
    run: Run, *, rounds: int | None = None, trust: Trust = NOBODY, **changes: Any
) -> tuple[Experiment, Execution]:
    """The experiment that a run is one of, and how it is computed; the arguments are those of `configuration_of`.

    Raises:
        UserError: it was made in Python, something that it needs is not there any more, or it was computed on a Ray
            cluster that the user has not named.
    """
    configuration = configuration_of(run, rounds=rounds, trust=trust, **changes)
    if changes.get("address") is None:
        check_cluster(configuration.execution.address, trust, f"the record of {run.id}")
    (experiment,) = assemble(configuration)
    return experiment, configuration.execution
