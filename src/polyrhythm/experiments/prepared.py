"""An experiment that is ready to run: with the engine that computes it, and those who carry its visits out."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from polyrhythm.base.errors import UserError
from polyrhythm.base.portions import Cuts
from polyrhythm.base.surroundings import plain_surroundings
from polyrhythm.base.vectors import Layout
from polyrhythm.core.portions import outline_of
from polyrhythm.core.returned import returned
from polyrhythm.data.federation import Federation, Shares
from polyrhythm.data.holding import Holdings
from polyrhythm.engines.selection import Chosen
from polyrhythm.experiments import adapters, parts_of_model, sums
from polyrhythm.experiments.choosing import chosen_for
from polyrhythm.experiments.difficulty import checked, expert_losses
from polyrhythm.experiments.execution import AUTO, Execution
from polyrhythm.experiments.experiment import Experiment
from polyrhythm.experiments.notices import notices
from polyrhythm.experiments.parts_of_model import cost_of
from polyrhythm.experiments.privacy import Privacy, privacy_of
from polyrhythm.experiments.setup import setup_of
from polyrhythm.fleet import FleetState, Place
from polyrhythm.methods.footprint import least_memory
from polyrhythm.methods.mechanism import Model, Setup
from polyrhythm.methods.personal.scope import Scope
from polyrhythm.methods.recipe import Recipe
from polyrhythm.simulation.cost_meter import Meter
from polyrhythm.simulation.workers import choosing as crews
from polyrhythm.simulation.workers.choosing import ExecutionPlan
from polyrhythm.simulation.workers.executors import Clients

Planned = Experiment | tuple[Experiment, Execution]
"""An experiment, computed by the fixed rules where it does not come with how."""
Scores = Mapping[str, np.ndarray]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Prepared:
    """An experiment with all that is made for it before round 1; `prepare` makes it.

    Args:
        experiment: what is computed; where the recipe is `centralised`, with all samples at one client.
        execution: how.
        chosen: the engine, with the initial model in it.
        initial: version 0. The engine holds it until the first visit only, so it is kept for whoever runs this again.
        scores: what mechanisms may ask about each training sample beside itself, float64 [n]: "expert".
        memory_needed: what a visit needs in bytes, at the very least.
        eligible: the clients that can be invited, int64: they hold data, and their devices what a visit needs.
        groups: the eligible clients by group of like devices, where results by group are asked for; else empty.
        crew: who carries out visits.
        cuts: along what the model is cut, where clients train parts of it.
        levels: how much of it each client's device can hold, where devices say so.
        privacy: of clients; None where nobody is hidden.
        secret: from what the server of a real federation draws what nobody else may know; None in a simulation.
    """

    experiment: Experiment
    execution: Execution
    chosen: Chosen
    initial: Model
    scores: Scores
    memory_needed: int
    eligible: np.ndarray
    groups: Mapping[str, np.ndarray]
    crew: ExecutionPlan
    cuts: Cuts | None = None
    levels: tuple[float, ...] | None = None
    privacy: Privacy | None = None
    secret: int | None = dataclasses.field(default=None, repr=False)

    @property
    def recipe(self) -> Recipe:
        """The method."""
        return self.experiment.recipe

    @property
    def federation(self) -> Federation:
        """The data and who holds it."""
        return self.experiment.federation

    @property
    def setup(self) -> Setup:
        """What the cores need to know of the whole run."""
        members = None
        if self.cuts is not None and len(self.eligible) < self.federation.clients:
            members = tuple(self.eligible.tolist())
        eligible = len(self.eligible)
        return setup_of(self.experiment, self.chosen, eligible, self.cuts, self.levels, members, self.secret)

    def meter(self, layout: Layout | None = None, scope: Scope | None = None) -> Meter:
        """What measures visits.

        Args:
            layout: of the vectors in place of the model's, where these are not really there.
            scope: in place of the recipe's likewise.
        """
        recipe, setup, of = self.recipe, self.setup, functools.partial(cost_of, self.experiment, self.chosen)
        whole, own, scope = functools.partial(of, None), layout or self.chosen.engine.layout, scope or recipe.scope
        back = functools.partial(returned, recipe)
        if recipe.capacity.whole:
            ceremony = sums.ceremony(recipe, setup, scope.shared(own))
            return Meter(own, whole, scope, ceremony=ceremony, returned=back)
        packed = None if layout is None else recipe.compression.size
        apart = (
            frozenset(own.buffers[n].name for n in own.statistics) if recipe.capacity.statistics_apart else frozenset()
        )
        outline = functools.partial(outline_of, recipe, setup)
        return Meter(own, whole, scope, outline, of, packed, apart=apart, returned=back)

    @property
    def data_of(self) -> Holdings:
        """Gives one client's training samples."""
        return Holdings(self.federation.shares, self.scores)

    @property
    def data_of_unseen(self) -> Holdings | None:
        """Gives the training samples of a client that never trains; None without such clients."""
        unseen = self.federation.unseen
        return None if unseen is None else Holdings(unseen.train, self.scores)

    @property
    def clients(self) -> Clients:
        """What whoever carries out visits must have."""
        return Clients(recipe=self.recipe, setup=self.setup, engine=self.chosen.engine, data=self.data_of)

    def world(self) -> FleetState:
        """The fleet at the beginning of a run."""
        return self.experiment.world(self.eligible)

    def computed(self) -> dict[str, Any]:
        """The execution as plain data, with what followed from its rules: who computed local steps, and how stacked."""
        asked = self.execution
        stack: dict[str, Any] = {}
        if self.chosen.kind == "stacked":  # all that begin at once are never more than there are clients
            stack = {"stack": self.crew.stack or self.federation.clients}
        return {
            **{"engine": asked.engine, "device": asked.device, **stack, "computed_by": self.chosen.name},
            **{"client_memory": asked.client_memory, "checkpoint": dataclasses.asdict(asked.checkpoint)},
        }

    def notices(self) -> tuple[str, ...]:
        """What a reader of the results should know."""
        return notices(self)


@plain_surroundings()
def prepare(experiment: Experiment, execution: Execution = AUTO, *, secret: int | None = None) -> Prepared:
    """Makes all that a run of an experiment needs, and checks it against the model.

    Args:
        experiment: what is computed; not changed.
        execution: how.
        secret: of the server of a real federation (`Prepared.secret`).

    Raises:
        UserError: model, data, method, engine, devices and drivers do not fit together.
    """
    if experiment.recipe.regime == "centralised":
        experiment = dataclasses.replace(experiment, federation=_pooled(experiment.federation))
    chosen = chosen_for(experiment, execution)
    layout = chosen.engine.layout
    experiment.recipe.scope.own(layout)  # refuses names that are not in the model
    experiment.recipe.personal.fits(layout)
    chosen, cuts = parts_of_model.cuts(experiment, chosen)
    levels = parts_of_model.levels(experiment, chosen, cuts)
    needs = _memory_needed(experiment, chosen, cuts, levels)
    eligible = _eligible(experiment, needs)
    setup = setup_of(experiment, chosen, len(eligible), cuts, levels, secret=secret)
    sums.check(experiment, setup, layout)
    adapters.check(experiment.recipe, setup)
    return Prepared(
        experiment=experiment,
        execution=execution,
        chosen=chosen,
        initial=chosen.engine.initial(),
        scores=_scores(experiment),
        memory_needed=int(needs.min()),
        eligible=eligible,
        groups=experiment.groups(eligible),
        crew=_crew(experiment, execution, chosen, len(eligible)),
        cuts=cuts,
        levels=levels,
        privacy=privacy_of(experiment, setup, layout),
        secret=secret,
    )


def what_and_how(planned: Planned) -> tuple[Experiment, Execution]:
    """The two parts of it."""
    return planned if isinstance(planned, tuple) else (planned, AUTO)


def _scores(experiment: Experiment) -> Scores:
    expert, samples = experiment.expert, experiment.federation.train
    if expert is None or "expert" not in experiment.recipe.needs():
        return {}
    if isinstance(expert, np.ndarray):
        return {"expert": checked(expert, len(samples), "losses")}
    return {"expert": expert_losses(Path(expert), experiment.built(), samples, experiment.aim)}


def _memory_needed(
    experiment: Experiment, chosen: Chosen, cuts: Cuts | None, levels: tuple[float, ...] | None
) -> np.ndarray:
    """What a visit of each client needs in bytes, at the very least, int64 [N]."""
    capacity, population = experiment.recipe.capacity, experiment.federation.clients
    if cuts is None:
        base = parts_of_model.frozen_bytes(experiment, chosen)
        return np.full(population, base + least_memory(experiment.recipe, chosen.engine.layout))
    of = {level: parts_of_model.memory_of(experiment, chosen, cuts, level) for level in capacity.levels}
    setup = Setup(
        size=cuts.layout.size,
        dtype=cuts.layout.dtype,
        population=population,
        total_rounds=experiment.rounds,
        seed=experiment.seed,
        levels=levels,
    )
    fixed = [capacity.fixed_level(setup, client) for client in range(population)]
    return np.array([max(of.values()) if level is None else of[level] for level in fixed])


def _eligible(experiment: Experiment, needs: np.ndarray) -> np.ndarray:
    holding, devices = experiment.holders(), experiment.fleet.devices
    if not devices.bounded:
        return holding
    place = Place(population=experiment.federation.clients, seed=experiment.seed)
    memory = [devices.device(place, int(client)).memory for client in holding]
    able = np.array([m is None or m >= needs[int(client)] for m, client in zip(memory, holding, strict=True)])
    if not able.any():
        raise UserError(
            f"the most memory that any device has is {max(m for m in memory if m is not None):,.0f} bytes",
            expected=f"at least {int(needs.min()):,} bytes, which a visit with {experiment.recipe.title} needs for "
            "vectors alone",
            why="no client could take part",
            fix="give devices more memory, or use a smaller model, plain local_sgd, or a method with less memory",
        )
    return np.asarray(holding[able])


def _crew(experiment: Experiment, execution: Execution, chosen: Chosen, eligible: int) -> ExecutionPlan:
    holders, engine = max(1, eligible), chosen.engine
    at_once, rounds = min(_at_once(experiment), holders), experiment.rounds
    if experiment.recipe.fills_places and rounds is not None:  # then a version is not made of as many as are at work
        rounds = -(-rounds * (experiment.recipe.release.release_size or at_once) // at_once)
    return crews.choose(
        execution.driver,
        None if execution.workers is None else min(execution.workers, holders),  # nobody is at work twice
        engine,
        parameters=engine.layout.parameters,
        num_samples=float(experiment.federation.sizes.sum()) / holders,
        at_once=at_once,
        rounds=rounds,
        address=execution.address,
        gpus=execution.gpus,
        stack=execution.stack,
        fills_places=experiment.recipe.fills_places,
    )


def _at_once(experiment: Experiment) -> int:
    """How many visits can be computed at once: those of a turn, or all under way where ends are foreseen."""
    recipe, spoiled = experiment.recipe, experiment.fleet.faults.on_reports
    waits = recipe.fills_places and (recipe.may_stop or spoiled or not recipe.foreseeable)
    return 1 if waits else recipe.cohort


def _pooled(federation: Federation) -> Federation:
    """All the clients' samples in the hands of one; the clients' own tests stay as they are."""
    order = federation.shares.order.numpy()
    return dataclasses.replace(
        federation,
        shares=Shares.of(federation.train, order, np.array([len(order)])),
        unseen=None,
        names=(),
        notes=(*federation.notes, f"centralised: the samples of {federation.clients} clients are one client's"),
    )
