"""The server's part of a real federation, whatever carries its messages: who is there, the record, the run."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import torch

from polyrhythm.base.errors import UserError
from polyrhythm.data.federation import Federation, Shares
from polyrhythm.data.schema import scaling_of, schema_of
from polyrhythm.deployment.messages import Greeting
from polyrhythm.deployment.node import layout_digest
from polyrhythm.deployment.registry import Clock, Nodes, Tell, Transport, WallClock
from polyrhythm.deployment.server import RemoteDriver
from polyrhythm.experiments.execution import AUTO, Execution
from polyrhythm.experiments.experiment import Experiment
from polyrhythm.experiments.prepared import Prepared, prepare
from polyrhythm.experiments.resume import same_experiment
from polyrhythm.experiments.run import Launch
from polyrhythm.fleet import Fleet
from polyrhythm.methods.secure_sum.summands import part_of
from polyrhythm.runs.charges import Charges
from polyrhythm.runs.observer import Observer
from polyrhythm.runs.records import Plan
from polyrhythm.simulation.cost_meter import Meter


@final
@dataclass(frozen=True, kw_only=True)
class Serving:
    """How a server waits, and what it keeps.

    Args:
        out: the folder of the record.
        resume: whether it goes on with the newest run of the same experiment in that folder, if there is one that has
            not finished.
        log_updates: whether what every client sends is kept, so that the server's part can be replayed alone.
        wait: seconds that it waits for every client to be there, at the start.
        returns: seconds that a visit waits for a node that went away; 0 for none, it is lost at once.
        alone: seconds that the server waits for anybody to invite before it gives up; and, where a deadline is over
            with too few reports, for the others.
        pause: seconds between two looks for answers.
    """

    out: Path | str = "runs"
    resume: bool = True
    log_updates: bool = False
    wait: float = 300.0
    returns: float = 120.0
    alone: float = 600.0
    pause: float = 0.1


def serve(
    experiment: Experiment,
    transport: Transport,
    serving: Serving = Serving(),  # frozen
    *,
    execution: Execution = AUTO,
    name: str = "flower",
    clock: Clock | None = None,
    observers: Callable[[Experiment], Sequence[Observer]] = lambda experiment: (),
    tell: Tell = print,
) -> dict[str, Any]:
    """Carries out an experiment on nodes that are there, and keeps its record as that of a simulation; its summary.

    Args:
        experiment: what to do. Its fleet says what clients can afford, and nothing else; of its training data only the
            shape of a sample is looked at here.
        transport: to the nodes.
        serving: how to wait, and what to keep.
        execution: what computes here, and how often a checkpoint is written; nodes have their own.
        name: what carries messages, for the record.
        clock: the time.
        observers: who else wants to know how it goes.
        tell: says what happens to nodes.

    Raises:
        UserError: nodes are missing, or the experiment is none for a real federation.
        RunFailed: the run could not go on; what it had is recorded.
    """
    check(experiment)
    clock = clock or WallClock()
    nodes = Nodes(transport, greeting(prepare(experiment, execution)), clock, tell=tell, pause=serving.pause)
    nodes.gather(serving.wait)
    experiment = as_declared(experiment, nodes.num_samples)
    # Every start has another key: no noise is ever added to two sums.
    prepared = prepare(experiment, execution, secret=secrets.randbits(256))
    earlier = same_experiment(experiment, serving.out, on_nodes=True) if serving.resume else None
    unfinished = earlier is not None and earlier.status != "finished"
    goes_on = earlier if unfinished else None
    launch = Launch(prepared, serving.out, goes_on, on_nodes=True, log_updates=serving.log_updates)
    backend = _OnNodes(
        prepared=prepared,
        name=name,
        serving=serving,
        transport=transport,
        nodes=nodes,
        clock=clock,
        run=lambda: launch.recorder.run_id,
        folder=lambda: launch.recorder.path,
        tell=tell,
        charges=Charges(lambda: launch.recorder.path),
    )
    for note in (*prepared.notices(), *backend.notes, *launch.notes):
        tell(f"note: {note}")
    announced = _Announces(lambda: tell(f"run {launch.recorder.run_id} in {serving.out}"))
    summary = launch.carry_out([announced, *observers(experiment)], backend=backend)
    return {"run_id": launch.recorder.run_id, **summary}


@final
class _Announces(Observer):
    """An observer that says when the run has an id."""

    def __init__(self, say: Callable[[], None]) -> None:
        self._say = say

    def begin(self, plan: Plan) -> None:
        self._say()


def greeting(prepared: Prepared) -> Greeting:
    """What nodes of an experiment are asked."""
    return Greeting(
        recipe=prepared.recipe.digest,
        title=prepared.recipe.title,
        layout=layout_digest(prepared.chosen.engine.layout),
        schema=schema_of(prepared.federation),
        population=prepared.federation.clients,
    )


def check(experiment: Experiment) -> None:
    """Refuses what is no experiment for a real federation.

    Raises:
        UserError: nothing would arrive, or nobody would be invited.
    """
    recipe = experiment.recipe
    if experiment.federation.unseen is not None:
        raise UserError(
            f"unseen = {experiment.federation.unseen.share:g} in a real federation",
            expected="a simulation, or clients that all take part",
            why="which nodes never train is not the server's to say: they hold the data, and are not tested here",
            fix="leave unseen out",
        )
    if recipe.regime != "federated":
        raise UserError(
            f"{recipe.title} in a real federation",
            expected="a recipe with a server and clients",
            why="it is a bound to compare with, in which nobody exchanges anything, or one client holds all data",
            fix="run it in the simulation",
        )
    hiding = recipe.releasing.hiding
    if hiding is not None and hiding[1].takes_back:
        raise UserError(
            f"{recipe.title} in a real federation",
            expected="dp without bands",
            why="noise that later versions take back would have to lie in checkpoints, and a server that was killed "
            "would take back other noise than it added",
            fix="leave bands out",
        )
    if recipe.sums_only and not part_of(recipe).real:
        raise UserError(
            f"{recipe.title} in a real federation",
            expected="secagg with real=true",
            why="without masks nodes would send their updates bare",
            fix="leave real=false out",
        )
    if recipe.capacity.statistics_apart:
        raise UserError(
            f"{recipe.capacity.label()}(static_norms=true) in a real federation",
            expected="a simulation",
            why="statistics of norms are of everybody's samples, and nodes are asked for updates only",
            fix='leave static_norms out, or take norm="group", which has no statistics',
        )
    if not recipe.participation.invites:
        raise UserError(
            f"{recipe.title} in a real federation",
            expected="a recipe that invites clients, such as rolling()",
            why="nodes stay connected: none of them would ever come by itself",
            fix="leave on_arrival out",
        )


def as_declared(experiment: Experiment, num_samples: Sequence[int]) -> Experiment:
    """The experiment with as many samples at each client as the nodes have said; the same one if it knew."""
    federation, sizes = experiment.federation, np.asarray(num_samples, dtype=np.int64)
    if np.array_equal(federation.sizes, sizes):
        return experiment
    shares = Shares(
        samples=federation.train,
        order=torch.zeros(0, dtype=torch.int64),  # which samples they are only the nodes know
        sizes=sizes,
        offsets=np.concatenate([[0], np.cumsum(sizes)]),
    )
    elsewhere: Federation = dataclasses.replace(federation, shares=shares, local_tests=None)
    return dataclasses.replace(experiment, federation=elsewhere)


@final
@dataclass(frozen=True, kw_only=True)
class _OnNodes:
    """The backend of a session: nodes."""

    prepared: Prepared
    name: str
    serving: Serving
    transport: Transport
    nodes: Nodes
    clock: Clock
    run: Callable[[], str]
    folder: Callable[[], Path]
    tell: Tell
    charges: Charges

    @property
    def at_once(self) -> int:
        return self.nodes.population

    @property
    def notes(self) -> tuple[str, ...]:
        here, fleet, notes = self.prepared.chosen.name, self.prepared.experiment.fleet, list[str]()
        others = sorted({engine for engine in self.nodes.engines.values() if engine != here})
        if others:
            notes.append(f"some nodes compute with {', '.join(others)}, where the rule chose {here} here")
        if scaling_of(self.prepared.federation.train) is not None:
            notes.append("inputs are scaled by the mean and standard deviation of the server's samples, at every node")
        if self.prepared.recipe.has_personal:
            notes.append("clients' own models lie at their nodes, and are not measured here")
        if fleet != Fleet(budgets=fleet.budgets):
            notes.append("devices, links and faults are those of the nodes, not of the experiment's fleet")
        return tuple(notes)

    def driver(self, meter: Meter) -> RemoteDriver:
        prepared, serving = self.prepared, self.serving
        return RemoteDriver(
            prepared.recipe,
            prepared.setup,
            prepared.chosen.engine.layout,
            meter,
            self.transport,
            self.nodes,
            self.clock,
            run=self.run,
            folder=self.folder,
            scaling=scaling_of(prepared.federation.train),
            retain=prepared.execution.checkpoint.keep,
            returns=serving.returns,
            alone=serving.alone,
            pause=serving.pause,
            tell=self.tell,
            charges=self.charges,
        )
