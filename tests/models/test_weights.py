"""Weights from a file: all of a model's, or none."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file, save_model
from torch import Tensor, nn

from polyrhythm.base.errors import UserError
from polyrhythm.models.weights import load_weights


class Tied(nn.Module):
    """Two names for one tensor, and a buffer with two."""

    def __init__(self, fill: float = 0.0) -> None:
        super().__init__()
        self.inside, self.outside = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
        self.outside.weight = self.inside.weight
        self.register_buffer("scale", torch.full((2,), fill))
        self.same = nn.Module()
        self.same.register_buffer("scale", self.scale)
        nn.init.constant_(self.inside.weight, fill)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.outside(self.inside(inputs))
        return outputs


def loaded(module: nn.Module, state: dict[str, Tensor], folder: Path) -> nn.Module:
    save_file(state, folder / "w.safetensors")
    return load_weights(module, folder / "w.safetensors")


ONE, TWO = torch.ones(5, 3), torch.full((5, 3), 2.0)
HALF = torch.full((2,), 0.5)


@pytest.mark.parametrize(
    "state",
    [
        {"inside.weight": ONE, "scale": HALF},
        {"outside.weight": ONE, "same.scale": HALF},
        {"inside.weight": ONE, "outside.weight": ONE.clone(), "scale": HALF},
        {"module.inside.weight": ONE, "module.scale": HALF},
        {"_orig_mod.outside.weight": ONE, "_orig_mod.same.scale": HALF},
    ],
)
def test_one_of_the_names_of_a_tensor_is_enough(state: dict[str, Tensor], tmp_path: Path) -> None:
    given = Tied()
    found = loaded(given, state, tmp_path)
    assert isinstance(found, Tied)
    assert found.outside.weight is found.inside.weight
    assert torch.equal(found.inside.weight, ONE)
    assert torch.equal(found.same.scale, HALF)
    assert found.same.scale is found.scale
    assert not given.inside.weight.any()


def test_what_others_save_of_tied_weights_is_taken(tmp_path: Path) -> None:
    save_model(Tied(3.0), str(tmp_path / "m.safetensors"))
    found = load_weights(Tied(), tmp_path / "m.safetensors")
    assert all(bool((tensor == 3).all()) for tensor in found.state_dict().values())


def test_two_values_for_one_tensor_are_refused(tmp_path: Path) -> None:
    state = {"inside.weight": ONE, "outside.weight": TWO, "scale": HALF}
    with pytest.raises(UserError, match=r"inside\.weight and outside\.weight have other values") as refused:
        loaded(Tied(), state, tmp_path)
    assert "tied" in refused.value.why
    with pytest.raises(UserError, match=r"scale and same\.scale have other values"):
        loaded(Tied(), {"inside.weight": ONE, "scale": HALF, "same.scale": 2 * HALF}, tmp_path)


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"scale": HALF}, "inside.weight is missing"),
        ({"inside.weight": ONE[:2].clone(), "scale": HALF}, "inside.weight has shape"),
        ({"outside.weight": ONE.double(), "scale": HALF}, "outside.weight has shape .*float64"),
        ({"inside.weight": ONE, "scale": HALF, "more": HALF.clone()}, "unknown weight 'more'"),
    ],
)
def test_what_is_not_of_the_model_is_refused(state: dict[str, Tensor], said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said):
        loaded(Tied(), state, tmp_path)


def test_equal_tensors_that_are_not_tied_may_differ(tmp_path: Path) -> None:
    pair = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    found = loaded(pair, {"0.weight": ONE[:3].clone(), "1.weight": TWO[:3].clone()}, tmp_path)
    assert torch.equal(found.get_parameter("1.weight"), TWO[:3])
