"""LSTMs over tokens on the native engine: when it is chosen, and that runs are those of torch to rounding."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import polyrhythm as pr
from polyrhythm.base.compiled import extension
from polyrhythm.core.protocols import Opening
from polyrhythm.data import ArraySamples, Collection
from polyrhythm.data.holding import Holding
from polyrhythm.engines.native import engine as native
from polyrhythm.engines.native.engine import NativeEngine
from polyrhythm.engines.selection import UNITS
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.experiments.prepared import prepare
from polyrhythm.models.recurrent import CharLstm
from polyrhythm.models.tasks import task
from small import collection, prepared

TOKENS, LENGTH = 7, 5
LARGE = pr.fedavg(cohort=2, epochs=1, batch=8, lr=0.3)
RECIPES = {
    "plain": LARGE,
    "several epochs, clipped": pr.fedavg(cohort=2, epochs=2, batch=11, lr=0.3, clip=0.05),
    "adam": LARGE | pr.parts.local_adam(lr=0.02),
    "prox": LARGE | pr.parts.prox(mu=0.5),
    "moon": pr.moon(cohort=2, epochs=2, batch=8, lr=0.3, layer="features"),
    "alt": pr.alt(cohort=2, epochs=3, batch=8, lr=0.3, representation="features"),
    "scaffold": pr.scaffold(cohort=2, epochs=1, batch=8, lr=0.3),
    "fedrep": pr.fedrep(cohort=2, epochs=2, batch=8, lr=0.3),
    "kept at home": LARGE | pr.parts.personal_layers(layers=("embedding.*", "lstm.weight_hh_l0")),
    "curriculum": pr.curriculum_fl(cohort=2, epochs=1, batch=8, lr=0.3),
}

pytestmark = pytest.mark.skipif(extension() is None, reason="polyrhythm was installed without its compiled extension")


def texts(samples: int = 37) -> Collection:
    """Tokens, and which of three classes their sum is of."""
    drawn = torch.from_numpy(np.random.default_rng(0).integers(0, TOKENS, (samples, LENGTH)))
    held = ArraySamples(drawn, drawn.sum(dim=1) % 3)
    return dataclasses.replace(collection(), train=held, test=held)


def lstm(units: int = 13, layers: int = 2, *, large: bool = False) -> nn.Module:
    """With gates that are shut or wide open, if `large`."""
    torch.manual_seed(0)
    module = CharLstm(TOKENS, 4, units, layers, 0.0)
    if large:
        with torch.no_grad():
            module.embedding.weight.mul_(30)
    return module


def dealt() -> pr.Federation:
    return pr.federate(texts(), pr.data.Iid(), 2, 0)


def vector(state: dict[str, Tensor]) -> Tensor:
    return torch.cat([value.flatten() for value in state.values()])


@pytest.mark.parametrize(("units", "kind"), [(UNITS - 1, "native"), (UNITS, "torch")])
def test_auto_leaves_broad_lstms_to_torch(units: int, kind: str) -> None:
    assert prepared(federation=dealt(), model=lstm(units, 1), recipe=LARGE).chosen.kind == kind


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_run_is_that_of_torch_to_rounding(recipe: str, large: bool, tmp_path: Path) -> None:
    model, found = lstm(large=large), dict[Any, Tensor]()
    for engine in ("native", "torch"):
        made = pr.Experiment(federation=dealt(), model=model, recipe=RECIPES[recipe], rounds=3)
        execution = pr.Execution(engine=engine)
        assert prepare(made, execution).chosen.kind == engine
        run = pr.run(made, execution=execution, out=tmp_path)
        found[engine] = vector(run.weights())
    moved = float((found["torch"] - vector(model.state_dict())).norm())
    assert moved > 0.1
    assert float((found["native"] - found["torch"]).norm()) < 2e-4 * moved


def test_each_samples_own_gradient_is_that_of_torch() -> None:
    module, data = lstm(), Holding(texts().train, None)
    engines = NativeEngine(module, task("classification"), (LENGTH,)), TorchEngine(module, task("classification"))
    traces = []
    for engine in engines:
        model = engine.initial()
        engine.open(Opening(data=data, start=model, received=model, previous=None, reuse=False))
        traces.append(engine.fisher(model, data))
    assert traces[0] == pytest.approx(traces[1], rel=1e-4)


@pytest.mark.parametrize("odd", [float(TOKENS), -1.0, 0.5, float("nan")])
def test_a_token_that_the_embedding_does_not_know_is_refused(odd: float) -> None:
    engine = NativeEngine(lstm(), task("classification"), (LENGTH,))
    inputs, out = np.full((1, LENGTH), odd, dtype=np.float32), np.zeros((1, 3), dtype=np.float32)
    rounds, place = native.compiled(engine.program), engine.program.outputs.layers
    with pytest.raises(ValueError, match="tokens that the embedding knows"):
        rounds.look(weights=engine.weights.numpy(), inputs=inputs, order=np.arange(1), out=(place, out))
