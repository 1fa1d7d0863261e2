"""Operations per sample against numbers derived by hand, for every kind of layer the models have."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from polyrhythm.models import build
from polyrhythm.models.flops import Cost, count


def total(outputs: Tensor) -> Tensor:
    return outputs.square().sum()


def test_lenet_is_twice_its_multiply_adds() -> None:
    conv1, conv2 = 28 * 28 * 6 * 25, 10 * 10 * 16 * 150
    linears = 400 * 120 + 120 * 84 + 84 * 10
    forward = 2 * (conv1 + conv2 + linears)
    assert forward == 833_040
    # Each layer's gradients cost twice its pass, but nobody needs the gradient of the image.
    cost = count(build("lenet5", (1, 32, 32), 10), torch.zeros(2, 1, 32, 32), total)
    assert cost == Cost(forward, 3 * forward - 2 * conv1)
    small = count(build("lenet5", (1, 28, 28), 10), torch.zeros(2, 1, 28, 28), total)
    assert small.forward == 2 * (24 * 24 * 6 * 25 + 8 * 8 * 16 * 150 + 256 * 120 + 120 * 84 + 84 * 10)


def test_linear_models() -> None:
    cost = count(build("ccfl-mlp", (1, 28, 28), 10), torch.zeros(2, 1, 28, 28), total)
    assert cost == Cost(2 * (784 * 50 + 50 * 10), 2 * (2 * 784 * 50 + 3 * 50 * 10))


def test_char_lstm() -> None:
    network = build("char-lstm", (11,), 9, embedding=4, hidden=8)
    recurrent = 11 * 4 * 8 * ((4 + 8) + (8 + 8))
    forward = 2 * (recurrent + 8 * 9)
    assert count(network, torch.zeros(2, 11, dtype=torch.int64), total) == Cost(forward, 3 * forward)


class Last(nn.Module):
    """A recurrent layer of which only the outputs are used."""

    def __init__(self, recurrent: nn.RNNBase) -> None:
        super().__init__()
        self.recurrent = recurrent

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.recurrent(inputs)[0]
        return outputs


@pytest.mark.parametrize(("kind", "gates"), [(nn.LSTM, 4), (nn.GRU, 3), (nn.RNN, 1)])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_recurrent_layers(kind: type[nn.RNNBase], gates: int, bidirectional: bool) -> None:
    layers = kind(5, 6, num_layers=2, batch_first=True, bidirectional=bidirectional)  # type: ignore[arg-type,call-arg]
    directions = 1 + bidirectional
    weights = directions * gates * 6 * ((5 + 6) + (6 * directions + 6))
    cost = count(Last(layers), torch.randn(3, 7, 5), total)
    assert cost.forward == 2 * 7 * weights
    assert 2.5 * cost.forward < cost.training <= 3 * cost.forward


def test_attention_and_embedding_models_cost_something() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, batch_first=True)
    network = nn.Sequential(nn.Embedding(10, 8), layer, nn.Flatten(), nn.Linear(40, 3))
    cost = count(network, torch.zeros(2, 5, dtype=torch.int64), total)
    assert cost.forward >= 2 * 5 * (4 * 8 * 8 + 2 * 8 * 16) + 2 * 40 * 3
    assert cost.training > 2 * cost.forward


@pytest.mark.parametrize("name", ["logistic", "lenet5", "resnet18", "char-lstm"])
def test_the_cost_of_a_sample_does_not_depend_on_the_batch(name: str) -> None:
    shape = (6,) if name == "char-lstm" else (1, 16, 16)
    network = build(name, shape, 10)
    dtype = torch.int64 if name == "char-lstm" else torch.float32
    small, large = (count(network, torch.zeros(size, *shape, dtype=dtype), total) for size in (2, 5))
    assert small == large
    assert small.forward > 0


def test_frozen_layers_cost_no_weight_gradient() -> None:
    network = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4))
    assert count(network, torch.ones(2, 6), total) == Cost(100, 100 + 60 + 80)
    network[0].requires_grad_(False)
    assert count(network, torch.ones(2, 6), total) == Cost(100, 100 + 40)
    network[2].requires_grad_(False)
    assert count(network, torch.ones(2, 6), total) == Cost(100, 100)


def test_work_done_once_per_batch_is_rounded_up() -> None:
    class Once(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3, 3))

        def forward(self, inputs: Tensor) -> Tensor:
            return inputs * (self.weight @ self.weight).sum()

    assert count(Once(), torch.ones(4, 3), total).forward == 14  # 2·27/4 = 13.5


@pytest.mark.parametrize("training", [True, False])
def test_the_model_and_the_generators_are_left_as_they_were(training: bool) -> None:
    class Draws(nn.Module):
        def forward(self, inputs: Tensor) -> Tensor:
            return inputs + torch.rand(1)

    network = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), Draws(), nn.Linear(4, 2))
    network(torch.randn(8, 4)).sum().backward()
    network[4].bias.grad = None
    network.train(training)
    before, generator = copy.deepcopy(network), torch.get_rng_state()
    gradients = [None if parameter.grad is None else parameter.grad.clone() for parameter in network.parameters()]
    storages = [tensor.data_ptr() for tensor in network.parameters()]
    inputs = torch.ones(3, 4)
    count(network, inputs, total)
    assert torch.equal(torch.get_rng_state(), generator)
    assert {module.training for module in network.modules()} == {training}
    assert [tensor.data_ptr() for tensor in network.parameters()] == storages
    for now, then in zip(network.state_dict().values(), before.state_dict().values(), strict=True):
        assert torch.equal(now, then)
    for parameter, gradient in zip(network.parameters(), gradients, strict=True):
        assert (parameter.grad is None) == (gradient is None)
        assert parameter.grad is None or gradient is None or torch.equal(parameter.grad, gradient)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in network.modules())
    assert inputs.grad is None
    assert not inputs.requires_grad
