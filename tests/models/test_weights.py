"""Weights from a file: all of a model's, or none."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file, save_model
from torch import Tensor, nn

from polyrhythm.base.errors import UserError
from polyrhythm.models.weights import load_weights
from small import experiment, prepared, run


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


class Net(nn.Module):
    """A body and a head."""

    def __init__(self, outputs: int = 3) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 4), nn.Linear(4, outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.body(inputs))
        return outputs


STATES: dict[str, Callable[[dict[str, Tensor]], Any]] = {
    "a state dict": lambda state: state,
    "of a parallel model": lambda state: {f"module.{name}": tensor for name, tensor in state.items()},
    "of FSDP": lambda state: {f"_fsdp_wrapped_module.{name}": tensor for name, tensor in state.items()},
    "a checkpoint": lambda state: {"epoch": 3, "model_state_dict": state, "optimizer": {"lr": 0.1}},
    "of Lightning": lambda state: {"state_dict": state, "epoch": 1},
}


@pytest.mark.parametrize("kind", STATES)
@pytest.mark.parametrize("name", ["w.pt", "w.pth", ""])
def test_weights_of_torch_are_taken(kind: str, name: str, tmp_path: Path) -> None:
    given, other = Net(), Net()
    state = STATES[kind](other.state_dict())
    if name:
        torch.save(state, tmp_path / name)
    found = load_weights(given, tmp_path / name if name else state)
    assert all(torch.equal(a, b) for a, b in zip(found.parameters(), other.parameters(), strict=True))
    assert not torch.equal(given.head.weight, other.head.weight)


def test_a_module_is_taken() -> None:
    other = Net()
    found = load_weights(Net(), nn.DataParallel(other))
    assert torch.equal(found.get_parameter("head.weight"), other.head.weight)


def test_another_head_is_refused_by_name_and_left_out_where_that_is_said() -> None:
    given, other = Net(outputs=5), Net()
    with pytest.raises(UserError) as refusal:
        load_weights(given, other)
    assert "head.weight has shape (3, 4)" in refusal.value.found
    assert "head.bias has shape (3,)" in refusal.value.found
    assert "initial_skip=('head.*',)" in refusal.value.fix
    for source in (other.state_dict(), {n: t for n, t in other.state_dict().items() if "head" not in n}):
        found = load_weights(given, source, ("head.*",))
        assert torch.equal(found.get_parameter("body.weight"), other.body.weight)
        assert torch.equal(found.get_parameter("head.weight"), given.head.weight)
    with pytest.raises(UserError, match=r"haed\.\*"):
        load_weights(given, other, ("haed.*",))


def test_what_is_no_finite_number_is_named() -> None:
    other = Net()
    nn.init.constant_(other.head.bias, float("nan"))
    with pytest.raises(UserError, match=r"head\.bias has values that are NaN"):
        load_weights(Net(), other)


class Runs:
    """Runs code where it is unpickled."""

    def __reduce__(self) -> Any:
        return exec, ("raise SystemExit",)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (Runs(), "holds more than tensors"),
        (Net(), "holds more than tensors"),
        ([torch.ones(2)], "a list"),
        ({"a": 1.0}, "a dict with a"),
        ({"model": {"a": torch.ones(1)}, "state_dict": {"a": torch.ones(1)}}, "a dict with model, state_dict"),
        (b"", "not readable"),
    ],
)
def test_what_is_no_state_dict_is_refused_in_words(content: Any, words: str, tmp_path: Path) -> None:
    path = tmp_path / "w.pt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with pytest.raises(UserError, match=words):
        load_weights(Net(), path)
    with pytest.raises(UserError, match="no such file"):
        load_weights(Net(), tmp_path / "x.pt")


def test_an_experiment_begins_with_what_was_given(tmp_path: Path) -> None:
    other = nn.Linear(4, 3)
    for initial in (other, other.state_dict(), OrderedDict(other.state_dict())):
        made = prepared(model=nn.Linear(4, 3), initial=initial)
        assert torch.equal(made.chosen.engine.state_of(made.initial)["weight"], other.weight)
        assert made.experiment.describe()["initial"].startswith("weights:")
    left = prepared(model=nn.Linear(4, 3), initial=other, initial_skip=("bias",))
    assert "bias begin as the model makes them, and not with the initial weights" in left.notices()
    first = run(experiment(model=other, rounds=1), out=tmp_path)
    made = prepared(model=nn.Linear(4, 3), initial=first)
    assert torch.equal(made.chosen.engine.state_of(made.initial)["weight"], first.weights()["weight"])
    for wrong in ({"weight": 1.0}, 3.0):
        with pytest.raises(UserError):
            experiment(initial=wrong)
    with pytest.raises(UserError, match="without initial weights"):
        experiment(initial_skip=("a",))
    nn.init.constant_(other.bias, float("inf"))
    with pytest.raises(UserError, match="Linear: bias has values that are NaN or infinite"):
        prepared(model=other)
