"""LSTMs over tokens on the native engine: when it is chosen, and that runs are those of torch to rounding."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import polyrhythm as pr
from polyrhythm.base.compiled import extension
from polyrhythm.data import ArraySamples, Collection
from polyrhythm.engines.native import engine as native
from polyrhythm.engines.native.engine import NativeEngine
from polyrhythm.engines.selection import UNITS
from polyrhythm.models.recurrent import CharLstm
from polyrhythm.models.tasks import task
from small import collection, prepared

from .beside_torch import hold_run, hold_trace

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


@pytest.mark.parametrize(("units", "kind"), [(UNITS - 1, "native"), (UNITS, "torch")])
def test_auto_leaves_broad_lstms_to_torch(units: int, kind: str) -> None:
    dealt = pr.federate(texts(), pr.data.Iid(), 2, 0)
    assert prepared(federation=dealt, model=lstm(units, 1), recipe=LARGE).chosen.kind == kind


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_run_is_that_of_torch_to_rounding(recipe: str, large: bool, tmp_path: Path) -> None:
    hold_run(lstm(large=large), texts(), RECIPES[recipe], tmp_path, rounds=3, least=0.1, close=2e-4)


def test_each_samples_own_gradient_is_that_of_torch() -> None:
    hold_trace(lstm(), texts(), close=1e-4)


@pytest.mark.parametrize("odd", [float(TOKENS), -1.0, 0.5, float("nan")])
def test_a_token_that_the_embedding_does_not_know_is_refused(odd: float) -> None:
    engine = NativeEngine(lstm(), task("classification"), (LENGTH,))
    inputs, out = np.full((1, LENGTH), odd, dtype=np.float32), np.zeros((1, 3), dtype=np.float32)
    rounds, place = native.compiled(engine.program), engine.program.outputs.layers
    with pytest.raises(ValueError, match="tokens that the embedding knows"):
        rounds.look(weights=engine.weights.numpy(), inputs=inputs, order=np.arange(1), out=(place, out))
