"""Measures models. Each number says which model, on which samples, and how they were weighed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast, final

import numpy as np
import torch
from torch import Tensor

from polyrhythm.base.metric_names import NAN_OUTPUTS
from polyrhythm.base.streams import generators, stream
from polyrhythm.core.measuring import measuring
from polyrhythm.core.portions import Narrows
from polyrhythm.core.predicting import Used
from polyrhythm.data.holding import Holding
from polyrhythm.experiments.experiment import Experiment
from polyrhythm.experiments.members import measured
from polyrhythm.experiments.prepared import Prepared
from polyrhythm.methods.mechanism import Model
from polyrhythm.models.tally import Tally
from polyrhythm.runs.records import ClassResultsRecord, ClientResultsRecord
from polyrhythm.runs.spread import spread

M = TypeVar("M")
Metrics = dict[str, float]
Of = tuple[int | str, ...]
"""Names a model: its version, and whose it is where clients have models of their own."""
FEW_CLASSES = 20
"""Classes up to which the confusion matrix of every version is kept."""
MOST_CLASSES = 500
"""Classes up to which that of the last version is."""
GROUP_SAMPLES = 1000
"""Training samples of a group that are measured on where no client has a test of its own."""


@final
class Evaluator:
    """Measures models on the experiment's sets.

    What a model draws in eval mode is named by the run's seed, the model and the set: the same however often, in what
    order and beside what else it is measured.

    Args:
        prepared: gives the sets, and the engine that computes.
        by_class: whether anybody wants to know what becomes of each class.
    """

    def __init__(self, prepared: Prepared, *, by_class: bool = False) -> None:
        experiment, federation, engine = prepared.experiment, prepared.federation, prepared.chosen.engine
        self._engine, self._task, self._seed = engine, experiment.aim, experiment.seed
        self._classes = len(federation.classes) if by_class else 0
        self._capacity, self._cuts = experiment.recipe.capacity, prepared.cuts
        self.measured = measured(experiment)
        """The clients whose own results are kept."""
        self._test = Holding(federation.test)
        self._validation = None if federation.validation is None else Holding(federation.validation)
        self._clients: dict[int, Holding] = {}
        if federation.local_tests is not None:
            own = federation.local_tests
            self._clients = {c: Holding(own.samples, own.indices(c)) for c in np.flatnonzero(own.sizes).tolist()}
        self.unseen: Mapping[int, Holding] = {}
        """The own tests of clients that never train; empty where there is no model to give them."""
        if (apart := federation.unseen) is not None and experiment.recipe.regime != "local":
            self.unseen = {c: Holding(apart.tests.samples, apart.tests.indices(c)) for c in apart.clients}
        self._groups = {name: members.tolist() for name, members in prepared.groups.items()}
        self._by_tests = bool(self._clients) and experiment.recipe.regime != "centralised"
        self._of_groups = {} if self._by_tests else self._training_data_of_groups(experiment)
        self._pairs: tuple[tuple[Tensor, Tensor], ...] = ()
        self._train = None
        wanted = min(experiment.evaluation.train_samples, len(federation.shares.order))
        if wanted:
            drawn = stream(experiment.seed, "sample", "train").permutation(len(federation.shares.order))[:wanted]
            self._train = Holding(federation.train, federation.shares.order[torch.from_numpy(np.sort(drawn))])
        self._initial = prepared.initial if experiment.recipe.regime == "local" else None
        self._common = tuple(held for held in (self._test, self._validation, self._train) if held is not None)
        self._of_initial: dict[Any, Tally] = {}
        """What was counted of the model that all began with, unless it draws: by the name of a set, and if by class."""

    def test(self, model: Model, of: Of = ()) -> Metrics:
        """On the test set, pooled over its samples."""
        tally = self._tally(model, self._test, "test", *of, by_class=self._classes > 0)
        self._pairs += tally.classes
        return self._task.read(tally)

    def submodels(self, model: Model, of: Of = ()) -> Metrics:
        """What the parts of a model that clients hold give on the test set: the headline metric, by level.

        Of a part that moves on, as a rolling window does, that of the first units.
        """
        found, capacity, cuts = Metrics(), self._capacity, self._cuts
        if cuts is None:
            return found
        for level in sorted(set(capacity.levels), reverse=True):
            if (part := capacity.submodel(cuts, level, model.weights)) is None:
                continue
            held = Model(weights=part.taken(model.weights), buffers=part.taken_buffers(model.buffers))
            engine = cast(Narrows, self._engine).narrowed(part, 1.0)
            with measuring(engine, self._test, self._seed, "submodel", f"{level:g}", *of):
                metrics = engine.evaluate(held, self._test)
            if self._task.headline in metrics:
                found[f"submodel_{level:g}_{self._task.headline}"] = metrics[self._task.headline]
        return found

    def validation(self, model: Model, of: Of = ()) -> Metrics | None:
        """On the samples held out for choosing; None if there are none."""
        held = self._validation
        return None if held is None else self._task.read(self._tally(model, held, "validation", *of))

    def train(self, model: Model, of: Of = ()) -> Metrics | None:
        """On a fixed sample of all clients' training data; None if none was asked for."""
        return None if self._train is None else self._task.read(self._tally(model, self._train, "train", *of))

    def own_tests(self, model_of: Callable[[int], Model | Used], of: Of = ()) -> dict[int, Tally]:
        """What the task counts on each client's own test samples; empty if there are none.

        Args:
            model_of: the model that a client uses.
            of: names these models.
        """
        return {c: self._tally(model_of(c), own, "own test", *of, c) for c, own in self._clients.items()}

    def own_test(self, client: int, used: Model | Used, data: Holding, of: Of = ()) -> Metrics:
        """On one client's own test samples: the same as in `own_tests`.

        Args:
            client: whose.
            used: what it uses.
            data: these samples.
            of: names it.
        """
        return self._task.read(self._tally(used, data, "own test", *of, client))

    def unseen_tests(self, model_of: Callable[[int], Model | Used], of: Of = ()) -> dict[int, Tally]:
        """The same on the tests of clients that never train."""
        return {c: self._tally(model_of(c), own, "own test", *of, c) for c, own in self.unseen.items()}

    def of_clients(
        self, version: int, own: Mapping[int, Tally], personal: Mapping[int, Tally]
    ) -> ClientResultsRecord | None:
        """What single clients get out of a version; None where none is measured.

        Args:
            version: which one.
            own: what `own_tests` gave.
            personal: the same of the models that clients use; empty where they were not measured.
        """
        if not own or not self.measured:
            return None
        read = [self._task.read(own[client]) for client in self.measured]
        scores, losses = (tuple(m.get(k, math.nan) for m in read) for k in (self._task.headline, "loss"))
        theirs = tuple(self._score(personal[client]) for client in self.measured) if personal else None
        return ClientResultsRecord(version=version, scores=scores, losses=losses, personal=theirs)

    def spread(
        self,
        own: Mapping[int, Tally],
        personal: Mapping[int, Tally],
        unseen: tuple[Mapping[int, Tally], Mapping[int, Tally]] = ({}, {}),
    ) -> Metrics | None:
        """How the headline metric is spread over clients, as `VersionRecord.spread`; None without tests of their own.

        Args:
            own: what `own_tests` gave of the global model; empty where there is none.
            personal: and of the models that clients use; empty where they were not measured.
            unseen: both of the clients that never train.
        """
        found = self._spread(own, personal)
        if any(unseen):
            found["unseen_clients"] = float(len(unseen[0]))
            found |= {f"unseen_{name}": value for name, value in self._spread(*unseen).items()}
        return found or None

    def _spread(self, own: Mapping[int, Tally], personal: Mapping[int, Tally]) -> Metrics:
        found = Metrics()
        for name, tallies in (("global", own), ("personal", personal)):
            scores = [self._score(tally) for tally in tallies.values()]
            if (over := spread(scores)) is not None:
                found[f"{name}_mean"], found[f"{name}_pooled"] = over.mean, self._score(_sum(tallies.values()))
                found[f"{name}_median"], found[f"{name}_worst_decile"] = over.median, over.worst
                found[f"{name}_sd_over_clients"] = over.sd
        if own and personal:
            pairs = [(self._score(personal[client]), self._score(own[client])) for client in own]
            known = [mine < everybodys for mine, everybodys in pairs if not math.isnan(mine + everybodys)]
            if known:
                found["personal_worse"] = sum(known) / len(known)
        return found

    def _score(self, tally: Tally) -> float:
        """The headline metric; NaN where it is undefined."""
        return self._task.read(tally).get(self._task.headline, math.nan)

    def of_classes(self, version: int, *, last: bool) -> ClassResultsRecord | None:
        """What a version makes of each class, from its tests since this was asked last; None without classes.

        Args:
            version: which one.
            last: whether the run ends with it, so that its confusion matrix is kept however many classes there are.
        """
        if not self._pairs or not self._classes:
            return None
        size, (true, put) = self._classes, (torch.cat(parts) for parts in zip(*self._pairs, strict=True))
        self._pairs = ()
        table = torch.bincount(true * (size + 1) + put.clamp(max=size), minlength=size * (size + 1))
        table = table.reshape(size, size + 1)  # a last column of those that are put into none
        kept = size <= FEW_CLASSES or (last and size <= MOST_CLASSES)
        return ClassResultsRecord(
            version=version,
            present=tuple(table.sum(dim=1).tolist()),
            right=tuple(table.diagonal().tolist()),
            confusion=tuple(table[:, :size].flatten().tolist()) if kept else None,
        )

    def over_clients(self, own: Mapping[int, Tally]) -> Metrics | None:
        """From the clients' own tests; None without.

        `..._pooled` is over all samples, `..._mean` over those clients for which the metric is defined, and
        `..._mean_clients` how many these are, where it is not defined for some that have tests. A task may have more.
        """
        if not own:
            return None
        single = [self._task.read(tally) for tally in own.values()]
        pooled = {f"{name}_pooled": value for name, value in self._task.read(_sum(own.values())).items()}
        means = {f"{name}_mean": value for name, value in mean_metrics(single).items()}
        names = dict.fromkeys((*_names(single), *self._task.metrics_read))
        defined = {name: sum(name in metrics for metrics in single) for name in names}
        some = {f"{name}_mean_clients": float(n) for name, n in defined.items() if n < len(single)}
        return pooled | means | some | self._task.over_clients(own.values())

    def over_groups(self, own: Mapping[int, Tally], model: Model, of: Of = ()) -> Metrics | None:
        """For each group of like devices, pooled: on its clients' own tests, else on a sample of its training data.

        Args:
            own: what `own_tests` gave: each client's, under the model that it uses.
            model: the global model, for the training data.
            of: names it.
        """
        tallies = {name: _sum(own[c] for c in members if c in own) for name, members in self._groups.items()}
        if not own or not self._by_tests:
            tallies = {n: self._tally(model, data, "group", n, *of) for n, data in self._of_groups.items()}
        read = {name: self._task.read(tally) for name, tally in tallies.items() if tally.count}
        found = {
            f"{n.replace(' ', '_')}_{what}": value for n, metrics in read.items() for what, value in metrics.items()
        }
        return found or None

    def _tally(self, used: Model | Used, data: Holding, *names: int | str, by_class: bool = False) -> Tally:
        model = used.model if isinstance(used, Used) else used
        # Where all clients have models of their own, that of those who have not trained is one, and is measured once.
        known = (names[0], by_class) if model is self._initial and data in self._common else None
        if known in self._of_initial:
            return self._of_initial[known]
        with measuring(self._engine, data, self._seed, *names):
            if not isinstance(used, Used) or used.predicts is None:
                before = generators() if known else None
                tally = self._engine.tally(model, data, by_class=by_class)
                if known and generators() == before:
                    self._of_initial[known] = tally
                return tally
            outputs, features, targets = self._engine.represented(model, data, used.layer)
        return self._task.tally(used.predicts(outputs, features), targets, by_class=by_class)

    def _training_data_of_groups(self, experiment: Experiment) -> dict[str, Holding]:
        """A sample of each group's training data, drawn once."""
        federation, most = experiment.federation, experiment.evaluation.train_samples or GROUP_SAMPLES
        found = {}
        for name, members in self._groups.items():
            held = torch.cat([federation.indices(client) for client in members])
            drawn = stream(experiment.seed, "sample", "group", name).permutation(len(held))[:most]
            found[name] = Holding(federation.train, held[torch.from_numpy(np.sort(drawn))])
        return found


def _sum(tallies: Iterable[Tally]) -> Tally:
    total = Tally()
    for tally in tallies:
        total = total + tally
    return total


def mean_metrics(many: list[Metrics]) -> Metrics:
    """The mean of each metric, every entry for which it is defined counting the same."""
    found = {}
    for name in _names(many):
        known = [metrics[name] for metrics in many if name in metrics]
        found[name] = sum(known) / len(known)
    return found


def _names(many: list[Metrics]) -> tuple[str, ...]:
    """The metrics that one of them has, in order; how many outputs were NaN is a count, and none."""
    return tuple(dict.fromkeys(name for metrics in many for name in metrics if name != NAN_OUTPUTS))


def averaged(measure: Callable[[M], Metrics | None], models: Iterable[M]) -> Metrics | None:
    """A measure's mean over several models; None if it measures nothing."""
    results = [result for model in models if (result := measure(model)) is not None]
    return mean_metrics(results) if results else None
