"""Holds the native engine to torch's: nets, data, recipes, and mutants of what it is given."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import polyrhythm as pr
from polyrhythm.base.compiled import extension
from polyrhythm.base.threads import one_thread
from polyrhythm.core.protocols import Job
from polyrhythm.data import ArraySamples, Collection
from polyrhythm.engines.native import engine as native
from polyrhythm.engines.native.engine import NativeEngine
from polyrhythm.engines.native.program import Program
from polyrhythm.experiments.prepared import Prepared
from polyrhythm.methods.local.optimisers import LocalSgd
from polyrhythm.simulation.simulator import InlineDriver, SimulationStep
from small import dealt, ready

from .law import Mutation, swap
from .world import near

ROUND = NativeEngine.local_round
PROGRAM = native.program_of


def needs_extension() -> None:
    if extension() is None:
        pytest.skip("polyrhythm was installed without its compiled extension")


def jobs(change: Callable[[Job], dict[str, Any]]) -> Mutation:
    """The mutant that is given another job."""
    return swap(NativeEngine, "local_round", lambda self, job: ROUND(self, dataclasses.replace(job, **change(job))))


def optimisers(**settings: Any) -> Mutation:
    """The mutant whose optimiser has other settings."""
    return jobs(lambda job: {"optimiser": dataclasses.replace(job.optimiser, **settings)})


def layers(kind: type, **settings: Any) -> Mutation:
    """The mutant whose layers of a kind have other settings."""

    def made(*arguments: Any) -> Program:
        whole = PROGRAM(*arguments)
        changed = (dataclasses.replace(p, **settings) if isinstance(p, kind) else p for p in whole.layers)
        return dataclasses.replace(whole, layers=tuple(changed))

    return swap(native, "program_of", made)


def without(kind: type) -> Mutation:
    """The mutant that leaves out layers of a kind."""

    def made(*arguments: Any) -> Program:
        whole = PROGRAM(*arguments)
        return dataclasses.replace(whole, layers=tuple(p for p in whole.layers if not isinstance(p, kind)))

    return swap(native, "program_of", made)


class Functional(nn.Module):
    """A network of functions, with windows of every kind, unused weights, and a layer without a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Conv2d(2, 3, (3, 2), stride=(2, 1), padding=(1, 0))
        self.narrow = nn.Conv2d(3, 5, 3, padding=2, bias=False)
        self.unused = nn.Linear(2, 2)
        self.head = nn.Linear(5 * 5 * 5, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = nn.functional.max_pool2d(torch.relu(self.wide(inputs)), 3, stride=2, padding=1)
        hidden = nn.functional.avg_pool2d(self.narrow(hidden).relu(), 3, stride=(1, 1), padding=1)
        outputs: Tensor = self.head(hidden.flatten(1))
        return outputs


def functional_net(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return Functional()


# Name or builder, the shape of a sample, and outputs.
NETS: dict[str, tuple[Any, tuple[int, ...], int]] = {
    "logistic": ("logistic", (5,), 3),
    "perceptron": (lambda shape, outputs: pr.models.build("mlp", shape, outputs, hidden=(19, 7)), (1, 6, 6), 3),
    "ccfl-mlp": (lambda shape, outputs: pr.models.build("ccfl-mlp", shape, outputs, dropout=0.0), (1, 6, 6), 11),
    "lenet5": ("lenet5", (3, 17, 16), 4),
    "functional": (functional_net, (2, 11, 7), 3),
    "moon-cnn": ("moon-cnn", (1, 16, 16), 3),
    "alexnet": (lambda shape, outputs: pr.models.build("alexnet", shape, outputs, dropout=0.0), (3, 16, 16), 3),
}
SMALL = ("logistic", "perceptron", "ccfl-mlp", "functional")


def federation(net: str, sizes: Sequence[int], tags: bool = False) -> pr.data.Federation:
    """Noise of a net's shape, dealt out unevenly."""
    _, shape, outputs = NETS[net]
    generator = np.random.default_rng(5)
    count = sum(sizes)
    inputs = torch.tensor(generator.normal(size=(count, *shape)), dtype=torch.float32)
    labels = generator.integers(0, outputs, count) if not tags else generator.random((count, outputs)) < 0.4
    samples = ArraySamples(inputs, torch.tensor(labels.astype(np.float32 if tags else np.int64)))
    data = Collection(
        name="noise",
        task="multilabel" if tags else "classification",
        classes=tuple(str(c) for c in range(outputs)),
        train=samples,
        test=samples,
    )
    return dealt(data, list(sizes))


def story(of: Prepared) -> list[SimulationStep]:
    """All that happens in an experiment."""
    engine = of.chosen.engine
    driver = InlineDriver(of.recipe, of.setup, engine, of.data_of, of.world())
    return list(driver.moments(engine.initial()))


def compare(recipe: pr.Recipe, net: str = "perceptron", sizes: Sequence[int] = (9, 34, 1, 17), **changes: Any) -> None:
    """Runs three versions with either engine and holds one to the other."""
    needs_extension()
    tags = "task" in changes and changes["task"].name == "multilabel"
    what = {"federation": federation(net, sizes, tags), "model": NETS[net][0], "recipe": recipe, "rounds": 3} | changes
    ours, theirs = (ready(pr.Experiment, **what, engine=engine) for engine in ("native", "torch"))
    assert isinstance(ours.chosen.engine, NativeEngine)
    with one_thread():
        for mine, wanted in zip(story(ours), story(theirs), strict=True):
            assert near(mine.turn.state.weights, wanted.turn.state.weights, 2e-6)
            if mine.report is None or wanted.report is None:
                continue
            a, b = mine.report, wanted.report
            assert (a.steps, a.samples, a.rate, a.travel, a.idle) == (b.steps, b.samples, b.rate, b.travel, b.idle)
            assert (a.forward_samples, a.gradient_samples) == (b.forward_samples, b.gradient_samples)
            assert (a.loss or 0.0) == pytest.approx(b.loss or 0.0, rel=1e-5, abs=1e-6)
            assert dict(a.measures) == pytest.approx(dict(b.measures), rel=1e-4, abs=1e-7)


def local(**settings: Any) -> LocalSgd:
    return LocalSgd(lr=0.02, **settings)
