"""Measures models. Each number says which model, on which samples, and how they were weighed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import final

import numpy as np
import torch

from polyrhythm.data.holding import Holding
from polyrhythm.engines.choosing import AnyEngine
from polyrhythm.experiment import Experiment
from polyrhythm.slots.mechanism import Model
from polyrhythm.streams import stream
from polyrhythm.tasks import Tally

Metrics = dict[str, float]


@final
class Evaluator:
    """Measures models on the experiment's sets.

    Args:
        experiment: gives the sets.
        engine: computes.
    """

    def __init__(self, experiment: Experiment, engine: AnyEngine) -> None:
        federation = experiment.federation
        self._engine, self._task = engine, experiment.aim
        self._test = Holding(federation.test)
        self._validation = None if federation.validation is None else Holding(federation.validation)
        self._clients: dict[int, Holding] = {}
        if federation.local_tests is not None:
            own = federation.local_tests
            self._clients = {c: Holding(own.samples, own.indices(c)) for c in np.flatnonzero(own.sizes).tolist()}
        self._train = None
        wanted = min(experiment.evaluation.train_samples, len(federation.shares.order))
        if wanted:
            drawn = stream(experiment.seed, "sample", "train").permutation(len(federation.shares.order))[:wanted]
            self._train = Holding(federation.train, federation.shares.order[torch.from_numpy(np.sort(drawn))])

    def test(self, model: Model) -> Metrics:
        """On the test set, pooled over its samples."""
        return self._engine.evaluate(model, self._test)

    def validation(self, model: Model) -> Metrics | None:
        """On the samples held out for choosing; None if there are none."""
        return None if self._validation is None else self._engine.evaluate(model, self._validation)

    def train(self, model: Model) -> Metrics | None:
        """On a fixed sample of all clients' training data; None if none was asked for."""
        return None if self._train is None else self._engine.evaluate(model, self._train)

    def clients(self, model_of: Callable[[int], Model]) -> Metrics | None:
        """On the clients' own test samples: `..._pooled` over all samples, `..._mean` over clients; None without.

        Args:
            model_of: the model that a client uses.
        """
        if not self._clients:
            return None
        tallies = [self._engine.tally(model_of(client), own) for client, own in self._clients.items()]
        total = Tally()
        for tally in tallies:
            total = total + tally
        single = [self._task.read(tally) for tally in tallies]
        pooled = {f"{name}_pooled": value for name, value in self._task.read(total).items()}
        return pooled | {f"{name}_mean": value for name, value in mean_metrics(single).items()}


def mean_metrics(many: list[Metrics]) -> Metrics:
    """The mean of each metric, every entry counting the same."""
    return {name: sum(m[name] for m in many) / len(many) for name in many[0]}


def averaged(measure: Callable[[Model], Metrics | None], models: Iterator[Model]) -> Metrics | None:
    """A measure's mean over several models; None if it measures nothing."""
    results = [result for model in models if (result := measure(model)) is not None]
    return mean_metrics(results) if results else None
