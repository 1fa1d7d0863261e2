"""Every model: its parameters, the shapes it takes, the settings it has, and what it refuses."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from polyrhythm.base.errors import UserError
from polyrhythm.models import MODELS, build, find, output_shape, settings_of, with_projection
from polyrhythm.models.lenet import lenet5
from polyrhythm.models.logistic import logistic

IMAGE = (3, 32, 32)


def parameters(name: str, shape: tuple[int, ...], outputs: int, **settings: object) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in build(name, shape, outputs, **settings).parameters())


def convolution(inputs: int, outputs: int, kernel: int, *, bias: bool = True) -> int:
    return inputs * outputs * kernel * kernel + bias * outputs


def linear(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs


def lstm(inputs: int, hidden: int) -> int:
    return 4 * hidden * (inputs + hidden) + 8 * hidden


LENET_TAIL = linear(120, 84) + linear(84, 10)
ALEXNET_TAIL = convolution(192, 384, 3) + convolution(384, 256, 3) + convolution(256, 256, 3)
EXITS = [
    *((64, 64), (64, 128), (128, 256), (256, 512)),
    *((128, 128), (128, 256), (256, 512)),
    *((256, 256), (256, 512)),
]
CIFAR_ALEXNET = convolution(3, 64, 3) + convolution(64, 192, 3) + ALEXNET_TAIL
FMNIST_ALEXNET = convolution(1, 64, 11) + convolution(64, 192, 5) + ALEXNET_TAIL


@pytest.mark.parametrize(
    ("name", "shape", "outputs", "settings", "derived", "documented"),
    [
        ("logistic", (1, 28, 28), 10, {}, linear(784, 10), 7_850),
        ("multilabel-logistic", (10_000,), 500, {}, linear(10_000, 500), 5_000_500),
        ("mlp", (1, 28, 28), 10, {}, linear(784, 200) + linear(200, 200) + linear(200, 10), 199_210),
        ("mlp", (1, 8, 8), 10, {}, linear(64, 200) + linear(200, 200) + linear(200, 10), 55_210),
        (
            "mlp-exits", (1, 8, 8), 10, {},
            linear(64, 200) + 3 * linear(200, 200) + 4 * linear(200, 10), 141_640,
        ),
        (
            "resnet18-exits", IMAGE, 10, {},
            # The blocks are ResNet-18's; of bottlenecks a to b, each depthwise 3×3, pointwise, norm, twice.
            11_173_962 - linear(512, 10) + 4 * linear(512, 10)
            + sum(2 * 9 * a + a * a + 2 * a + a * b + 2 * b for a, b in EXITS) + 2 * (64 + 128 + 256),
            12_098_664,
        ),
        ("ccfl-mlp", (1, 28, 28), 10, {}, linear(784, 50) + linear(50, 10), 39_760),
        ("lenet5", (1, 28, 28), 10, {}, 156 + 2_416 + linear(256, 120) + LENET_TAIL, 44_426),
        ("lenet5", (1, 32, 32), 10, {}, 156 + 2_416 + linear(400, 120) + LENET_TAIL, 61_706),
        ("lenet5", (1, 28, 28), 10, {"width": 0.0625}, 26 + 26 + linear(16, 8) + linear(8, 6) + linear(6, 10), 312),
        ("lenet5", IMAGE, 10, {}, 456 + 2_416 + linear(400, 120) + LENET_TAIL, 62_006),
        ("moon-cnn", IMAGE, 10, {}, 61_156 + linear(84, 84) + linear(84, 256) + linear(256, 10), 92_626),
        (
            "alexnet", IMAGE, 10, {},
            CIFAR_ALEXNET + linear(1024, 128) + linear(128, 128) + linear(128, 10), 2_400_586,
        ),
        (
            "alexnet", IMAGE, 10, {"head": 4096},
            CIFAR_ALEXNET + linear(1024, 4096) + linear(4096, 4096) + linear(4096, 10), 23_272_266,
        ),
        (
            "alexnet", (1, 32, 32), 10, {},
            FMNIST_ALEXNET + linear(256, 128) + linear(128, 128) + linear(128, 10), 2_504_906,
        ),
        (
            "alexnet", (1, 32, 32), 10, {"head": 4096},
            FMNIST_ALEXNET + linear(256, 4096) + linear(4096, 4096) + linear(4096, 10), 20_329_162,
        ),
        (
            "vgg11", IMAGE, 10, {},
            convolution(3, 64, 3) + convolution(64, 128, 3) + convolution(128, 256, 3) + convolution(256, 256, 3)
            + convolution(256, 512, 3) + 3 * convolution(512, 512, 3) + 2 * linear(512, 512) + linear(512, 10),
            9_750_922,
        ),
        (
            "resnet9", IMAGE, 10, {},
            convolution(3, 64, 3) + convolution(64, 128, 3) + 2 * convolution(128, 128, 3) + convolution(128, 256, 3)
            + convolution(256, 512, 3) + 2 * convolution(512, 512, 3) + 2 * (64 + 3 * 128 + 256 + 3 * 512)
            + linear(512, 10),
            6_575_370,
        ),
        # The last four are the numbers known for torchvision's networks and their CIFAR variants.
        ("resnet18", IMAGE, 10, {"norm": "batch"}, 11_173_962, 11_173_962),
        ("resnet18", (3, 224, 224), 1000, {"norm": "batch", "stem": "large"}, 11_689_512, 11_689_512),
        ("resnet50", IMAGE, 10, {"norm": "batch"}, 23_520_842, 23_520_842),
        ("resnet50", (3, 224, 224), 1000, {"norm": "batch", "stem": "large"}, 25_557_032, 25_557_032),
        ("signal-cnn", (6, 128), 6, {}, 6 * 32 * 5 + 32 + 32 * 64 * 5 + 64 + linear(64, 6), 11_686),
        ("char-lstm", (80,), 80, {}, 640 + lstm(8, 256) + lstm(256, 256) + linear(256, 80), 819_920),
        (
            "char-lstm", (80,), 80, {"embedding": 256, "hidden": 512, "dropout": 0.05},
            80 * 256 + lstm(256, 512) + lstm(512, 512) + linear(512, 80), 3_739_728,
        ),
    ],
)  # fmt: skip
def test_parameters_are_as_derived_by_hand_and_documented(
    name: str, shape: tuple[int, ...], outputs: int, settings: dict[str, object], derived: int, documented: int
) -> None:
    assert parameters(name, shape, outputs, **settings) == derived == documented
    assert f"{documented:,}" in (inspect.getdoc(MODELS[name]) or "")


@pytest.mark.parametrize("name", sorted(MODELS))
def test_docstrings_start_with_a_line_of_help_and_give_the_reference(name: str) -> None:
    text = inspect.getdoc(MODELS[name])
    assert text is not None
    first, *rest = text.split("\n\n")
    assert "\n" not in first
    assert len(first) < 118
    assert any(paragraph.startswith("Reference: ") for paragraph in rest)


@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize("name", ["resnet9", "resnet18", "resnet50"])
def test_normalisation_changes_buffers_not_parameters(name: str, norm: str) -> None:
    with torch.device("meta"):
        network = build(name, IMAGE, 10, norm=norm)
    assert sum(p.numel() for p in network.parameters()) == parameters(name, IMAGE, 10)
    assert (len(list(network.buffers())) > 0) == (norm == "batch")


@pytest.mark.parametrize("stem", ["small", "large"])
def test_resnet_modules_are_named_as_in_torchvision(stem: str) -> None:
    with torch.device("meta"):
        names = set(build("resnet50", IMAGE, 10, norm="batch", stem=stem).state_dict())
    assert {
        "conv1.weight", "bn1.running_mean", "layer1.0.downsample.0.weight", "layer1.0.downsample.1.weight",
        "layer1.0.conv3.weight", "layer1.0.bn3.bias", "layer4.2.conv2.weight", "fc.weight",
    } <= names  # fmt: skip
    assert "layer1.1.downsample.0.weight" not in names


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("logistic", (1, 8, 8)), ("logistic", (64,)), ("multilabel-logistic", (20,)), ("mlp", (1, 8, 8)),
        ("mlp", (64,)), ("mlp", (28, 28)), ("ccfl-mlp", (1, 28, 28)), ("lenet5", (1, 28, 28)),
        ("lenet5", (1, 32, 32)), ("lenet5", (2, 16, 21)), ("moon-cnn", (1, 28, 28)), ("moon-cnn", IMAGE),
        ("alexnet", IMAGE), ("alexnet", (1, 32, 32)), ("alexnet", (1, 29, 40)), ("alexnet", (3, 15, 64)),
        ("vgg11", IMAGE), ("vgg11", (1, 32, 64)), ("resnet9", IMAGE), ("resnet9", (1, 64, 32)),
        ("resnet18", (1, 8, 8)),
    ],
)  # fmt: skip
def test_a_batch_gives_a_row_of_outputs_per_sample(name: str, shape: tuple[int, ...]) -> None:
    assert output_shape(build(name, shape, 7), torch.zeros(3, *shape)) == (3, 7)


def test_the_lstm_reads_tokens_of_any_length_and_answers_for_the_last() -> None:
    network = build("char-lstm", (12,), 9, hidden=6, embedding=3)
    tokens = torch.arange(24).reshape(2, 12) % 9
    assert output_shape(network, tokens) == (2, 9)
    changed = tokens.clone()
    changed[:, -1] = (changed[:, -1] + 1) % 9
    assert not torch.equal(network(tokens), network(changed))


@pytest.mark.parametrize(
    ("name", "shape", "found", "needed"),
    [
        ("alexnet", (1, 8, 8), "8×8", "29×29"),
        ("alexnet", (1, 28, 28), "28×28", "29×29"),
        ("alexnet", (3, 14, 32), "14×32", "15×15"),
        ("lenet5", (1, 8, 8), "8×8", "16×16"),
        ("moon-cnn", (1, 8, 8), "moon-cnn", "16×16"),
        ("vgg11", (1, 28, 28), "28×28", "32×32"),
        ("resnet9", (1, 28, 28), "28×28", "32×32"),
        ("lenet5", (28, 28), "(28, 28)", "(channels, height, width)"),
        ("resnet18", (64,), "(64,)", "(channels, height, width)"),
        ("char-lstm", (1, 28, 28), "(1, 28, 28)", "(length,)"),
        ("signal-cnn", (80,), "(80,)", "(channels, times)"),
    ],
)
def test_a_shape_that_does_not_fit_is_refused_with_one_that_does(
    name: str, shape: tuple[int, ...], found: str, needed: str
) -> None:
    with pytest.raises(UserError) as refusal:
        build(name, shape, 10)
    assert found in refusal.value.found
    assert needed in refusal.value.expected
    assert "mlp" in refusal.value.fix


@pytest.mark.parametrize(("name", "least"), [("lenet5", 16), ("vgg11", 32), ("resnet9", 32)])
def test_the_least_size_is_the_least_that_works(name: str, least: int) -> None:
    assert output_shape(build(name, (3, least, least), 2), torch.zeros(2, 3, least, least)) == (2, 2)
    with pytest.raises(UserError):
        build(name, (3, least, least - 1), 2)


@pytest.mark.parametrize("name", ["mlp", "ccfl-mlp", "alexnet", "vgg11", "char-lstm"])
def test_dropout_0_leaves_nothing_that_draws(name: str) -> None:
    shape = (5,) if name == "char-lstm" else IMAGE
    with torch.device("meta"):
        without = build(name, shape, 10, dropout=0)
        with_some = build(name, shape, 10, dropout=0.25)
    assert not any(isinstance(module, nn.Dropout) for module in without.modules())
    assert {module.p for module in with_some.modules() if isinstance(module, nn.Dropout)} == {0.25}
    assert list(without.state_dict()) == list(with_some.state_dict())


def test_ccfl_drops_hidden_pre_activations() -> None:
    network = build("ccfl-mlp", (1, 28, 28), 10)
    kinds = [type(layer) for layer in network.children()]
    assert kinds == [nn.Flatten, nn.Linear, nn.Dropout, nn.ReLU, nn.Linear]


def test_glorot_initialisation_fills_its_range_and_nothing_more() -> None:
    torch_default = build("logistic", (400,), 50).get_submodule("output")
    glorot = build("multilabel-logistic", (400,), 50).get_submodule("output")
    assert isinstance(glorot, nn.Linear)
    assert isinstance(torch_default, nn.Linear)
    bound = (6 / (400 + 50)) ** 0.5
    assert 0.98 * bound < glorot.weight.abs().max() <= bound
    assert not glorot.bias.any()
    assert torch_default.weight.abs().max() <= 400**-0.5 < 0.5 * bound


def test_vgg_keeps_its_signal_through_eight_convolutions() -> None:
    network = build("vgg11", IMAGE, 10).get_submodule("conv5")
    assert isinstance(network, nn.Conv2d)
    assert network.weight.std().item() == pytest.approx((2 / (9 * 512)) ** 0.5, rel=0.01)


def test_projection_head_replaces_the_output_layer_of_any_model() -> None:
    for name, features, shape in [("mlp", 200, (64,)), ("logistic", 64, (64,)), ("char-lstm", 256, (7,))]:
        network = with_projection(MODELS[name], size=16)(shape, 5)
        inputs = torch.zeros(2, *shape, dtype=torch.int64 if name == "char-lstm" else torch.float32)
        assert output_shape(network, inputs) == (2, 5)
        head = [tuple(p.shape) for p in network.get_submodule("projection").parameters()]
        assert head == [(features, features), (features,), (16, features), (16,)]
        base = sum(p.numel() for p in MODELS[name](shape, 5).parameters())
        expected = base - linear(features, 5) + linear(features, features) + linear(features, 16) + linear(16, 5)
        assert sum(p.numel() for p in network.parameters()) == expected


def test_projection_head_takes_the_builders_settings_and_its_own() -> None:
    network = build(with_projection(MODELS["mlp"], hidden=3, size=4), (64,), 5, hidden=[9])
    assert [tuple(p.shape) for p in network.parameters()][0::2] == [(9, 64), (3, 9), (4, 3), (5, 4)]


def test_projection_head_refuses_a_model_without_an_output_layer() -> None:
    for builder in (
        lambda shape, outputs: nn.Linear(shape[0], outputs),
        lambda shape, outputs: nn.Sequential(nn.Flatten()),
        lambda shape, outputs: nn.Sequential(nn.Linear(shape[0], outputs + 1), nn.Tanh()),
    ):
        with pytest.raises(UserError, match="output layer"):
            with_projection(builder)((4,), 3)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"hiden": (10,)}, "unknown setting 'hiden'"),
        ({"hidden": "200"}, "hidden = '200'"),
        ({"hidden": [0]}, "hidden = "),
        ({"dropout": 1.5}, "dropout = 1.5"),
        ({"shape": (3,)}, "shape"),
    ],
)
def test_settings_are_checked(settings: dict[str, object], problem: str) -> None:
    with pytest.raises(UserError) as refusal:
        build("mlp", (64,), 10, **settings)
    assert problem in refusal.value.found


def test_groups_that_do_not_divide_are_refused() -> None:
    with pytest.raises(UserError, match="7 groups"):
        build("resnet9", IMAGE, 10, groups=7)


def test_unknown_models_name_the_nearest() -> None:
    with pytest.raises(UserError, match="lenet5"):
        build("lenet", (1, 28, 28), 10)


def test_a_perceptron_without_hidden_layers_is_logistic_regression() -> None:
    assert parameters("mlp", (64,), 10, hidden=[]) == parameters("logistic", (64,), 10)


def test_settings_of_a_builder() -> None:
    assert list(settings_of(MODELS["resnet18"])) == ["norm", "groups", "stem"]
    assert list(settings_of(lenet5)) == ["width"]
    assert not settings_of(logistic)


OWN = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self, outputs: int, width: int = 3, sizes: list[int] = [1], odd: "Missing" = None):
        super().__init__()
        self.layer = nn.Linear(width, outputs)
    def forward(self, x):
        return self.layer(x)
class Needs(nn.Module):
    def __init__(self, depth: int):
        super().__init__()
def fails(shape):
    raise RuntimeError("no such luck")
def number():
    return 3
not_callable = 5
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "own_models_for_test.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_models_for_test", raising=False)
    return "own_models_for_test"


def test_a_users_class_by_import_path(own: str) -> None:
    network = build(f"{own}:Net", (4,), 6, width=4, sizes=[2, 3])
    assert output_shape(network, torch.zeros(2, 4)) == (2, 6)


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        (":Net", "could not be imported"),
        ("no_such_module_here:Net", "could not be imported"),
        ("{}:Nett", "unknown model 'Nett'"),
        ("{}:not_callable", "is a int"),
        ("{}:number", "gave a int"),
        ("{}:fails", "no such luck"),
        ("{}:Needs", "was not given depth"),
    ],
)
def test_import_paths_that_lead_nowhere_are_refused(own: str, path: str, problem: str) -> None:
    with pytest.raises(UserError) as refusal:
        build(path.format(own), (4,), 6)
    assert problem in refusal.value.found


def test_find_gives_builders() -> None:
    assert find("lenet5") is lenet5
