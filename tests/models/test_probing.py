"""A probe finds what would fail in the first step, and leaves no trace."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from polyrhythm.errors import UserError
from polyrhythm.models import build, output_shape


class Returns(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, inputs: Tensor) -> Any:
        return self.function(inputs)


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (lambda x: (x, x), "a tuple, not a tensor"),
        (lambda x: {"logits": x}, "a dict, not a tensor"),
        (lambda x: x.sum(), "shape ()"),
        (lambda x: x[:1], "shape (1, 4)"),
        (lambda x: x @ x, "could not be run"),
    ],
)
def test_a_model_that_does_not_give_rows_of_outputs_is_refused(function: Any, problem: str) -> None:
    with pytest.raises(UserError) as refusal:
        output_shape(Returns(function), torch.zeros(3, 4))
    assert problem in refusal.value.found


def test_a_model_for_other_samples_is_refused() -> None:
    with pytest.raises(UserError, match=r"shape \(5,\) and type int64"):
        output_shape(build("mlp", (64,), 10), torch.zeros(2, 5, dtype=torch.int64))


def test_nothing_is_left_behind() -> None:
    network = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), Returns(lambda x: x + torch.rand(1)))
    network(torch.randn(8, 4)).sum().backward()
    before, generator = copy.deepcopy(network), torch.get_rng_state()
    gradients = [parameter.grad.clone() for parameter in network.parameters() if parameter.grad is not None]
    output_shape(network, torch.ones(2, 4))
    assert torch.equal(torch.get_rng_state(), generator)
    assert network.training
    for (name, now), then in zip(network.state_dict().items(), before.state_dict().values(), strict=True):
        assert torch.equal(now, then), name
    for parameter, gradient in zip(network.parameters(), gradients, strict=True):
        assert parameter.grad is not None
        assert torch.equal(parameter.grad, gradient)
