"""Where a representation is read, for any module, in one pass."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from polyrhythm.base.errors import UserError
from polyrhythm.models import MODELS, build, locate, with_projection
from polyrhythm.models.projection import Projected

SAMPLES = {
    "char-lstm": ((6,), torch.arange(18).reshape(3, 6) % 10),
    "signal-cnn": ((4, 9), torch.linspace(-1, 1, 3 * 4 * 9).reshape(3, 4, 9)),
}
IMAGES = ((3, 32, 32), torch.linspace(-1, 1, 3 * 3 * 32 * 32).reshape(3, 3, 32, 32))
SMALL = sorted(set(MODELS) - {"resnet50", "vgg11", "resnet9", "mlp-exits", "resnet18-exits", "hf"})


@pytest.mark.parametrize("name", SMALL)
def test_features_determine_the_outputs_through_the_output_layer(name: str) -> None:
    shape, inputs = SAMPLES.get(name, IMAGES)
    network = build(name, shape, 10).eval()
    last = [module for module in network.modules() if isinstance(module, nn.Linear)][-1]
    outputs, features = locate(network, "features")(inputs)
    assert torch.equal(last(features), outputs)
    assert torch.equal(outputs, network(inputs))
    assert torch.equal(locate(network, "logits")(inputs)[1], outputs)


@pytest.mark.parametrize("name", SMALL)
def test_projection_falls_back_to_features_only_where_there_is_none(name: str) -> None:
    shape, inputs = SAMPLES.get(name, IMAGES)
    plain = build(name, shape, 10).eval()
    projected = with_projection(MODELS[name], size=8)(shape, 10).eval()
    assert isinstance(projected, Projected)
    representation = locate(projected, "projection")(inputs)[1]
    assert representation.shape == (3, 8)
    assert torch.equal(representation, projected.projection(projected.encoder(inputs)))
    if name != "moon-cnn":
        assert torch.equal(locate(plain, "projection")(inputs)[1], locate(plain, "features")(inputs)[1])


def test_a_projection_has_no_place_behind_several_exits() -> None:
    with pytest.raises(UserError, match="WithExits has 4 exits"):
        with_projection(MODELS["mlp-exits"])((5,), 3)


def test_moon_reads_its_projection_before_any_relu() -> None:
    network = build("moon-cnn", (1, 28, 28), 10)
    representation = locate(network, "projection")(torch.randn(4, 1, 28, 28))[1]
    assert representation.shape == (4, 256)
    assert (representation < 0).any()


def test_a_named_submodule_is_read_flat() -> None:
    network = build("lenet5", (1, 28, 28), 10)
    inputs = torch.rand(2, 1, 28, 28)
    representation = locate(network, "pool2")(inputs)[1]
    assert representation.shape == (2, 16 * 4 * 4)
    assert torch.equal(representation, network[:6](inputs).flatten(1))  # type: ignore[index]


def test_gradients_flow_through_what_is_read() -> None:
    network = build("mlp", (5,), 3, hidden=(4,))
    locate(network, "features")(torch.ones(2, 5))[1].sum().backward()
    assert network.get_submodule("hidden1").weight.grad is not None
    assert network.get_submodule("output").weight.grad is None


def test_a_pass_leaves_no_hook() -> None:
    network = build("mlp", (5,), 3)
    tap = locate(network, "features")
    tap(torch.ones(2, 5))
    with pytest.raises(RuntimeError):
        tap(torch.ones(2, 6))
    assert not any(module._forward_hooks for module in network.modules())


class Odd(nn.Module):
    """Registers its output layer first, holds a layer it never runs, and an attention that hides a Linear."""

    def __init__(self) -> None:
        super().__init__()
        self.output = nn.Linear(4, 2)
        self.attention = nn.MultiheadAttention(4, 1, batch_first=True)
        self.recurrent = nn.LSTM(4, 4, batch_first=True)
        self.unused = nn.Linear(4, 9)

    def forward(self, inputs: Tensor) -> Any:
        attended = self.attention(inputs, inputs, inputs)[0]
        return self.output(self.recurrent(attended)[0].mean(dim=1))


def test_the_output_layer_is_the_one_that_ran_last_not_the_one_registered_last() -> None:
    network, inputs = Odd(), torch.rand(3, 5, 4)
    outputs, features = locate(network, "features")(inputs)
    assert torch.equal(network.output(features), outputs)


@pytest.mark.parametrize(("which", "problem"), [("unused", "did not run"), ("recurrent", "is a tuple")])
def test_a_place_that_gives_no_tensor_is_refused(which: str, problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        locate(Odd(), which)(torch.rand(3, 5, 4))


def test_names_are_checked_when_located() -> None:
    with pytest.raises(UserError, match="hidden1"):
        locate(build("mlp", (5,), 3), "hiden1")
    with pytest.raises(UserError, match=r"no nn\.Linear"):
        locate(nn.Sequential(nn.Conv2d(1, 2, 1)), "projection")
