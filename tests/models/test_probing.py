"""A probe finds what would fail in the first step, and leaves no trace."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import utils
from torch.nn.utils import prune

from polyrhythm.base.errors import UserError
from polyrhythm.base.flat_model import FlatModel
from polyrhythm.models import build, output_shape
from polyrhythm.models.probing import woken
from small import prepared


class Returns(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, inputs: Tensor) -> Any:
        return self.function(inputs)


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (lambda x: (3, x), "a tuple, not a tensor"),
        (lambda x: (x.sum(), x), "a tuple, not a tensor"),
        (lambda x: {"outputs": x}, "a dict, not a tensor"),
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
    with pytest.raises(UserError, match=r"shape \(5,\) and type int64") as refusal:
        output_shape(build("mlp", (64,), 10), torch.zeros(2, 5, dtype=torch.int64))
    assert "make the inputs float32" in refusal.value.fix


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


def old(function: Any, *given: Any) -> Any:
    def make() -> nn.Module:
        network = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it is old
            function(network[0], *given)
        return network

    return make


class Masked(prune.BasePruningMethod):
    """A pruning of one's own."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask * (t > 0)


COMPUTED = {
    "weight_norm": (old(utils.weight_norm), "0.weight", "parametrizations.weight_norm"),
    "spectral_norm": (old(utils.spectral_norm), "0.weight", "parametrizations.spectral_norm"),
    "prune": (old(prune.l1_unstructured, "weight", 0.5), "0.weight", "prune.remove"),
    "structured": (old(prune.ln_structured, "weight", 0.5, 2, 0), "0.weight", "prune.remove"),
    "of the bias": (old(prune.random_unstructured, "bias", 0.5), "0.bias", "prune.remove"),
    "of one's own": (old(Masked.apply, "weight"), "0.weight", "prune.remove"),
    "pruned twice": (
        old(lambda layer: [prune.random_unstructured(layer, "weight", 0.2) for _ in range(2)]),
        "0.weight",
        "prune.remove",
    ),
}


@pytest.mark.parametrize("name", COMPUTED)
@pytest.mark.parametrize("passed", [False, True])
def test_weights_that_are_computed_before_each_pass_are_refused(name: str, passed: bool) -> None:
    make, which, instead = COMPUTED[name]
    network = make()
    if passed:
        network(torch.ones(2, 4))
    for look in (lambda: output_shape(network, torch.ones(2, 4)), lambda: FlatModel(network)):
        with pytest.raises(UserError, match="cannot be copied") as refusal:
            look()
        assert which in refusal.value.found
        assert instead in refusal.value.fix


def test_what_takes_their_place_is_taken() -> None:
    network = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3))
    utils.parametrizations.weight_norm(network[0])
    utils.parametrizations.spectral_norm(network[1])
    prune.l1_unstructured(network[2], "weight", 0.5)  # type: ignore[no-untyped-call]
    prune.remove(network[2], "weight")  # type: ignore[no-untyped-call]
    assert output_shape(network, torch.ones(2, 4)) == (2, 3)


class Halves(nn.Linear):
    """A copy is something else."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Halves:
        other = type(self)(4, 3)
        other.load_state_dict({name: tensor / 2 for name, tensor in self.state_dict().items()})
        return other


def test_a_model_whose_copy_has_other_weights_is_refused() -> None:
    with pytest.raises(UserError, match=r"weight of a copy of Halves is not weight of the model"):
        output_shape(Halves(4, 3), torch.ones(2, 4))
    network = nn.Linear(4, 3)
    nn.init.constant_(network.weight, float("nan"))
    assert output_shape(network, torch.ones(2, 4)) == (2, 3)  # which are the same


@pytest.mark.parametrize("layer", [nn.LazyLinear, lambda size: nn.LazyBatchNorm1d(affine=False)])
def test_a_layer_without_a_shape_is_refused(layer: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is lazy
        network = nn.Sequential(nn.Linear(4, 3), layer(3))
    with pytest.raises(UserError, match="has no shape yet"):
        output_shape(network, torch.ones(2, 4))
    with pytest.raises(UserError, match="has no shape yet"):
        prepared(model=network)


def frozen() -> nn.Sequential:
    network = nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 3))
    network[0].requires_grad_(False).eval()
    return network


class Keeps(nn.Sequential):
    """Keeps the mode of its first layer."""

    def train(self, mode: bool = True) -> Keeps:
        super().train(mode)
        self[0].eval()
        return self


def test_what_was_given_in_evaluation_mode_and_does_not_stay_is_named() -> None:
    assert woken(frozen()) == ("0",)
    assert woken(nn.Sequential(nn.Linear(4, 4), frozen())) == ("1.0",)
    for other in (frozen().eval(), frozen().train(), Keeps(*frozen()), Keeps(*frozen()).train()):
        assert woken(other) == ()


@pytest.mark.parametrize("built", [False, True])
def test_a_run_says_so(built: bool) -> None:
    model: Any = (lambda shape, outputs: frozen()) if built else frozen()
    (note,) = [note for note in prepared(model=model).notices() if "evaluation mode" in note]
    assert note.startswith("'0' of the model was given in evaluation mode, and is put into training mode in training")
    assert not [note for note in prepared(model=Keeps(*frozen())).notices() if "evaluation mode" in note]
