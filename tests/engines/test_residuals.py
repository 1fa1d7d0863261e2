"""Networks with shortcuts and group norms on the native engine: what is read, and that runs are those of torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import polyrhythm as pr
from polyrhythm.base.compiled import extension
from polyrhythm.base.flat_model import FlatModel
from polyrhythm.data import ArraySamples, Collection
from polyrhythm.engines.native.program import AveragePool, Convolution, From, Linear, Norm, Program, Relu, Sum
from polyrhythm.engines.native.reading import program_of
from polyrhythm.engines.unsupported import Unsupported
from polyrhythm.models import build
from polyrhythm.models.resnet import BasicBlock
from polyrhythm.models.tasks import task
from small import collection

from .beside_torch import hold_run, hold_trace

compiled = pytest.mark.skipif(extension() is None, reason="polyrhythm was installed without its compiled extension")
SHAPE = (3, 4, 6)


class Through(nn.Module):
    """Some layers, put together by a function."""

    def __init__(self, how: Callable[[Any, Tensor], Tensor], channels: int = 4) -> None:
        super().__init__()
        self.how = how
        self.one, self.two = nn.Conv2d(3, channels, 3, padding=1), nn.Conv2d(channels, channels, 3, padding=1)
        self.norm, self.last = nn.GroupNorm(2, channels), nn.Linear(channels * 24, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.last(torch.flatten(self.how(self, inputs), 1))
        return outputs


def shortcut(net: Any, inputs: Tensor) -> Tensor:
    hidden = functional.relu(net.norm(net.one(inputs)))
    return hidden + functional.relu(net.two(hidden))


def network(seed: int = 0, *, dropout: float = 0.0) -> nn.Module:
    """A plain block and one with a stride, whose shortcut is a convolution."""
    torch.manual_seed(seed)
    make = [lambda width: nn.GroupNorm(2, width), lambda width: nn.GroupNorm(width, width, affine=False)]
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.Dropout(dropout),
        BasicBlock(16, 16, 1, make[0]),
        BasicBlock(16, 24, 2, make[1]),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(24, 3),
    )


def read(module: nn.Module, shape: tuple[int, ...] = SHAPE) -> Program:
    flat = FlatModel(module)
    return program_of(flat.module.train(), flat.layout, task("classification"), shape)


def test_the_program_of_a_shortcut() -> None:
    program = read(Through(shortcut))
    around: dict[str, Any] = {"kernel": (3, 3), "stride": (1, 1), "padding": (1, 1)}
    at = {segment.name: segment.offset for segment in FlatModel(Through(shortcut)).layout.segments}
    assert program.layers == (
        Convolution(weights=at["one.weight"], bias=at["one.bias"], rows=4, **around),
        Norm(weights=at["norm.weight"], bias=at["norm.bias"], groups=2, epsilon=1e-5),
        Relu(),
        Convolution(weights=at["two.weight"], bias=at["two.bias"], rows=4, **around),
        Relu(),
        Sum(place=3),
        Linear(weights=at["last.weight"], bias=at["last.bias"], rows=3),
    )


def test_places_are_the_same_with_and_without_dropout() -> None:
    program, plain = read(network(dropout=0.5)), read(network())
    assert [layer for layer in program.layers if layer in plain.layers] == list(plain.layers)
    assert len(program.layers) == len(plain.layers) + 1
    assert [layer.place for layer in plain.layers if isinstance(layer, From | Sum)] == [2, 9, 14]
    assert program.inputs[-1] == plain.inputs[-1] == (24, 1, 1)
    pool = next(layer for layer in plain.layers if isinstance(layer, AveragePool))
    assert (pool.kernel, plain.inputs[plain.layers.index(pool)]) == ((2, 3), (24, 2, 3))


@pytest.mark.parametrize("model", ["resnet9", "resnet18"])
def test_the_zoos_residual_networks_have_one(model: str) -> None:
    module = build(model, (3, 32, 32), 10)
    assert read(module, (3, 32, 32)).idle == ()


def twice(net: Any, inputs: Tensor) -> Tensor:
    hidden = net.one(inputs)
    return functional.relu(hidden) + hidden


def unread(net: Any, inputs: Tensor) -> Tensor:
    hidden = net.norm(net.one(inputs))
    net.two(hidden)
    return hidden  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("how", "words"),
    [
        (twice, "changes in place what is read elsewhere"),
        (unread, "nothing reads its two"),
        (lambda net, inputs: net.norm(net.one(inputs)) + 1, "uses add"),
        (lambda net, inputs: (lambda hidden: hidden + hidden)(net.norm(net.one(inputs))), "uses add"),
        (lambda net, inputs: net.norm(net.one(inputs)) + functional.avg_pool2d(net.one(inputs), (4, 6)), "used twice"),
        (lambda net, inputs: torch.add(net.one(inputs), net.norm(inputs), alpha=2), "reads 4 channels"),
        (lambda net, inputs: net.norm(net.one(inputs)) * net.one(inputs), "used twice"),
    ],
)
def test_why_others_have_none(how: Callable[[Any, Tensor], Tensor], words: str) -> None:
    with pytest.raises(Unsupported, match=words):
        read(Through(how))


def images(samples: int = 37) -> Collection:
    drawn = np.random.default_rng(0).normal(size=(samples, *SHAPE))
    held = ArraySamples(torch.tensor(drawn, dtype=torch.float32), torch.arange(samples) % 3)
    return dataclasses.replace(collection(), train=held, test=held)


RECIPES = {
    "plain": pr.fedavg(cohort=2, epochs=1, batch=8, lr=0.02),
    "several epochs, clipped": pr.fedavg(cohort=2, epochs=2, batch=11, lr=0.02, clip=0.5),
    "adam": pr.fedavg(cohort=2, epochs=1, batch=8) | pr.parts.local_adam(lr=0.001),
    "moon": pr.moon(cohort=2, epochs=2, batch=8, lr=0.02, layer="features"),
    "alt": pr.alt(cohort=2, epochs=3, batch=8, lr=0.02, representation="features"),
    "scaffold": pr.scaffold(cohort=2, epochs=1, batch=8, lr=0.02),
    "fedrep": pr.fedrep(cohort=2, epochs=2, batch=8, lr=0.02),
    "kept at home": pr.fedavg(cohort=2, batch=8, lr=0.02)
    | pr.parts.personal_layers(layers=("0.*", "3.bn1.*", "3.conv2.*")),
}


@compiled
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_run_is_that_of_torch_to_rounding(recipe: str, tmp_path: Path) -> None:
    hold_run(network(), images(), RECIPES[recipe], tmp_path, rounds=2, least=0.02, close=2e-3)


@compiled
def test_each_samples_own_gradient_is_that_of_torch() -> None:
    hold_trace(network(), images(), close=1e-3)
