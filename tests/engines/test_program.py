"""Which modules have a step program, what it is, and why others have none."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from polyrhythm.base.flat_model import FlatModel
from polyrhythm.engines.native.program import (
    Convolution,
    Dropout,
    Embedding,
    Gates,
    Last,
    Linear,
    MaxPool,
    Place,
    Program,
    Recurrence,
    Relu,
)
from polyrhythm.engines.native.reading import program_of
from polyrhythm.engines.unsupported import Unlike, Unsupported
from polyrhythm.models import build
from polyrhythm.models.tasks import Task, task


def read(module: nn.Module, shape: tuple[int, ...], aim: Task | None = None) -> Program:
    flat = FlatModel(module)
    return program_of(flat.module.train(), flat.layout, aim or task("classification"), shape)


def why_not(module: nn.Module, shape: tuple[int, ...], aim: Task | None = None) -> str:
    with pytest.raises(Unsupported) as refused:
        read(module, shape, aim)
    return str(refused.value)


def test_the_program_of_lenet() -> None:
    program = read(build("lenet5", (1, 28, 28), 10), (1, 28, 28))
    five: dict[str, Any] = {"kernel": (5, 5), "stride": (1, 1), "padding": (0, 0)}
    pool = MaxPool(kernel=(2, 2), stride=(2, 2), padding=(0, 0))
    assert program.layers == (
        Convolution(weights=0, bias=160, rows=6, **five),
        Relu(),
        pool,
        Convolution(weights=176, bias=2576, rows=16, **five),
        Relu(),
        pool,
        Linear(weights=2592, bias=33312, rows=120),
        Relu(),
        Linear(weights=33440, bias=43520, rows=84),
        Relu(),
        Linear(weights=43616, bias=44464, rows=10),
    )
    assert (program.shape, program.loss, program.idle) == ((1, 28, 28), "cross_entropy", ())


def test_where_representations_are() -> None:
    program = read(build("moon-cnn", (1, 28, 28), 10), (1, 28, 28))
    assert program.outputs == program.places["classifier"] == Place(len(program.layers), 10)
    assert program.places["features"] == program.places["projection"] == Place(len(program.layers) - 1, 256)
    assert program.places["encoder"] == program.places["encoder.relu4"]
    assert program.places["encoder.conv1"] == Place(1, 6 * 24 * 24)
    plain = read(nn.Sequential(nn.Linear(3, 5), nn.ReLU(inplace=True), nn.Linear(5, 2)), (3,)).places
    assert plain["0"] == plain["1"] == plain["features"] == plain["projection"] == Place(2, 5)
    assert read(build("alexnet", (1, 32, 32), 5), (1, 32, 32)).places["features"].width < 9000  # not a module's name


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        ("logistic", (3, 4, 5)),
        ("multilabel-logistic", (50,)),
        ("mlp", (2, 3)),
        ("ccfl-mlp", (784,)),
        ("lenet5", (3, 32, 32)),
        ("moon-cnn", (3, 32, 32)),
        ("alexnet", (1, 32, 32)),
        ("vgg11", (3, 32, 32)),
    ],
)
def test_models_that_have_one(model: str, shape: tuple[int, ...]) -> None:
    module = build(model, shape, 5)
    program = read(module, shape)
    held = sum(p.numel() for p in module.parameters())
    assert sum(isinstance(layer, Convolution | Linear) for layer in program.layers) * 2 == len(
        list(module.parameters())
    )
    assert program.size >= held
    assert program.idle == ()


def test_the_program_of_an_lstm() -> None:
    module = build("char-lstm", (9,), 5)
    program = read(module, (9,), task("next_character", smoothing=0.25))
    flat = FlatModel(module)
    at = {segment.name: segment.offset for segment in flat.layout.segments}
    assert program.layers == (
        Embedding(weights=at["embedding.weight"], tokens=5, width=8),
        Gates(weights=at["lstm.weight_ih_l0"], bias=at["lstm.bias_ih_l0"], rows=1024),
        Recurrence(weights=at["lstm.weight_hh_l0"], bias=at["lstm.bias_hh_l0"], hidden=256),
        Gates(weights=at["lstm.weight_ih_l1"], bias=at["lstm.bias_ih_l1"], rows=1024),
        Recurrence(weights=at["lstm.weight_hh_l1"], bias=at["lstm.bias_hh_l1"], hidden=256),
        Last(),
        Linear(weights=at["output.weight"], bias=at["output.bias"], rows=5),
    )
    assert (program.reads_tokens, program.smoothing, program.idle) == (True, 0.25, ())
    assert program.places["features"] == Place(6, 256)
    assert [program.width(layer) for layer in range(7)] == [9, 72, 9216, 2304, 9216, 2304, 256]


class OverTokens(nn.Module):
    """An embedding, an LSTM, and something else."""

    def __init__(self, then: Callable[[Any], Tensor], **settings: Any) -> None:
        super().__init__()
        odd = {name: settings.pop(name) for name in ("padding_idx", "max_norm") if name in settings}
        self.embedding, self.then = nn.Embedding(6, 4, **odd), then
        self.lstm = nn.LSTM(4, 3, **{"batch_first": True} | settings)
        self.output = nn.Linear(3, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        outputs: Tensor = self.output(self.then(self.lstm(self.embedding(tokens))))
        return outputs


def last(found: Any) -> Tensor:
    states: Tensor = found[0][:, -1]
    return states


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (OverTokens(last, batch_first=False), "second axis"),
        (OverTokens(last, bidirectional=True), "bidirectional"),
        (OverTokens(last, num_layers=2, dropout=0.5), "drops out"),
        (OverTokens(last, proj_size=2), "projects"),
        (OverTokens(last, padding_idx=0), "more than to look up"),
        (OverTokens(last, max_norm=1.0), "more than to look up"),
        (OverTokens(lambda found: found[1][0][-1]), "other parts"),
        (OverTokens(lambda found: found[0][:, 0]), "other parts"),
        (OverTokens(lambda found: found[0]), "reads 3 numbers"),
        (OverTokens(lambda found: functional.relu(found[0])[:, -1]), "reads a whole sequence"),
        (OverTokens(lambda found: functional.dropout(found[0])[:, -1]), "reads a whole sequence"),
        (OverTokens(lambda found: torch.flatten(found[0], 1)), "reads a whole sequence"),
        (build("char-lstm", (5,), 6, every=True), "reads 256 numbers"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_why_a_model_over_tokens_has_none(module: nn.Module, words: str) -> None:
    assert words in why_not(module, (5,))


def test_functions_and_layers_are_the_same_program() -> None:
    class Functions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Conv2d(1, 2, 3), nn.Linear(8, 3)

        def forward(self, inputs: Tensor) -> Tensor:
            hidden = functional.max_pool2d(functional.relu(self.first(inputs)), kernel_size=2)
            hidden = functional.dropout(torch.flatten(hidden, start_dim=1), 0.3, self.training)
            outputs: Tensor = self.last(hidden)
            return outputs

    layers = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.3), nn.Linear(8, 3)
    )
    assert read(Functions(), (1, 6, 6)).layers == read(layers, (1, 6, 6)).layers


def test_no_dropout_is_no_layer() -> None:
    assert Dropout(share=0.0) not in read(nn.Sequential(nn.Dropout(0.0), nn.Linear(3, 2)), (3,)).layers


def test_settings_of_the_task() -> None:
    module = build("logistic", (4,), 5)
    assert read(module, (4,), task("classification", smoothing=0.25)).smoothing == 0.25
    tags = read(module, (4,), task("multilabel"))
    assert (tags.loss, tags.weight) == ("binary_cross_entropy", 0.2)
    assert read(module, (4,), task("multilabel", labels="sum")).weight == 1.0


def test_weights_that_no_layer_uses_are_idle() -> None:
    class Spare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.spare = nn.Linear(3, 2), nn.Linear(4, 4)

        def forward(self, inputs: Tensor) -> Tensor:
            outputs: Tensor = self.used(inputs)
            return outputs

    assert [s.name for s in read(Spare(), (3,)).idle] == ["spare.weight", "spare.bias"]


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.second.weight = self.first.weight

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.second(self.first(inputs))
        return outputs


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.layer(self.layer(inputs))
        return outputs


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = inputs + self.layer(inputs)
        return outputs


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.layer(inputs) if bool(inputs.sum() > 0) else self.layer(-inputs)
        return outputs


class Counting(nn.Module):
    """Counts its passes in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.register_buffer("passes", torch.tensor(0), persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        self.passes += 1
        outputs: Tensor = self.layer(inputs)
        return outputs


class Doubled(nn.Linear):
    def forward(self, inputs: Tensor) -> Tensor:
        return 2 * super().forward(inputs)


def frozen() -> nn.Module:
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    module[0].weight.requires_grad_(False)
    return module


def hooked() -> nn.Module:
    module = nn.Sequential(nn.Linear(3, 2))
    module[0].register_forward_hook(lambda layer, inputs, outputs: 2 * outputs)
    return module


@pytest.mark.parametrize(
    ("module", "shape", "words"),
    [
        (frozen(), (3,), "frozen or tied"),
        (Tied(), (3,), "frozen or tied"),
        (Twice(), (3,), "used twice"),
        (Residual(), (4,), "reads 3 numbers"),
        (Branching(), (3,), "cannot be traced"),
        (Counting(), (3,), "buffers"),
        (hooked(), (3,), "hooks"),
        (nn.Sequential(nn.Linear(3, 2)).double(), (3,), "float32"),
        (nn.Sequential(nn.Linear(3, 2), nn.Tanh()), (3,), "1 is a Tanh"),
        (nn.Sequential(Doubled(3, 2)), (3,), "one after another"),
        (nn.Sequential(nn.Linear(4, 2)), (3, 4), "reads 4 numbers"),
        (nn.Sequential(nn.Conv2d(2, 2, 1, groups=2), nn.Flatten()), (2, 1, 1), "groups"),
        (nn.Sequential(nn.Conv2d(1, 2, 3, padding="same"), nn.Flatten()), (1, 5, 5), "padding"),
        (nn.Sequential(nn.Conv2d(1, 2, 3)), (1, 5, 5), "outputs of shape"),
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d(2, ceil_mode=True), nn.Flatten()), (1, 5, 5), "ceil_mode"),
        (nn.Sequential(nn.InstanceNorm1d(4, track_running_stats=True), nn.Linear(4, 2)), (4,), "buffers"),
        (nn.Sequential(nn.Flatten(2), nn.Linear(4, 2)), (3, 4), "flattens"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_why_a_model_has_none(module: nn.Module, shape: tuple[int, ...], words: str) -> None:
    assert words in why_not(module, shape)


@pytest.mark.parametrize("aim", ["regression", "next_token"])
def test_why_a_task_has_none(aim: str) -> None:
    assert aim in why_not(build("logistic", (4,), 2), (4,), task(aim))


def test_tracing_leaves_the_module_as_it_was() -> None:
    class Remembers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)
            self.seen: list[Any] = []

        def forward(self, inputs: Tensor) -> Tensor:
            self.seen.append(1)
            outputs: Tensor = self.layer(inputs)
            return outputs

    flat = FlatModel(Remembers())
    before = copy.deepcopy(flat.module.seen)
    with pytest.raises(Unlike, match="a pass changes seen"):
        program_of(flat.module, flat.layout, task("classification"), (3,))
    assert flat.module.seen == before
