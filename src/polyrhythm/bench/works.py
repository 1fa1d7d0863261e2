"""The benchmarks' works as experiments, and as lists of batches for a program that knows nothing of polyrhythm."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import final

import numpy as np
import torch
from torch import Tensor

from polyrhythm.base.vectors import Buffers, Layout
from polyrhythm.bench import bare
from polyrhythm.core.local_step import Computed, LocalRule
from polyrhythm.core.protocols import ClientData, Opening
from polyrhythm.data import ArraySamples, Federation
from polyrhythm.data.federation import Shares
from polyrhythm.data.partitions import Iid
from polyrhythm.experiments.experiment import Experiment
from polyrhythm.experiments.prepared import Prepared, prepare
from polyrhythm.experiments.settings import Evaluation
from polyrhythm.methods.mechanism import Model, Setup
from polyrhythm.methods.order.base import Lens
from polyrhythm.methods.papers import fedavg
from polyrhythm.methods.personal.guides import Slope
from polyrhythm.models.catalogue import find
from polyrhythm.simulation.simulator import InlineDriver

SEED = 0


def experiment(name: str, rounds: int) -> Experiment:
    """A work as an experiment; evaluated only at its two ends."""
    work = bare.WORKS[name]
    inputs, targets = bare.made_up(work)
    samples = ArraySamples(inputs, targets)
    length = {"steps": work.steps} if work.steps else {"epochs": work.epochs}
    recipe = fedavg(
        cohort=work.cohort,
        batch=work.batch,
        lr=work.lr,
        momentum=work.momentum,
        weight_decay=work.decay,
        **length,  # type: ignore[arg-type]
    )
    federation = Federation(
        name=f"made up as {name}",
        task="next_character" if len(work.shape) == 1 else "classification",
        classes=tuple(map(str, range(work.classes))),
        shares=Shares.of(samples, np.arange(len(samples)), np.full(work.clients, work.samples)),
        test=ArraySamples(inputs[:10], targets[:10]),
        validation=None,
        local_tests=None,
        names=(),
        partition=Iid(),
        notes=(),
    )
    return Experiment(
        federation=federation,
        model=functools.partial(find(work.name), **work.settings),
        recipe=recipe,
        rounds=rounds,
        seed=SEED,
        evaluation=Evaluation(every=rounds + 1),
    )


def write_job(of: Experiment, rounds: int, path: Path) -> None:
    """Writes the initial weights and statistics, and the visits of every round with their seeds and batches."""
    prepared = prepare(of)
    listener = _Listener(prepared)
    setup = Setup(size=16, dtype=torch.float32, population=of.federation.clients, total_rounds=rounds, seed=of.seed)
    driver = InlineDriver(of.recipe, setup, listener, listener.holding, prepared.world())
    for _ in driver.moments(Model(weights=torch.zeros(16), buffers=())):
        pass
    cohort = len(listener.visits) // rounds
    engine = prepared.chosen.engine
    torch.save(
        {
            "weights": values_of(engine.layout, engine.state_of(engine.initial())),
            "rounds": [listener.visits[i : i + cohort] for i in range(0, cohort * rounds, cohort)],
        },
        path,
    )


def values_of(layout: Layout, state: Mapping[str, Tensor]) -> list[Tensor]:
    """Of a state dict what the loop by hand sends and averages, in its order: weights, then statistics."""
    names = [segment.name for segment in layout.segments]
    names += [slot.name for slot in layout.buffers if slot.dtype.is_floating_point]
    return [state[name].clone() for name in names]


@final
class _Listener:
    """An engine that computes nothing and notes which samples it is given."""

    layout = Layout((), (), torch.float32, 16)
    single_sample_fails = False
    one_mode = True
    forward_samples = 0

    def __init__(self, of: Prepared) -> None:
        self._of = of
        self._indices = torch.empty(0, dtype=torch.int64)
        self._whose = dict[int, int]()
        self.visits: list[tuple[int, list[Tensor]]] = []
        self.weights = torch.zeros(16)

    def holding(self, client: int) -> ClientData:
        """A client's samples, of which this remembers which they are."""
        data = self._of.data_of(client)
        self._whose[id(data)] = client
        return data

    def open(self, visit: Opening) -> None:
        """A visit begins."""
        self._indices = self._of.federation.indices(self._whose[id(visit.data)])
        self.visits.append((visit.seed, []))

    def step(self, inputs: Tensor, targets: Tensor, positions: np.ndarray, rule: LocalRule, rate: float) -> Computed:
        self.visits[-1][1].append(self._indices.index_select(0, torch.from_numpy(positions)))
        return Computed(torch.zeros(()), ())

    def slope(
        self, at: Tensor, inputs: Tensor, targets: Tensor, positions: np.ndarray, buffers: Buffers | None
    ) -> Slope:
        raise NotImplementedError

    def buffers(self) -> Buffers:
        return ()

    def evaluate(self, model: Model, data: ClientData, positions: np.ndarray | None = None) -> Mapping[str, float]:
        raise NotImplementedError

    def represented(self, model: Model, data: ClientData, layer: str) -> tuple[Tensor, Tensor, Tensor]:
        raise NotImplementedError

    def lens(self) -> Lens:
        return None  # type: ignore[return-value]  # a shuffled order looks at nothing

    def fisher(self, model: Model, data: ClientData, *, labels: np.random.Generator | None = None) -> float:
        raise NotImplementedError
