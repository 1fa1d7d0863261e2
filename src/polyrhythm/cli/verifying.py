"""`polyrhythm verify` and `replay`: does a recorded run come out again?"""

from __future__ import annotations

import dataclasses
from typing import Any

import typer

from polyrhythm.base.consent import Trust
from polyrhythm.base.errors import UserError
from polyrhythm.base.streams import seeded_everywhere
from polyrhythm.base.vectors import spans_of
from polyrhythm.cli.guard import stopped_by_sigterm
from polyrhythm.cli.output import Screen, print_json
from polyrhythm.cli.resuming import experiment_of
from polyrhythm.config import names
from polyrhythm.config.written import configuration_of
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.experiments.adapters import adapters_for, for_adapters
from polyrhythm.experiments.in_memory import begun_with
from polyrhythm.experiments.replay import ServerSide, log_start, replay, replay_server
from polyrhythm.experiments.verify import Verdict, verify
from polyrhythm.methods.mechanism import Setup
from polyrhythm.models.building import build
from polyrhythm.results import Run
from polyrhythm.runs.environment import differences


def verify_run(
    reference: str,
    out: str,
    *,
    from_checkpoint: bool,
    versions: int | None,
    as_json: bool,
    trust: Trust,
    **changes: Any,
) -> None:
    """Runs a recorded run again and compares; ends with exit code 1 if something differs.

    Raises:
        UserError: there is no such run, or it cannot be run again.
        RunFailed: it could not go on.
        typer.Exit: something differs.
    """
    run = Run.open(reference, out)
    with stopped_by_sigterm():
        experiment, execution = experiment_of(run, trust=trust, **changes)
        verdict = verify(run, experiment, execution=execution, from_checkpoint=from_checkpoint, versions=versions)
    tell(verdict, as_json=as_json)


def replay_run(reference: str, out: str, *, from_updates: bool, as_json: bool, trust: Trust, **changes: Any) -> None:
    """Takes a run's events in their order; ends with exit code 1 if a version's model is another one.

    Raises:
        UserError: there is no such run, or it has no log.
        RunFailed: the log is of another run.
        typer.Exit: something differs.
    """
    run = Run.open(reference, out)
    with stopped_by_sigterm():
        if from_updates:
            verdict = replay_server(run, server_of(run, trust), tuple(differences(run.libraries, run.machine)))
        else:
            experiment, execution = experiment_of(run, trust=trust, **changes)
            verdict = replay(run, experiment, execution=execution)
    tell(verdict, as_json=as_json)


def server_of(run: Run, trust: Trust) -> ServerSide:
    """The server's side of a run, from its record and the beginning of its log of updates: no data are read.

    Raises:
        UserError: there is no log, or clients trained parts of the model, which nobody finds without a batch of data.
    """
    start, configuration = log_start(run), configuration_of(run, trust=trust)
    with seeded_everywhere(configuration.seed, "init"):
        module = build(names.model(configuration.model or "mlp", trust), start.shape, start.outputs)
    recipe = names.recipe(configuration.method, trust)
    module = begun_with(for_adapters(recipe, module), configuration.init, configuration.init_skip)
    engine = TorchEngine(module, names.task(start.task))
    if not recipe.capacity.whole:
        raise UserError(
            f"run {run.id} from its updates alone, whose clients train parts of the model ({recipe.capacity.label()})",
            expected="a method in which every client trains all of it",
            why="which coordinates a client held is found by a batch of the data, and no data are read here",
            fix=f"polyrhythm replay {run.id}, which reads the data",
        )
    fleet = names.fleet(configuration.fleet, trust)
    setup = Setup(
        size=engine.layout.size,
        dtype=engine.layout.dtype,
        population=start.population,
        total_rounds=configuration.rounds,
        seed=configuration.seed,
        budgets=fleet.budgets,
        eligible=len(start.clients),
        places=spans_of(engine.layout),
        steady=fleet.steady,
        adapters=adapters_for(recipe, engine.at_rest(), engine.layout),
    )
    return ServerSide(recipe=recipe, setup=setup, engine=engine, initial=start.initial, clients=start.clients)


def tell(verdict: Verdict, *, as_json: bool) -> None:
    """Prints a verdict.

    Raises:
        typer.Exit: something differs.
    """
    screen = Screen(stderr=as_json)
    for note in verdict.notes:
        screen.note(note)
    if as_json:
        print_json({**dataclasses.asdict(verdict), "equal": verdict.equal})
    else:
        screen.print(str(verdict), highlight=False, markup=False, soft_wrap=True)
    if not verdict.equal:
        raise typer.Exit(1)
