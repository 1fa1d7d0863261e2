"""States are named as in the plain model, whatever wraps it and whatever its state_dict says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import polyrhythm as pr
from polyrhythm.base.flat_model import FlatModel
from polyrhythm.base.tensor_names import fill, state_of
from small import experiment, prepared


def sequential() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3))


def part_of(wrap: Callable[[nn.Module], Any]) -> nn.Module:
    model = sequential()
    model[0] = wrap(model[0])
    return model


def eager(model: nn.Module) -> Any:
    return torch.compile(model, backend="eager")


class Leaves(nn.Sequential):
    """Says only part of its state, and under other names."""

    def state_dict(self, *given: Any, **named: Any) -> Any:
        return {"net.bias": self[3].bias, "more": 3}


class Says(nn.Sequential):
    """Says more than tensors."""

    def get_extra_state(self) -> Any:
        return {"epoch": 3}

    def set_extra_state(self, state: Any) -> None:
        """Nothing to do."""


def doubled(model: nn.Module) -> nn.Module:
    model._register_state_dict_hook(lambda module, state, prefix, about: {k: v * 2 for k, v in state.items()})  # type: ignore[no-untyped-call]
    return model


WRAPPED: dict[str, Callable[[], nn.Module]] = {
    "compiled": lambda: eager(sequential()),
    "parallel": lambda: nn.DataParallel(sequential()),
    "both": lambda: nn.DataParallel(eager(sequential())),
    "a compiled part": lambda: part_of(eager),
    "a parallel part": lambda: part_of(nn.DataParallel),
    "a state_dict of its own": lambda: Leaves(*sequential()),
    "extra state": lambda: Says(*sequential()),
    "a hook on its state": lambda: doubled(sequential()),
    "compiled in place": lambda: sequential(),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_names_are_those_of_the_plain_model(name: str, tmp_path: Path) -> None:
    plain = sequential()
    module = WRAPPED[name]()
    fill(module, plain.state_dict())
    assert list(state_of(module)) == list(plain.state_dict())
    flat = FlatModel(module)
    assert [segment.name for segment in flat.layout.segments] == [n for n, _ in plain.named_parameters()]
    assert [slot.name for slot in flat.layout.buffers] == [n for n, _ in plain.named_buffers()]
    runs = [pr.run(experiment(model=model, rounds=1), out=tmp_path) for model in (plain, module)]
    expected, found = (run.weights("final") for run in runs)
    plain.load_state_dict(found)
    assert {n: t.tolist() for n, t in found.items()} == {n: t.tolist() for n, t in expected.items()}


@pytest.mark.parametrize("name", WRAPPED)
@pytest.mark.parametrize("other", ["compiled", "parallel", "a compiled part"])
def test_weights_of_one_are_initial_weights_of_the_others(name: str, other: str, tmp_path: Path) -> None:
    """Under its own names, as torch saves them, too."""
    from safetensors.torch import save_file

    torch.manual_seed(1)
    given = WRAPPED[other]()
    save_file({n: t.clone() for n, t in given.state_dict().items()}, tmp_path / "given.safetensors")
    begun = prepared(model=WRAPPED[name](), initial=str(tmp_path / "given.safetensors"))
    found = begun.chosen.engine.state_of(begun.initial)
    assert all(torch.equal(found[n], t) for n, t in state_of(given).items())


def test_a_state_holds_frozen_and_tied_tensors_and_no_others() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(3, 3), nn.Linear(3, 3)
            self.two.weight = self.one.weight
            self.one.bias.requires_grad_(False)
            self.register_buffer("here", torch.ones(1), persistent=False)
            self.register_buffer("none", None)
            self.register_parameter("no", None)
            self.twice = self.one

        def forward(self, inputs: Tensor) -> Tensor:
            return inputs

    odd = Odd()
    assert list(state_of(odd)) == list(odd.state_dict())
    assert all(torch.equal(t, odd.state_dict()[n]) for n, t in state_of(odd).items())
    assert [s.name for s in FlatModel(odd).layout.segments] == ["one.weight", "two.bias"]
