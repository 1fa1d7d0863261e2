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
from polyrhythm.base.metric_names import in_words
from polyrhythm.base.portions import Axes
from polyrhythm.base.surroundings import plain_surroundings
from polyrhythm.base.vectors import CPU, Layout
from polyrhythm.core.portions import portion_of
from polyrhythm.data.federation import Federation, Shares
from polyrhythm.data.holding import Holdings
from polyrhythm.data.partitions import Difficulty
from polyrhythm.engines.devices import device_of
from polyrhythm.engines.repeating import repeated
from polyrhythm.engines.selection import Chosen, Work, choose
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.experiments import parts_of_model
from polyrhythm.experiments.difficulty import checked, expert_losses, foreign
from polyrhythm.experiments.execution import AUTO, Execution
from polyrhythm.experiments.experiment import Experiment
from polyrhythm.experiments.first_batch import checked_on_first_batch
from polyrhythm.experiments.parts_of_model import cost_of
from polyrhythm.experiments.privacy import Privacy, privacy_of
from polyrhythm.experiments.privacy import about as about_privacy
from polyrhythm.experiments.setup import setup_of
from polyrhythm.fleet import FleetState, Place
from polyrhythm.methods.footprint import least_memory
from polyrhythm.methods.mechanism import Model, Setup
from polyrhythm.methods.personal.scope import Scope
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.size_notes import about_sizes
from polyrhythm.models.probing import woken
from polyrhythm.models.representation import locate
from polyrhythm.models.tasks import Classification
from polyrhythm.models.weights import check_finite, skipped
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
        axes: along what the model is cut, where clients train parts of it.
        ratios: how much of it each client's device can hold, where devices say so.
        privacy: of clients; None where nobody is hidden.
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
    axes: Axes | None = None
    ratios: tuple[float, ...] | None = None
    privacy: Privacy | None = None

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
        return setup_of(self.experiment, self.chosen.engine.layout, len(self.eligible), self.axes, self.ratios)

    def meter(self, layout: Layout | None = None, scope: Scope | None = None) -> Meter:
        """What measures visits.

        Args:
            layout: of the vectors in place of the model's, where these are not really there.
            scope: in place of the recipe's likewise.
        """
        recipe, setup, of = self.recipe, self.setup, functools.partial(cost_of, self.experiment, self.chosen)
        whole, own, scope = functools.partial(of, None), layout or self.chosen.engine.layout, scope or recipe.scope
        if recipe.capacity.whole:
            return Meter(own, whole, scope)
        packed = None if layout is None else recipe.compression.size
        return Meter(own, whole, scope, functools.partial(portion_of, recipe, setup), of, packed)

    @property
    def data_of(self) -> Holdings:
        """Gives one client's training samples."""
        return Holdings(self.federation.shares, self.scores)

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
        notes = [*self.federation.notes, *self.recipe.notices]
        there = len(self.eligible)
        without = int(np.count_nonzero(self.federation.sizes)) - there
        notes += about_sizes(self.recipe, there, some_unable=without > 0)
        if without:
            one, some = "client is never invited: its device has", "clients are never invited: their devices have"
            notes.append(
                f"{without:,} {one if without == 1 else some} less memory than the {self.memory_needed:,} bytes that a "
                "visit needs at least"
            )
        if self.experiment.fleet.arrivals is not None and self.recipe.participation.invites:
            notes.append("clients come by themselves, but this recipe does not wait for them: it invites whom it wants")
        single = int(np.count_nonzero(self.federation.sizes == 1))
        if single and self.chosen.engine.single_sample_fails:
            notes.append(
                f"{single:,} of {self.federation.clients:,} clients hold a single sample, which BatchNorm cannot train "
                "on: what they report does not count"
            )
        if self.groups and self.federation.local_tests is None:
            notes.append("results by group are on training data, since no client has test samples of its own")
        about = (
            self._about_initial,
            self._about_metrics,
            self._about_release,
            self._about_personal,
            self._about_crew,
            self._about_modes,
            self._about_engine,
            self._about_expert,
            lambda: about_privacy(self.privacy),
        )
        return (*notes, *self.chosen.notes, *(note for tell in about for note in tell()))

    def _about_initial(self) -> tuple[str, ...]:
        """Which weights are not those that were given."""
        skip = self.experiment.initial_skip
        layout = self.chosen.engine.layout
        names = [*(segment.name for segment in layout.segments), *(slot.name for slot in layout.buffers)]
        left = [name for name in names if skipped(name, skip)]
        return (f"{', '.join(left)} begin as the model makes them, and not with the initial weights",) if left else ()

    def _about_metrics(self) -> tuple[str, ...]:
        """Metrics that cannot tell versions apart, and weights that follow from everybody's data."""
        aim, federation = self.experiment.aim, self.federation
        constant, undefined = (
            aim.constant(federation.outputs),
            aim.undefined(federation.test.targets, federation.outputs),
        )
        notes = [
            f"{in_words(name)} is the same whatever a model gives for {federation.outputs} labels: choose k below "
            "that, or judge by another metric, as in multilabel(metrics=[f1])"
            for name in constant
        ]
        notes += [
            f"{in_words(name)} has no value on the test data, as their targets do not vary enough: it is left out"
            for name in undefined
        ]
        given = self.experiment.task
        if isinstance(given, Classification) and given.class_weights == "balanced":
            notes.append(
                "class weights follow from the training samples of all clients, which would have to be counted"
            )
        return tuple(notes)

    def _about_release(self) -> tuple[str, ...]:
        """What a release that needs all updates at once takes."""
        layout, part = self.chosen.engine.layout, self.recipe.releasing.needing_all
        if part is None:
            return ()
        waiting = min(self.recipe.cohort, len(self.eligible))
        size = waiting * layout.size * layout.dtype.itemsize / 1e6
        return (f"{part.label()} looks at all updates of a version at once: about {waiting:,} of them, {size:,.1f} MB",)

    def _about_personal(self) -> tuple[str, ...]:
        """What of the model is personal, and whether anybody measures it."""
        recipe, layout, notes = self.recipe, self.chosen.engine.layout, list[str]()
        if not recipe.has_personal:
            return ()
        own, label = recipe.scope.own(layout), recipe.scope.label()
        if own:
            kept = f"{own.size:,} of {layout.parameters:,} weights stay at clients"
            says = "the global model has version 0's in their place, so that its test results say little"
            notes.append(f"{kept}; {says}")
            if own.size == layout.parameters:
                notes.append(f"{label} leaves nothing to share: every client trains alone")
        elif recipe.scope in recipe.parts():
            notes.append(f"{label} names nothing in this model: all of it is shared, as without it")
        if self.federation.local_tests is None:
            notes.append(
                "clients' own models are not measured, since no client has test samples of its own: local_test=0.2 "
                "gives each some"
            )
        return tuple(notes)

    def _about_crew(self) -> tuple[str, ...]:
        """Who carries out visits, where the rule chose somebody else than this process."""
        crew, notes = self.crew, []
        if crew.chosen and crew.workers > 1:
            notes.append(f"visits run in {crew.workers} {crew.driver} at once")
        if crew.driver == "ray" and self.execution.stack is None and (crew.stack or 1) > 1:
            notes.append(
                f"visits are stacked by {crew.stack}, which follows from workers={crew.workers}: with others, "
                f"stack={crew.stack} gives the same numbers"
            )
        return tuple(notes)

    def _about_modes(self) -> tuple[str, ...]:
        """Which parts of a model were given in evaluation mode, and train all the same, as under `.train()`."""
        parts = self.chosen.woken
        if not parts:
            return ()
        some = ", ".join(parts[:3]) + (f" and {len(parts) - 3} more" if len(parts) > 3 else "")
        return (
            f"{some} of the model {'was' if len(parts) == 1 else 'were'} given in evaluation mode, and "
            f"{'is' if len(parts) == 1 else 'are'} put into training mode in training, as by .train(): statistics of "
            "BatchNorm move, dropout drops. To keep the mode, set it again in a train() method of the model's class",
        )

    def _about_engine(self) -> tuple[str, ...]:
        """What computes, unless it is what was asked for."""
        chosen, asked = self.chosen, self.execution
        if chosen.why_not:
            return (f"engine: torch, since the {chosen.refused} one cannot be used here: {chosen.why_not}",)
        if asked.stack is not None and chosen.kind != "stacked":
            return (f"stack={asked.stack} has no effect: local steps are computed by the {chosen.name} engine",)
        if asked.engine == "auto" and self.federation.structure is not None:
            return ("local steps are computed by the torch engine, as a sample is several arrays, or padded",)
        if asked.engine == "auto" and chosen.kind != "torch":
            return (f"local steps are computed by the {chosen.name} engine",)
        return ()

    def _about_expert(self) -> tuple[str, ...]:
        """Where the expert comes from, and whether it is of any use."""
        expert = self.experiment.expert
        if expert is None:
            return ()
        notes = [] if isinstance(expert, np.ndarray) else [*foreign(expert, self.federation.name)]
        if "expert" not in self.recipe.needs() and not isinstance(self.federation.partition, Difficulty):
            notes.append("an expert is given, but no part of this recipe asks for one")
        return tuple(notes)


@plain_surroundings()
def prepare(experiment: Experiment, execution: Execution = AUTO) -> Prepared:
    """Makes all that a run of an experiment needs, and checks it against the model.

    Args:
        experiment: what is computed; not changed.
        execution: how.

    Raises:
        UserError: model, data, method, engine, devices and drivers do not fit together.
    """
    if experiment.recipe.regime == "centralised":
        experiment = dataclasses.replace(experiment, federation=_pooled(experiment.federation))
    chosen = _chosen(experiment, execution)
    layout = chosen.engine.layout
    experiment.recipe.scope.own(layout)  # refuses names that are not in the model
    experiment.recipe.personal.fits(layout)
    chosen, axes = parts_of_model.axes(experiment, chosen)
    ratios = parts_of_model.ratios(experiment, chosen, axes)
    needs = _memory_needed(experiment, chosen, axes, ratios)
    eligible = _eligible(experiment, needs)
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
        axes=axes,
        ratios=ratios,
        privacy=privacy_of(experiment, setup_of(experiment, layout, len(eligible), axes, ratios), layout),
    )


def what_and_how(planned: Planned) -> tuple[Experiment, Execution]:
    """The two parts of it."""
    return planned if isinstance(planned, tuple) else (planned, AUTO)


def _chosen(experiment: Experiment, execution: Execution) -> Chosen:
    """The engine, with the initial model in it; checked against the data, the task and the recipe."""
    module, samples, recipe = experiment.module(), experiment.federation.train, experiment.recipe
    check_finite(dict(module.named_parameters()), f"the model {type(module).__name__}")
    module, read = checked_on_first_batch(module, experiment.aim, experiment.federation, recipe.batch)
    for layer in recipe.watches:
        locate(module, layer)
    several = execution.driver in ("processes", "threads", "ray") or (execution.workers or 1) > 1
    parted = several or recipe.fills_places
    # Ray's workers compute on processors unless they have GPUs, and so does this process unless told otherwise.
    on_processors = execution.driver == "ray" and execution.gpus is None and execution.device == "auto"
    work = Work(
        module=module,
        task=experiment.aim,
        samples=samples,
        recipe=recipe,
        largest=int(experiment.federation.sizes.max()),
        at_once=1 if parted else recipe.cohort,
        device=CPU if on_processors else device_of(execution.device),
    )
    chosen = choose(execution.engine, work) if execution.gpus is None else _for_gpus(work, execution.gpus)
    if chosen.engine.single_sample_fails:
        _check_single_samples(experiment)
    reference = chosen.engine if isinstance(chosen.engine, TorchEngine) else chosen.engine.reference
    notes = repeated(reference, samples, batch=work.batch)
    return dataclasses.replace(chosen, woken=woken(module), notes=(*read, *notes))


def _for_gpus(work: Work, gpus: float) -> Chosen:
    """The engine for workers with GPUs, of which there is one."""
    chosen = choose("stacked", work)
    if chosen.kind == "stacked":
        return dataclasses.replace(chosen, detail="GPUs of workers")
    raise UserError(
        f"gpus={gpus:g}, and the stacked engine cannot be used here: {chosen.why_not}",
        expected="work that it takes",
        why="no other engine computes on a GPU, and workers would hold theirs and compute on processors",
        fix="leave gpus out, or change the model or the method",
    )


def _check_single_samples(experiment: Experiment) -> None:
    single = "batch=1" if experiment.recipe.batch == 1 else "at most one sample at every client"
    if experiment.recipe.batch == 1 or experiment.federation.sizes.max() == 1:
        raise UserError(
            f"{single} with a model that has BatchNorm",
            expected="2 samples or more in a batch",
            why="BatchNorm cannot train on one sample: it has no variance",
            fix="use a larger batch and fewer clients, or a model with GroupNorm",
        )


def _scores(experiment: Experiment) -> Scores:
    expert, samples = experiment.expert, experiment.federation.train
    if expert is None or "expert" not in experiment.recipe.needs():
        return {}
    if isinstance(expert, np.ndarray):
        return {"expert": checked(expert, len(samples), "losses")}
    return {"expert": expert_losses(Path(expert), experiment.built(), samples, experiment.aim)}


def _memory_needed(
    experiment: Experiment, chosen: Chosen, axes: Axes | None, ratios: tuple[float, ...] | None
) -> np.ndarray:
    """What a visit of each client needs in bytes, at the very least, int64 [N]."""
    capacity, population = experiment.recipe.capacity, experiment.federation.clients
    if axes is None:
        return np.full(population, least_memory(experiment.recipe, chosen.engine.layout))
    of = {ratio: parts_of_model.memory_of(experiment, axes, ratio) for ratio in capacity.widths}
    setup = Setup(
        size=axes.layout.size,
        dtype=axes.layout.dtype,
        population=population,
        total_rounds=experiment.rounds,
        seed=experiment.seed,
        ratios=ratios,
    )
    fixed = [capacity.fixed_ratio(setup, client) for client in range(population)]
    return np.array([max(of.values()) if ratio is None else of[ratio] for ratio in fixed])


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
    """All the clients' samples in the hands of one."""
    order = federation.shares.order.numpy()
    return dataclasses.replace(
        federation,
        shares=Shares.of(federation.train, order, np.array([len(order)])),
        local_tests=None,
        names=(),
        notes=(*federation.notes, f"centralised: the samples of {federation.clients} clients are one client's"),
    )
