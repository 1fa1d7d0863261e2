"""A tiny experiment that takes milliseconds, for tests of what stands around the training."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

import polyrhythm as pr
from polyrhythm.data import ArraySamples, Collection, Federation
from polyrhythm.data.federation import Shares
from polyrhythm.experiments.prepared import Prepared, prepare
from polyrhythm.experiments.session import carry_out
from polyrhythm.experiments.verify import Verdict
from polyrhythm.runs import Plan, RunStatus, VersionRecord, VisitRecord
from polyrhythm.runs.observer import Observer


def collection(samples: int = 60, features: int = 4, classes: int = 3, seed: int = 0) -> Collection:
    """Gaussian blobs, one per class; a quarter as many test samples."""
    generator = np.random.default_rng(seed)
    centres = 2.0 * generator.normal(size=(classes, features))

    def draw(count: int) -> ArraySamples:
        labels = np.arange(count) % classes
        inputs = centres[labels] + generator.normal(size=(count, features))
        return ArraySamples(torch.tensor(inputs, dtype=torch.float32), torch.tensor(labels))

    return Collection(
        name="blobs",
        task="classification",
        classes=tuple(str(c) for c in range(classes)),
        train=draw(samples),
        test=draw(samples // 4),
    )


def federation(clients: int = 4, **options: Any) -> Federation:
    """The blobs, dealt out evenly."""
    return pr.federate(collection(), pr.data.Iid(), clients, 0, **options)


def dealt(data: Collection, sizes: list[int], **changes: Any) -> Federation:
    """A federation in which client i holds the next sizes[i] samples."""
    values: dict[str, Any] = {
        "name": data.name,
        "task": data.task,
        "classes": data.classes,
        "shares": Shares.of(data.train, np.arange(sum(sizes)), np.array(sizes)),
        "test": data.test,
        "validation": None,
        "local_tests": None,
        "names": (),
        "partition": pr.data.Iid(),
        "notes": (),
    }
    return Federation(**values | changes)


def opposed() -> Federation:
    """Two clients that hold opposite labels, in training and in tests of their own."""
    data = collection(classes=2)
    inputs, targets = data.train.batch(torch.arange(60))
    flipped = ArraySamples(inputs, torch.cat([targets[:30], 1 - targets[30:]]))
    tests = ArraySamples(torch.cat([inputs[:9], inputs[30:39]]), torch.cat([targets[:9], 1 - targets[30:39]]))
    return dealt(
        data,
        [30, 30],
        shares=Shares.of(flipped, np.arange(60), np.array([30, 30])),
        local_tests=Shares.of(tests, np.arange(18), np.array([9, 9])),
    )


def experiment(**changes: Any) -> pr.Experiment:
    """Three versions of FedAvg with two of four clients."""
    values: dict[str, Any] = {
        "federation": federation(),
        "model": "logistic",
        "recipe": pr.fedavg(cohort=2, epochs=1, batch=5),
        "rounds": 3,
    }
    return pr.Experiment(**values | changes)


HOW = {setting.name for setting in dataclasses.fields(pr.Execution)}


def ready(make: Callable[..., pr.Experiment], /, **values: Any) -> Prepared:
    """An experiment ready to run; settings of `Execution` among the values say how."""
    how = {key: values.pop(key) for key in HOW & values.keys()}
    return prepare(make(**values), pr.Execution(**how))


def prepared(**changes: Any) -> Prepared:
    """That experiment ready to run."""
    return ready(experiment, **changes)


Made = pr.Experiment | Prepared


def _how(of: Made, options: dict[str, Any]) -> tuple[pr.Experiment, dict[str, Any]]:
    return (of, options) if isinstance(of, pr.Experiment) else (of.experiment, {"execution": of.execution, **options})


def run(of: Made, **options: Any) -> pr.Run:
    """Runs it, with a record."""
    experiment, options = _how(of, options)
    return pr.run(experiment, **options)


def resume(of: Made, begun: pr.Run | str, **options: Any) -> pr.Run:
    """Goes on with a run of it."""
    experiment, options = _how(of, options)
    return pr.resume(experiment, begun, **options)


def verify(recorded: pr.Run, of: Made, **options: Any) -> Verdict:
    """Runs it again, and compares."""
    experiment, options = _how(of, options)
    return pr.verify(recorded, experiment, **options)


def replay(recorded: pr.Run, of: Made, **options: Any) -> Verdict:
    """Takes a run's events in their order, and compares."""
    experiment, options = _how(of, options)
    return pr.replay(recorded, experiment, **options)


@final
class Log(Observer):
    """An observer that remembers everything."""

    def __init__(self, at: Callable[[VisitRecord | VersionRecord], None] = lambda record: None) -> None:
        self.plans: list[Plan] = []
        self.visits: list[VisitRecord] = []
        self.versions: list[VersionRecord] = []
        self.states: list[Mapping[str, Tensor]] = []
        self.ends: list[tuple[RunStatus, str]] = []
        self._at = at

    def begin(self, plan: Plan) -> None:
        self.plans.append(plan)

    def visit(self, record: VisitRecord) -> None:
        self.visits.append(record)
        self._at(record)

    def version(self, record: VersionRecord, model: Callable[[], Mapping[str, Tensor]]) -> None:
        self.versions.append(record)
        self.states.append(model())
        self._at(record)

    def end(self, status: RunStatus, reason: str, summary: Mapping[str, Any]) -> None:
        self.ends.append((status, reason))


def logged(**changes: Any) -> tuple[dict[str, Any], Log]:
    """Runs such an experiment; gives its summary and its log."""
    log = Log()
    return carry_out(prepared(**changes), [log]), log


@final
class Explodes(nn.Module):
    """A linear model that fails, or gives NaN, on the samples that carry a mark in their first feature."""

    def __init__(self, features: int, outputs: int, mark: float, how: str) -> None:
        super().__init__()
        self.linear = nn.Linear(features, outputs)
        self.mark, self.how = mark, how

    def forward(self, inputs: Tensor) -> Tensor:
        marked = inputs[:, :1] == self.mark
        if self.training and bool(marked.any()):
            if self.how == "raise":
                raise ValueError("a sensor is broken")
            return self.linear(inputs) * torch.where(marked, torch.nan, 1.0)
        return self.linear(inputs)
