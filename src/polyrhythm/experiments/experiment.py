"""An experiment: data x model x fleet x recipe, a seed, and when to stop. Everything is checked before round 1."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import nn

from polyrhythm.base.errors import Mistakes, UserError, unknown
from polyrhythm.base.settings import Count, NonNegative, Settings
from polyrhythm.base.streams import seeded_torch
from polyrhythm.base.vectors import CPU
from polyrhythm.data.federation import Federation, Shares
from polyrhythm.data.holding import Holdings
from polyrhythm.data.partitions import Difficulty
from polyrhythm.engines.devices import device_of
from polyrhythm.engines.selection import ENGINES, Asked, Chosen, Work, choose
from polyrhythm.experiments.difficulty import checked, expert_losses, foreign
from polyrhythm.fleet import FixedLinks, Fleet, Place, Uniform, World
from polyrhythm.methods.footprint import least_memory
from polyrhythm.methods.mechanism import Model, Setup
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.size_notes import about_sizes
from polyrhythm.models.building import build
from polyrhythm.models.catalogue import Builder
from polyrhythm.models.probing import output_shape, woken
from polyrhythm.models.representation import locate
from polyrhythm.models.tasks import Task, task
from polyrhythm.models.weights import load_weights
from polyrhythm.runs.checkpoints import Checkpoint
from polyrhythm.runs.records import Measure
from polyrhythm.simulation.client_store.budget import budget
from polyrhythm.simulation.workers import choosing as crews
from polyrhythm.simulation.workers.choosing import DRIVERS, Crew, check_gpus, check_stack


@final
@dataclass(frozen=True, kw_only=True)
class Until(Settings):
    """Stops a run once something is reached, at the end of the version that reaches it.

    Args:
        accuracy: the task's headline metric, on the validation data if there are any, otherwise on the test set.
        time: virtual seconds.
        updates: client visits that were accepted.
    """

    accuracy: float | None = None
    time: NonNegative | None = None
    updates: Count | None = None

    @property
    def anything(self) -> bool:
        """Whether there is a condition at all."""
        return any(value is not None for value in (self.accuracy, self.time, self.updates))


@final
@dataclass(frozen=True, kw_only=True)
class Evaluation(Settings):
    """What is measured of the global model, and how often. Changes no weight.

    Args:
        every: versions between evaluations; the first and the last are always evaluated.
        train_samples: how many training samples, drawn once over all clients, the global model is also measured on; 0
            for none.
        groups: whether it is also measured for each group of like devices, such as a tier: on the own tests of the
            group's clients, or where there are none on `train_samples` (1,000 if that is 0) of its training samples.
        measure: what else is measured, by name: "update_similarity", how far the updates of a version agree;
            "estimation_error", how well each client's past foretells its update (both in
            `polyrhythm.experiments.report_metrics`); "sample_losses", how hard single training samples are, with the
            extremes as images.
    """

    every: Count = 1
    train_samples: int = 0
    groups: bool = False
    measure: tuple[Measure, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.train_samples < 0:
            raise UserError(
                f"evaluation: train_samples = {self.train_samples}",
                expected="a number of samples, 0 or more",
                why="so many training samples would be measured after every evaluated version",
                fix="train_samples=1000, or 0 for none",
            )


@final
@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One run, described in full.

    Args:
        federation: the data and who holds it.
        model: a name such as "lenet5", the import path "package.module:Name" of a class or function of your own, a
            builder called with (shape, outputs), or a module, which is copied.
        recipe: the method.
        task: the loss and metrics, with settings such as `pr.task("multilabel", k=3)`; None for those that follow from
            the data's targets. Of the same kind as these.
        fleet: the devices.
        rounds: versions to make; None to run until `until`.
        until: an earlier end.
        seed: decides every random draw of the run.
        evaluation: what is measured.
        initial: a safetensors file with the initial weights, by name; None for the model's own.
        expert: how difficult each training sample is, for curricula that ask an expert: a safetensors file with a
            trained model of the same architecture, as `polyrhythm expert` makes, or the losses themselves, [n].
        driver: who carries out visits: "inline", one after the other in this process; "processes", "threads" or "ray",
            several at once; or "auto", by a fixed rule (`polyrhythm.simulation.workers.choosing`). Changes no number.
        workers: how many at once; None for as many as there are processors. Two or more ask for workers by themselves.
        address: of the Ray cluster with driver="ray", such as "10.0.0.1:6379", or "auto" on one of its machines; None
            to start one here, which ends with the run.
        gpus: the share of a GPU that each of Ray's workers takes, such as 0.25 for four on one; there the stacked
            engine computes their visits, and `device` is where models are measured. None for workers on processors.
        engine: what computes local steps: "torch"; "native", which is C++; "stacked", a cohort at once, for GPUs;
            or "auto", by a fixed rule (`polyrhythm.engines.selection`). What one of them cannot take is torch's.
        device: where a cohort's steps are computed, and models measured, by the stacked engine: "cpu"; "cuda", or
            "cuda:1" for the second GPU; or "auto", a GPU if there is one.
        stack: how many visits the stacked engine takes at once, of those that begin at once. A client's last bits may
            depend on it, and for the same `stack` not on who carries visits out. None for all of them, and on Ray for
            as many as give each worker the same; what that is follows from `workers`, and is in the record.
        client_memory: how much of what clients remember is kept in memory, such as "1 GiB"; beyond it the clients that
            took part longest ago are kept in files, and checkpoints only name them. "all" for no files. Changes no
            number.
        checkpoint: how often it writes down what it needs to go on after its process was killed. Changes no number.
        name: what you call the run.
        config: the experiment as it was written, for the record; made from the parts if None.

    Raises:
        UserError: anything that can be known to be wrong before the first round, all of it at once.
    """

    federation: Federation
    model: str | Builder | nn.Module
    recipe: Recipe
    task: Task | None = None
    fleet: Fleet = field(default_factory=Fleet)
    rounds: int | None = None
    until: Until = field(default_factory=Until)
    seed: int = 0
    evaluation: Evaluation = field(default_factory=Evaluation)
    initial: Path | str | None = None
    expert: Path | str | np.ndarray | None = None
    driver: crews.Asked = "auto"
    workers: int | None = None
    address: str | None = None
    gpus: float | None = None
    engine: Asked = "auto"
    device: str = "auto"
    stack: int | None = None
    client_memory: str = "all"
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    name: str = ""
    config: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        _check_kinds(self)
        wrong = Mistakes()
        for check in _CHECKS:
            with wrong.noted():
                check(self)
        wrong.refuse()
        _check_groups(self)  # which looks at the devices, and so builds the model
        if self.recipe.regime == "centralised":
            object.__setattr__(self, "federation", _pooled(self.federation))
        if not self.federation.sizes.any():
            raise UserError(
                f"{self.federation.name}: none of {self.federation.clients} clients holds a sample",
                expected="at least one client with data",
                why="there would be nobody to invite",
                fix="hold out less for tests and validation, or use another partition",
            )

    @property
    def aim(self) -> Task:
        """What the model is asked to do: the given task, or the one that follows from the data."""
        return self.task or task(self.federation.task)

    @functools.cached_property
    def chosen(self) -> Chosen:
        """The engine, with the initial model in it; checked against the data, the task and the recipe."""
        module = self._module()
        samples = self.federation.train
        few = torch.arange(min(2, len(samples)))
        shape = output_shape(module, samples.batch(few)[0])
        self.aim.check(shape, samples.targets)
        self.aim.check(shape, self.federation.test.targets)
        for layer in self.recipe.watches:
            locate(module, layer)
        parted = self.recipe.fills_places or self.driver in ("processes", "threads", "ray") or (self.workers or 1) > 1
        work = Work(
            module=module,
            task=self.aim,
            samples=samples,
            recipe=self.recipe,
            largest=int(self.federation.sizes.max()),
            at_once=1 if parted else self.recipe.cohort,
            device=CPU if self._on_processors else device_of(self.device),
        )
        chosen = choose(self.engine, work) if self.gpus is None else self._for_gpus(work)
        if chosen.engine.single_sample_fails:
            self._check_single_samples()
        for name, values in self.scores.items():  # now, as an expert of another model must be refused before round 1
            checked(values, len(samples), name)
        return dataclasses.replace(chosen, woken=woken(module))

    @property
    def _on_processors(self) -> bool:
        """Whether Ray's workers compute on processors, and so the driver, too, unless it is told otherwise."""
        return self.driver == "ray" and self.gpus is None and self.device == "auto"

    def _for_gpus(self, work: Work) -> Chosen:
        """The engine for workers with GPUs, of which there is one."""
        chosen = choose("stacked", work)
        if chosen.kind == "stacked":
            return dataclasses.replace(chosen, detail="GPUs of workers")
        raise UserError(
            f"gpus={self.gpus:g}, and the stacked engine cannot be used here: {chosen.why_not}",
            expected="work that it takes",
            why="no other engine computes on a GPU, and workers would hold theirs and compute on processors",
            fix="leave gpus out, or change the model or the method",
        )

    def _check_single_samples(self) -> None:
        single = "batch=1" if self.recipe.batch == 1 else "at most one sample at every client"
        if self.recipe.batch == 1 or self.federation.sizes.max() == 1:
            raise UserError(
                f"{single} with a model that has BatchNorm",
                expected="2 samples or more in a batch",
                why="BatchNorm cannot train on one sample: it has no variance",
                fix="use a larger batch and fewer clients, or a model with GroupNorm",
            )

    def _module(self) -> nn.Module:
        module = self._built()
        return module if self.initial is None else load_weights(module, Path(self.initial))

    def _built(self) -> nn.Module:
        if isinstance(self.model, nn.Module):
            return self.model
        with seeded_torch(self.seed, "init"):
            return build(self.model, self.federation.train.shape, self.federation.outputs)

    @functools.cached_property
    def scores(self) -> Mapping[str, np.ndarray]:
        """What mechanisms may ask about each training sample beside itself, float64 [n]: "expert"; computed once."""
        if self.expert is None or "expert" not in self.recipe.needs():
            return {}
        if isinstance(self.expert, np.ndarray):
            return {"expert": checked(self.expert, len(self.federation.train), "losses")}
        return {"expert": expert_losses(Path(self.expert), self._built(), self.federation.train, self.aim)}

    @functools.cached_property
    def initial_model(self) -> Model:
        """Version 0. The engine holds it until the first visit only, so it is kept for whoever runs this again."""
        return self.chosen.engine.initial()

    @functools.cached_property
    def setup(self) -> Setup:
        """What the cores need to know of the whole run."""
        layout = self.chosen.engine.layout
        return Setup(
            size=layout.size,
            dtype=layout.dtype,
            population=self.federation.clients,
            horizon=self.rounds,
            seed=self.seed,
            budgets=self.fleet.budgets,
            eligible=len(self.eligible()),
        )

    def world(self) -> World:
        """The fleet at the beginning of a run."""
        federation = self.federation
        held, labels, eligible = federation.sizes.tolist(), federation.label_shares(), self.eligible()
        everybody = range(federation.clients) if len(eligible) == federation.clients else eligible.tolist()
        return World(self.fleet, federation.clients, self.seed, everybody, labels, held)

    @functools.cached_property
    def data_of(self) -> Holdings:
        """Gives one client's training samples."""
        return Holdings(self.federation.shares, self.scores)

    @functools.cached_property
    def crew(self) -> Crew:
        """Who carries out visits."""
        holders, engine = max(1, len(self.eligible())), self.chosen.engine
        at_once, rounds = min(self._at_once, holders), self.rounds
        if self.recipe.fills_places and rounds is not None:  # then a version is not made of as many as are at work
            rounds = -(-rounds * (self.recipe.release.release_size or at_once) // at_once)
        return crews.choose(
            self.driver,
            None if self.workers is None else min(self.workers, holders),  # nobody is at work twice
            engine,
            parameters=engine.layout.parameters,
            held=float(self.federation.sizes.sum()) / holders,
            at_once=at_once,
            rounds=rounds,
            address=self.address,
            gpus=self.gpus,
            stack=self.stack,
            fills_places=self.recipe.fills_places,
        )

    @property
    def _at_once(self) -> int:
        """How many visits can be computed at once: those of a turn, or all under way where ends are foreseen."""
        recipe, spoiled = self.recipe, self.fleet.faults.on_reports
        waits = recipe.fills_places and (recipe.may_stop or spoiled or not recipe.foreseeable)
        return 1 if waits else recipe.cohort

    def eligible(self) -> np.ndarray:
        """The clients that can be invited: they hold data, and their devices what a visit needs; in order, int64.

        Raises:
            UserError: no device has enough memory.
        """
        return self._eligible

    @functools.cached_property
    def _eligible(self) -> np.ndarray:
        holding, devices = np.flatnonzero(self.federation.sizes), self.fleet.devices
        if not devices.bounded:
            return holding
        needed, place = self.memory_needed, Place(population=self.federation.clients, seed=self.seed)
        memory = [devices.device(place, int(client)).memory for client in holding]
        able = np.array([m is None or m >= needed for m in memory])
        if not able.any():
            raise UserError(
                f"the most memory that any device has is {max(m for m in memory if m is not None):,.0f} bytes",
                expected=f"at least {needed:,} bytes, which a visit with {self.recipe.title} needs for vectors alone",
                why="no client could take part",
                fix="give devices more memory, or use a smaller model, plain local_sgd, or a method with less memory",
            )
        return np.asarray(holding[able])

    @functools.cached_property
    def memory_needed(self) -> int:
        """What a visit needs in bytes, at the very least."""
        return least_memory(self.recipe, self.chosen.engine.layout)

    @functools.cached_property
    def groups(self) -> Mapping[str, np.ndarray]:
        """The clients that hold data by group of like devices, where results by group are asked for; else empty."""
        if not self.evaluation.groups:
            return {}
        world, found = self.world(), dict[str, list[int]]()
        for client in self.eligible().tolist():
            found.setdefault(world.device(client).group, []).append(client)
        return {name: np.array(found[name]) for name in sorted(found) if name}

    def notices(self) -> tuple[str, ...]:
        """What a reader of the results should know."""
        notes = [*self.federation.notes, *self.recipe.notices]
        there = len(self.eligible())
        without = int(np.count_nonzero(self.federation.sizes)) - there
        notes += about_sizes(self.recipe, there, some_unable=without > 0)
        if without:
            one, some = "client is never invited: its device has", "clients are never invited: their devices have"
            notes.append(
                f"{without:,} {one if without == 1 else some} less memory than the {self.memory_needed:,} bytes that a "
                "visit needs at least"
            )
        if self.fleet.arrivals is not None and self.recipe.participation.invites:
            notes.append("clients come by themselves, but this recipe does not wait for them: it invites whom it wants")
        single = int(np.count_nonzero(self.federation.sizes == 1))
        if single and self.chosen.engine.single_sample_fails:
            notes.append(
                f"{single:,} of {self.federation.clients:,} clients hold a single sample, which BatchNorm cannot train "
                "on: what they report does not count"
            )
        if self.groups and self.federation.local_tests is None:
            notes.append("results by group are on training data, since no client has test samples of its own")
        about = (self._about_release, self._about_crew, self._about_modes, self._about_engine, self._about_expert)
        return (*notes, *(note for tell in about for note in tell()))

    def _about_release(self) -> tuple[str, ...]:
        """What a release that needs all updates at once takes."""
        layout, part = self.chosen.engine.layout, self.recipe.releasing.needing_all
        if part is None:
            return ()
        waiting = min(self.recipe.cohort, len(self.eligible()))
        size = waiting * layout.size * layout.dtype.itemsize / 1e6
        return (f"{part.label()} looks at all updates of a version at once: about {waiting:,} of them, {size:,.1f} MB",)

    def _about_crew(self) -> tuple[str, ...]:
        """Who carries out visits, where the rule chose somebody else than this process."""
        crew, notes = self.crew, []
        if crew.chosen and crew.workers > 1:
            notes.append(f"visits run in {crew.workers} {crew.driver} at once")
        if crew.driver == "ray" and self.stack is None and (crew.stack or 1) > 1:
            notes.append(
                f"visits are stacked by {crew.stack}, which follows from workers={crew.workers}: with others, "
                f"stack={crew.stack} gives the same numbers"
            )
        return tuple(notes)

    def _about_modes(self) -> tuple[str, ...]:
        """Which parts of a model were given in evaluation mode, and train all the same, as under `.train()`."""
        changed = self.chosen.woken
        if not changed:
            return ()
        some = ", ".join(changed[:3]) + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
        return (
            f"{some} of the model {'was' if len(changed) == 1 else 'were'} given in evaluation mode, and "
            f"{'is' if len(changed) == 1 else 'are'} put into training mode in training, as by .train(): statistics of "
            "BatchNorm move, dropout drops. To keep the mode, set it again in a train() method of the model's class",
        )

    def _about_engine(self) -> tuple[str, ...]:
        """What computes, unless it is what was asked for."""
        chosen = self.chosen
        if chosen.why_not:
            return (f"engine: torch, since the {chosen.refused} one cannot be used here: {chosen.why_not}",)
        if self.stack is not None and chosen.kind != "stacked":
            return (f"stack={self.stack} has no effect: local steps are computed by the {chosen.name} engine",)
        if self.engine == "auto" and chosen.kind != "torch":
            return (f"local steps are computed by the {chosen.name} engine",)
        return ()

    def _about_expert(self) -> tuple[str, ...]:
        """Where the expert comes from, and whether it is of any use."""
        if self.expert is None:
            return ()
        notes = [] if isinstance(self.expert, np.ndarray) else [*foreign(self.expert, self.federation.name)]
        if "expert" not in self.recipe.needs() and not isinstance(self.federation.partition, Difficulty):
            notes.append("an expert is given, but no part of this recipe asks for one")
        return tuple(notes)

    def describe(self) -> dict[str, Any]:
        """The experiment as plain data."""
        computed: dict[str, Any] = {"computed_by": self.chosen.name}
        if self.chosen.kind == "stacked":  # all that begin at once are never more than there are clients
            computed["stack"] = self.crew.stack or self.federation.clients
        if self.config is not None:
            return {**self.config, **computed}
        return {
            "data": self.federation.name,
            "clients": self.federation.clients,
            "partition": self.federation.partition.describe(),
            "model": self.model if isinstance(self.model, str) else _name_of(self.model),
            "method": self.recipe.describe(),
            "task": self.aim.describe(),
            "fleet": self.fleet.describe(),
            "rounds": self.rounds,
            "until": self.until.describe(),
            "seed": self.seed,
            "evaluation": self.evaluation.describe(),
            "initial": None if self.initial is None else str(self.initial),
            "expert": _told(self.expert),
            "engine": self.engine,
            "device": self.device,
            **computed,
        }


def _name_of(model: Builder | nn.Module) -> str:
    kind = type(model) if isinstance(model, nn.Module) else model
    return f"{getattr(kind, '__module__', '?')}:{getattr(kind, '__qualname__', repr(kind))}"


def _check_kinds(experiment: Experiment) -> None:
    kinds: dict[str, type] = {
        **{"federation": Federation, "recipe": Recipe, "task": Task},
        **{"fleet": Fleet, "until": Until, "evaluation": Evaluation, "checkpoint": Checkpoint},
    }
    wrong = Mistakes()
    for name, kind in kinds.items():
        value = getattr(experiment, name)
        if not isinstance(value, kind) and not (name == "task" and value is None):
            wrong.add(
                UserError(
                    f"{name} is a {type(value).__name__}: {value!r}",
                    expected=f"a {kind.__name__}",
                    why="names in text mean something only in experiment files and on the command line",
                    fix=f"build it in Python: {_EXAMPLES[name]}",
                )
            )
    wrong.refuse()


_EXAMPLES = {
    "federation": "pr.federate(pr.data.digits(), pr.data.Dirichlet(alpha=0.3), clients=20, seed=0)",
    "recipe": "pr.fedavg(cohort=10)",
    "task": 'pr.task("multilabel", k=3)',
    "fleet": "pr.Fleet(devices=pr.fleet.Tiers())",
    "until": "pr.Until(accuracy=0.9)",
    "evaluation": "pr.Evaluation(every=5)",
    "checkpoint": "pr.Checkpoint(every=10)",
}


def _check_task(experiment: Experiment) -> None:
    given, about = experiment.task, experiment.federation.task
    if given is not None and given.name != about:
        raise UserError(
            f"the task {given.name} for {experiment.federation.name}, whose targets are those of {about}",
            expected=f"{about}, with settings if need be",
            why="what targets mean follows from the data; a task only says how they are judged",
            fix=f"give {about}, or leave the task out",
        )


def _check_end(experiment: Experiment) -> None:
    rounds, recipe = experiment.rounds, experiment.recipe
    if rounds is None and not experiment.until.anything:
        raise UserError(
            "no end: neither rounds nor until",
            expected="rounds=30, or until accuracy, time or updates",
            why="the run would go on for ever",
            fix="give rounds=30",
        )
    if rounds is not None and (isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1):
        raise UserError(
            f"rounds = {rounds!r}",
            expected="a whole number, 1 or more",
            why="a run makes so many versions",
            fix="give rounds=30",
        )
    if (
        rounds is None
        and (experiment.until.accuracy, experiment.until.updates) == (None, None)
        and _timeless(experiment)
    ):
        raise UserError(
            f"until time = {experiment.until.time:g} with a fleet whose visits take no time",
            expected="devices or links that take some",
            why="virtual time would never pass, and the run would go on for ever",
            fix="give rounds=30, or devices a speed",
        )
    if rounds is None and "horizon" in recipe.needs():
        raise UserError(
            f"{recipe.title} without rounds",
            expected="the number of rounds",
            why="a schedule of this recipe follows the whole length of the run, which must be known from the start",
            fix="give rounds as well; until still ends the run earlier",
        )


def _timeless(experiment: Experiment) -> bool:
    """Whether no visit takes any time."""
    fleet = experiment.fleet
    return fleet.links == FixedLinks() and fleet.devices == Uniform(seconds_per_sample=0.0)


def _check_groups(experiment: Experiment) -> None:
    if not experiment.evaluation.groups:
        return
    if not experiment.groups:
        raise UserError(
            f"evaluation: groups = True with the devices {experiment.fleet.devices.label()}",
            expected="a fleet whose devices are in groups",
            why="the model is measured for each group, and here there are none",
            fix='fleet="tiers", or groups=false',
        )
    if experiment.recipe.regime == "local" and experiment.federation.local_tests is None:
        raise UserError(
            f"evaluation: groups = True with {experiment.recipe.title} and no tests of the clients' own",
            expected="test samples at the clients",
            why="every client uses a model of its own here, which would be measured on the data it was trained on",
            fix="local_test=0.2, or groups=false",
        )


def _told(expert: Path | str | np.ndarray | None) -> str | None:
    """An expert as plain data; losses by their digest."""
    if isinstance(expert, np.ndarray):
        return f"losses:{hashlib.sha256(np.ascontiguousarray(expert).tobytes()).hexdigest()[:16]}"
    return None if expert is None else str(expert)


def _check_expert(experiment: Experiment) -> None:
    recipe = experiment.recipe
    if experiment.expert is not None or "expert" not in recipe.needs():
        return
    asking = next(part.label() for part in recipe.parts() if "expert" in part.needs())
    raise UserError(
        f"{recipe.title} without an expert",
        expected="a model that was trained on the data before, as a safetensors file",
        why=f"{asking} orders by the loss under it",
        fix="train one: polyrhythm expert --data … --model … -o expert.safetensors; then give "
        "expert=expert.safetensors, or choose other scores, such as global or measured",
    )


def _check_arrivals(experiment: Experiment) -> None:
    recipe, fleet = experiment.recipe, experiment.fleet
    # Batteries and broken devices send away only those that were at work, and nobody ever would be.
    if not recipe.participation.invites and fleet.arrivals is None and fleet.availability.always:
        raise UserError(
            f"{recipe.title} with a fleet in which everybody is always there",
            expected="a fleet whose clients come by themselves, or that come and go",
            why="on_arrival invites nobody: it waits for clients that come, and none ever would",
            fix="pipe arrivals onto the fleet, such as poisson(rate=0.001), or an availability, such as markov",
        )


def _check_score(experiment: Experiment) -> None:
    order, about = experiment.recipe.order, experiment.federation.task
    if order.predicts and about in ("multilabel", "regression"):
        raise UserError(
            f"{order.label()}: score = {order.predicts!r} for the task {about}",
            expected="a score by loss: global, local, both or expert",
            why="whether a prediction is right is asked of one class per sample, and there is none here",
            fix=f"score={order.predicts.removesuffix('_pred')!r}",
        )


def _check_seed(experiment: Experiment) -> None:
    seed = experiment.seed
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise UserError(
            f"seed = {seed!r}",
            expected="a whole number, 0 or more",
            why="it names every random draw of the run",
            fix="give seed=0",
        )


def _check_driver(experiment: Experiment) -> None:
    driver, workers = experiment.driver, experiment.workers
    if driver not in DRIVERS:
        raise unknown("driver", driver, DRIVERS)
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
        raise UserError(
            f"workers = {workers!r}",
            expected="a whole number, 1 or more",
            why="so many visits run at once",
            fix="workers=2, or leave it out",
        )
    if driver == "inline" and (workers or 1) > 1:
        raise UserError(
            f"driver=inline with workers={workers}",
            expected="one of them",
            why="in line, visits run one after the other",
            fix="driver=processes, or leave workers out",
        )
    check_gpus(experiment.gpus, driver, workers)
    if experiment.address is None:
        return
    if driver != "ray":
        raise UserError(
            f"address={experiment.address!r} with driver={driver}",
            expected="driver=ray",
            why="it is the address of a Ray cluster",
            fix="driver=ray, or leave the address out",
        )
    if workers is None:
        raise UserError(
            f"address={experiment.address!r} without workers",
            expected="how many visits run at once",
            why="a cluster is shared, and how many of its processors are yours nobody else knows",
            fix="workers=8, for example",
        )


def _check_engine(experiment: Experiment) -> None:
    engine, device = experiment.engine, experiment.device
    if engine not in ENGINES:
        raise unknown("engine", engine, ENGINES)
    check_stack(experiment.stack, engine)
    if experiment.gpus is not None and engine not in ("auto", "stacked"):
        raise UserError(
            f"gpus={experiment.gpus:g} with engine={engine}",
            expected="engine=stacked, or auto",
            why=f"the {engine} engine computes on processors",
            fix="engine=stacked, or leave gpus out",
        )
    if experiment.driver == "ray" and experiment.gpus is None and device.startswith("cuda"):
        raise UserError(
            f"device={device} with driver=ray, and no gpus",
            expected="gpus, the share of a GPU that each worker takes",
            why="Ray gives its workers no GPU that was not asked for: visits would be computed on processors",
            fix="gpus=1 for a GPU for each worker, or gpus=0.25 for four on one; or leave the device out",
        )
    if engine not in ("auto", "stacked") and device != "auto" and device_of(device) != CPU:
        raise UserError(
            f"device={device} with engine={engine}",
            expected="engine=stacked, or auto",
            why=f"the {engine} engine computes on the processor",
            fix="engine=stacked, or leave the device out",
        )


def _check_client_memory(experiment: Experiment) -> None:
    budget(experiment.client_memory)


def _check_recipe(experiment: Experiment) -> None:
    experiment.recipe.whole()


_CHECKS = (
    *(_check_task, _check_end, _check_seed, _check_driver, _check_engine),
    *(_check_expert, _check_score, _check_client_memory, _check_recipe, _check_arrivals),
)


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
