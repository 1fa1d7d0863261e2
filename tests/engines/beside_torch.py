"""The native engine beside torch's: whole runs, and what each sample's own gradient comes to."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import polyrhythm as pr
from polyrhythm.core.protocols import Opening
from polyrhythm.data import Collection
from polyrhythm.data.holding import Holding
from polyrhythm.engines.native.engine import NativeEngine
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.experiments.prepared import prepare
from polyrhythm.models.tasks import task


def vector(state: dict[str, Tensor]) -> Tensor:
    return torch.cat([value.flatten() for value in state.values()])


def hold_run(
    model: nn.Module, data: Collection, recipe: pr.Recipe, folder: Path, *, rounds: int, least: float, close: float
) -> None:
    """Goes on if a run of two clients has moved the weights by `least`, and by as much as `close` of that on both."""
    found = dict[str, Tensor]()
    for engine in ("native", "torch"):
        dealt = pr.federate(data, pr.data.Iid(), 2, 0)
        made = pr.Experiment(federation=dealt, model=model, recipe=recipe, rounds=rounds)
        execution = pr.Execution(engine=engine)  # type: ignore[arg-type]
        assert prepare(made, execution).chosen.kind == engine
        found[engine] = vector(pr.run(made, execution=execution, out=folder).weights())
    moved = float((found["torch"] - vector(model.state_dict())).norm())
    assert moved > least
    assert float((found["native"] - found["torch"]).norm()) < close * moved


def hold_trace(model: nn.Module, data: Collection, *, close: float) -> None:
    """Goes on if the squares of samples' own gradients are the same on both."""
    aim, held, traces = task("classification"), Holding(data.train, None), list[float]()
    for engine in (NativeEngine(model, aim, data.train.shape), TorchEngine(model, aim)):
        start = engine.initial()
        engine.open(Opening(data=held, start=start, received=start, previous=None, reuse=False))
        traces.append(engine.fisher(start, held))
    assert traces[0] == pytest.approx(traces[1], rel=close)
