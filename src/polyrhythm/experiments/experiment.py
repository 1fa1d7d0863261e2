"""An experiment: data x model x fleet x recipe, a seed, and when to stop. What can be known to be wrong is refused."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, final

import numpy as np
from torch import Tensor, nn

from polyrhythm.base import html
from polyrhythm.base.errors import Mistakes, UserError, check_kind
from polyrhythm.base.metric_names import in_words
from polyrhythm.base.plain import plain
from polyrhythm.base.settings import Count, Seed, Settings, Takes
from polyrhythm.base.streams import seeded_everywhere
from polyrhythm.data.federation import Federation
from polyrhythm.experiments.adapters import for_adapters
from polyrhythm.experiments.in_memory import Initial, begun_with, losses_told, weights_told
from polyrhythm.experiments.reachable_end import check_budget, check_end, check_metric
from polyrhythm.experiments.settings import Evaluation, Name, Until
from polyrhythm.fleet import Fleet, FleetState
from polyrhythm.methods.recipe import Recipe
from polyrhythm.models.building import build
from polyrhythm.models.calling import calls
from polyrhythm.models.catalogue import Builder
from polyrhythm.models.task import Task
from polyrhythm.models.tasks import task


@final
@dataclass(frozen=True, kw_only=True)
class Experiment(Settings):
    """What a run computes, described in full; `Execution` says how.

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
        initial: the initial weights by name: a safetensors file, a state dict or a file with one (.pt, .pth), a module,
            or a run, of which they are the final ones; or a folder with an adapter, as `run.adapter` writes it; None
            for the model's own.
        initial_skip: patterns of names that begin as the model makes them all the same, such as ("head.*",).
        expert: how difficult each training sample is, for curricula that ask an expert: a safetensors file with a
            trained model of the same architecture, as `polyrhythm expert` makes, or the losses themselves, [n].
        name: what you call the run.
        config: the experiment as it was written, for the record; made from the parts if None.

    Raises:
        UserError: anything that can be known to be wrong before the first round, all of it at once.
    """

    federation: Federation
    model: Annotated[str | Builder | nn.Module, Takes("a name such as 'mlp', a class or function, or an nn.Module")]
    recipe: Recipe
    task: Task | None = None
    fleet: Fleet = field(default_factory=Fleet)
    rounds: Count | None = None
    until: Until = field(default_factory=Until)
    seed: Seed = 0
    evaluation: Evaluation = field(default_factory=Evaluation)
    initial: Annotated[Initial | None, Takes("a file, a state dict, a module or a run")] = None
    initial_skip: tuple[str, ...] = ()
    expert: Path | str | np.ndarray | None = None
    name: Name = ""
    config: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        _check_kinds(self)
        wrong = Mistakes()
        with wrong.noted():
            super().__post_init__()
        for check in _CHECKS:
            with wrong.noted():
                check(self)
        wrong.refuse()
        _check_groups(self)

    @functools.cached_property
    def aim(self) -> Task:
        """What the model is asked to do: the given task, or the one that follows from the data."""
        return (self.task or task(self.federation.task)).fitted(self.federation.outputs, self.federation.trained)

    def module(self) -> nn.Module:
        """The model with its initial weights, built anew unless a module was given."""
        return begun_with(self.built(), self.initial, self.initial_skip)

    def built(self) -> nn.Module:
        """The model as it is made, whatever weights it is to begin with; it takes samples as the data have them."""
        made, federation = self.model, self.federation
        if not isinstance(made, nn.Module):
            with seeded_everywhere(self.seed, "init"):
                made = build(made, federation.shape, federation.outputs)
        made = for_adapters(self.recipe, made)
        return made if federation.structure is None else calls(made, federation.structure)

    def holders(self) -> np.ndarray:
        """The clients that hold data, in order, int64."""
        return np.flatnonzero(self.federation.sizes)

    def world(self, clients: np.ndarray) -> FleetState:
        """The fleet at the beginning of a run in which these clients can be invited."""
        federation = self.federation
        held, labels = federation.sizes.tolist(), federation.label_shares()
        everybody = range(federation.clients) if len(clients) == federation.clients else clients.tolist()
        return FleetState(self.fleet, federation.clients, self.seed, everybody, labels, held)

    def groups(self, clients: np.ndarray) -> Mapping[str, np.ndarray]:
        """These clients by group of like devices, where results by group are asked for; else empty."""
        if not self.evaluation.groups:
            return {}
        world, found = self.world(clients), dict[str, list[int]]()
        for client in clients.tolist():
            found.setdefault(world.device(client).group, []).append(client)
        return {name: np.array(found[name]) for name in sorted(found) if name}

    def __repr__(self) -> str:
        named, ends = f" {self.name}" if self.name else "", ", ".join(self._ends)
        what = f"{self.recipe.title} on {self.federation!r}, {self._model}"
        return plain(f"<Experiment{named}: {what}, {ends}, seed {self.seed}>")

    def _repr_html_(self) -> str:
        federation, aim = self.federation, self.aim
        lines = {
            "data": f"{federation.name}, {federation.clients:,} clients, {federation.partition.text()}",
            "model": self._model,
            "method": f"{self.recipe.title}: {self.recipe.in_words}",
            "task": f"{aim.name}, judged by {in_words(aim.headline)}",
            "fleet": self.fleet.in_words,
            "ends": ", ".join(self._ends),
            "seed": str(self.seed),
        }
        return html.framed(html.facts(self.name or "experiment", lines))

    @property
    def _model(self) -> str:
        return self.model if isinstance(self.model, str) else _name_of(self.model)

    @property
    def _ends(self) -> list[str]:
        until = [] if self.until == Until() else [self.until.text()]
        return [*([] if self.rounds is None else [f"{self.rounds:,} rounds"]), *until]

    def describe(self) -> dict[str, Any]:
        """The experiment as plain data. How it is computed is no part of it."""
        if self.config is not None:
            return dict(self.config)
        return {
            "data": self.federation.name,
            "clients": 1 if self.recipe.regime == "centralised" else self.federation.clients,
            "partition": self.federation.partition.describe(),
            "model": self._model,
            "method": self.recipe.describe(),
            "task": self.aim.describe(),
            "fleet": self.fleet.describe(),
            "rounds": self.rounds,
            "until": self.until.describe(),
            "seed": self.seed,
            "evaluation": self.evaluation.describe(),
            "initial": None if self.initial is None else weights_told(self.initial),
            "expert": losses_told(self.expert),
            **({"initial_skip": list(self.initial_skip)} if self.initial_skip else {}),
            **({} if self.federation.unseen is None else {"unseen": self.federation.unseen.share}),
        }


def _name_of(model: Builder | nn.Module) -> str:
    kind = type(model) if isinstance(model, nn.Module) else model
    return f"{getattr(kind, '__module__', '?')}:{getattr(kind, '__qualname__', repr(kind))}"


def _check_kinds(experiment: Experiment) -> None:
    kinds: dict[str, type] = {
        **{"federation": Federation, "recipe": Recipe, "task": Task},
        **{"fleet": Fleet, "until": Until, "evaluation": Evaluation},
    }
    wrong = Mistakes()
    for name, kind in kinds.items():
        if (value := getattr(experiment, name)) is not None or name != "task":
            with wrong.noted():
                check_kind(name, value, kind, _EXAMPLES[name])
    wrong.refuse()


_EXAMPLES = {
    "federation": "pr.federate(pr.data.digits(), pr.data.Dirichlet(alpha=0.3), clients=20, seed=0)",
    "recipe": "pr.fedavg(cohort=10)",
    "task": 'pr.task("multilabel", k=3)',
    "fleet": "pr.Fleet(devices=pr.fleet.Tiers())",
    "until": "pr.Until(accuracy=0.9)",
    "evaluation": "pr.Evaluation(every=5)",
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


def _check_groups(experiment: Experiment) -> None:
    if not experiment.evaluation.groups:
        return
    if not experiment.groups(experiment.holders()):
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


def _check_visits(experiment: Experiment) -> None:
    """Whether there are as many visits as versions take, where nobody is invited more than so often."""
    recipe, rounds = experiment.recipe, experiment.rounds
    most = recipe.most_visits
    if most is None or rounds is None or recipe.participation.may_be_empty:
        return
    each, holders = recipe.release.release_size or recipe.cohort, len(experiment.holders())
    if rounds * min(each, holders) > most * holders:
        raise UserError(
            f"{rounds:,} rounds of {each:,} clients with {recipe.title}, where {holders:,} clients may each be invited "
            f"{most:,} times",
            expected=f"{most * holders // min(each, holders):,} rounds at most",
            why="then nobody is left to be invited, and the run would wait for ever",
            fix="fewer rounds, a smaller cohort, or more visits in at_most(visits=…)",
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
    if not experiment.aim.samples_have_losses and (asked := _of_single_samples(experiment)):
        raise UserError(
            f"{asked} for the task {about}",
            expected="parts that need no loss, class or gradient of a single sample",
            why="what a sample adds to this loss depends on which others are in its batch: it has none of its own",
            fix="leave it out",
        )
    if order.predicts and about in ("multilabel", "regression"):
        raise UserError(
            f"{order.label()}: score = {order.predicts!r} for the task {about}",
            expected="a score by loss: global, local, both or expert",
            why="whether a prediction is right is asked of one class per sample, and there is none here",
            fix=f"score={order.predicts.removesuffix('_pred')!r}",
        )


def _of_single_samples(experiment: Experiment) -> str:
    """What asks for the losses of single samples, in words; empty if nothing does."""
    recipe, measure = experiment.recipe, experiment.evaluation.measure
    if recipe.order.looks(True) or recipe.order.predicts:
        return recipe.order.label()
    if asked := recipe.needs() & {"squared_loss", "fisher", "fisher_model", "expert"}:
        return f"{recipe.title}, which asks for {' and '.join(sorted(asked))},"
    return "evaluation.measure = sample_losses" if "sample_losses" in measure else ""


def _check_samples(experiment: Experiment) -> None:
    federation = experiment.federation
    if not federation.sizes.any():
        raise UserError(
            f"{federation.name}: none of {federation.clients} clients holds a sample",
            expected="at least one client with data",
            why="there would be nobody to invite",
            fix="hold out less for tests and validation, or use another partition",
        )


def _check_reports(experiment: Experiment) -> None:
    recipe, holders = experiment.recipe, int(np.count_nonzero(experiment.federation.sizes))
    least = recipe.releasing.least
    # Where places are filled again, a client may answer several times for one version.
    if least > holders and recipe.regime == "federated" and not recipe.fills_places:
        raise UserError(
            f"{recipe.title}: a version needs {least} reports, and {holders} clients hold data",
            expected=f"at most {holders}",
            why="each client reports once for a version, so that every version would be skipped",
            fix=f"min_reports(count={holders}) or less, or more clients",
        )


def _check_initial(experiment: Experiment) -> None:
    given = experiment.initial
    if isinstance(given, Mapping) and (odd := [n for n, t in given.items() if not isinstance(t, Tensor)]):
        raise UserError(
            f"initial: {odd[0]!r} is a {type(given[odd[0]]).__name__}",
            expected="a state dict: tensors by name",
            why="weights go into the model by their names",
            fix="initial=model.state_dict(), or the part of a checkpoint that holds it",
        )
    if experiment.initial_skip and given is None:
        raise UserError(
            f"initial_skip = {experiment.initial_skip!r} without initial weights",
            expected="initial weights, of which these are left out",
            why="every weight is the model's own anyway",
            fix="give initial, or leave initial_skip out",
        )


def _check_metric(experiment: Experiment) -> None:
    if experiment.until.judges:
        check_metric(experiment.until, experiment.federation, experiment.aim)


def _check_recipe(experiment: Experiment) -> None:
    experiment.recipe.whole()


_CHECKS = (
    _check_task,
    lambda made: check_end(made.rounds, made.until, made.recipe, made.fleet),
    lambda made: check_budget(made.until, made.recipe),
    _check_metric,
    _check_expert,
    _check_score,
    _check_recipe,
    _check_arrivals,
    _check_visits,
    _check_samples,
    _check_reports,
    _check_initial,
)
