"""Plain attributes that a forward pass changes: each visit begins with those of the module that was given."""

from __future__ import annotations

import copy
import operator
import random
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import polyrhythm as pr
from polyrhythm.base.attributes import Attributes, attributes, changed_in
from polyrhythm.base.errors import UserError
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.models.tasks import task
from small import experiment, prepared
from worker_models import Carried, Counter, FirstCall


class Keeps(nn.Module):
    """Keeps values of every kind."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.parts = [self.layer]
        self.n, self.name, self.nothing = 1, "one", None
        self.listed: list[Any] = [1, [2]]
        self.named: dict[str, Any] = {"a": [1]}
        self.queue = deque([1], maxlen=3)
        self.array = np.zeros(3)
        self.tensor = torch.zeros(3)
        self.space = SimpleNamespace(n=1)
        self.draws = random.Random(0)
        self.called = Called()
        self.around = SimpleNamespace(n=1, tensor=torch.zeros(2))
        self.weights = [self.layer.weight]
        self.drop = nn.Dropout(0.5)
        self.shared = {"n": 1}
        self.other = Other(self.shared)


class Other(nn.Module):
    """Shares a memory with the module that it is in."""

    def __init__(self, shared: dict[str, int]) -> None:
        super().__init__()
        self.shared = shared


class Called:
    """A function with a memory."""

    def __init__(self) -> None:
        self.n = 0

    def __call__(self) -> None:
        self.n += 1


CHANGES = {
    "a number": lambda m: setattr(m, "n", 2),
    "nothing": lambda m: setattr(m, "nothing", torch.ones(1)),
    "a list": lambda m: m.listed[1].append(3),
    "another list": lambda m: setattr(m, "listed", [1, [2]]),
    "a dict": lambda m: m.named["a"].append(2),
    "a queue": lambda m: m.queue.append(2),
    "an array": lambda m: m.array.__setitem__(0, 1),
    "a tensor in place": lambda m: m.tensor.add_(1),
    "another tensor": lambda m: setattr(m, "tensor", torch.ones(3)),
    "an object": lambda m: setattr(m.space, "n", 2),
    "a generator": lambda m: m.draws.random(),
    "what is called": lambda m: m.called(),
    "an object around a tensor": lambda m: setattr(m.around, "n", 2),
    "what two parts share": lambda m: m.shared.update(n=2),
    "a setting of a layer": lambda m: setattr(m.drop, "p", 0.25),
    "a new one": lambda m: setattr(m, "late", 1),
    "a new one of a layer": lambda m: setattr(m.layer, "late", 1),
    "one that is gone": lambda m: delattr(m, "name"),
}


OBJECTS = ("parts", "tensor", "called", "around", "weights")


def state_of(module: Keeps) -> dict[str, Any]:
    plain = {key: value for key, value in vars(module).items() if not key.startswith("_") and key not in OBJECTS}
    plain |= {"array": module.array.tolist(), "space": module.space.n, "draws": module.draws.getstate()}
    plain |= {"called": module.called.n, "around": [module.around.n, module.around.tensor.tolist()]}
    plain |= {"p": module.drop.p, "of a layer": hasattr(module.layer, "late")}
    return copy.deepcopy({**plain, "tensor": module.tensor.tolist(), "part": module.parts[0] is module.layer})


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_pass_changes_is_put_back_however_often(change: str) -> None:
    module = Keeps()
    before, kept = state_of(module), Attributes(module)
    for _ in range(2):
        CHANGES[change](module)
        kept.put_back()
        assert state_of(module) == before
    assert module.parts[0] is module.layer
    assert module.weights[0] is module.layer.weight


def test_what_parts_share_they_share_afterwards() -> None:
    module = Keeps()
    kept = Attributes(module)
    for value in (2, 3):
        module.shared["n"] = value
        kept.put_back()
        assert module.shared == {"n": 1}
        assert module.other.shared is module.shared


@pytest.mark.parametrize("change", [c for c in CHANGES if c not in ("nothing", "a tensor in place", "another tensor")])
def test_a_change_is_seen_by_its_name(change: str) -> None:
    module = Keeps()
    before = attributes(module)
    assert not changed_in(before, attributes(module))
    CHANGES[change](module)
    name = changed_in(before, attributes(module))
    assert bool(name) == (change != "another list")  # which is equal
    assert not name or change == "one that is gone" or operator.attrgetter(name)(module) is not None


def test_a_tensor_that_is_left_behind_is_no_change() -> None:
    module = Keeps()
    before = attributes(module)
    module.nothing, module.tensor = torch.ones(2), torch.ones(3)  # type: ignore[assignment]
    module.late = torch.ones(1)
    assert not changed_in(before, attributes(module))
    module.layer.weight = nn.Parameter(torch.ones(3, 4))
    assert changed_in(before, attributes(module)) == "layer._parameters"


@pytest.mark.parametrize("kind", [Counter, Carried, FirstCall])
def test_the_driver_changes_no_number(kind: type[nn.Module], tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = kind()
    digests = set()
    for driver in ({"driver": "inline"}, {"driver": "processes", "workers": 2}):
        asked: dict[str, Any] = {"model": model, "recipe": pr.fedavg(cohort=3, batch=5, lr=0.05)}
        run = pr.run(experiment(**asked), execution=pr.Execution(**driver), out=tmp_path)
        digests.add(run.summary["digest"])
    assert len(digests) == 1


def test_each_visit_begins_anew() -> None:
    engine = TorchEngine(Counter(), task("classification"))
    module = engine.module
    for _ in range(2):
        module(torch.zeros(2, 4))
    assert module.n == 2
    assert engine.at_rest().n == 0


def test_a_layer_that_is_made_in_the_first_batch_is_refused() -> None:
    class Late(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.head = nn.Linear(4, 4), None

        def forward(self, inputs: Tensor) -> Tensor:
            if self.head is None:
                self.head = nn.Linear(4, 3)
            outputs: Tensor = self.head(self.first(inputs))
            return outputs

    with pytest.raises(UserError, match=r"makes its parameter head\.weight in its first batch"):
        prepared(model=Late()).chosen  # noqa: B018


def test_a_copy_that_holds_the_first_modules_weights_is_refused() -> None:
    net = nn.Sequential(nn.Linear(4, 3))
    forward = net[0].forward
    net[0].forward = lambda inputs: 2 * forward(inputs)
    with pytest.raises(UserError, match=r"a copy of Sequential computes with 0\.weight"):
        prepared(model=net).chosen  # noqa: B018


def test_a_hook_for_accumulated_gradients_is_refused() -> None:
    net = nn.Linear(4, 3)
    net.weight.register_post_accumulate_grad_hook(lambda parameter: None)
    with pytest.raises(UserError, match="a hook for when its gradient was accumulated"):
        prepared(model=net).chosen  # noqa: B018


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.nn.utils.parametrizations.spectral_norm(nn.Linear(4, 3)),
        lambda: nn.Sequential(nn.Linear(4, 3), nn.RReLU()),
        lambda: hooked_by_mode(nn.Linear(4, 3)),
    ],
    ids=["spectral norm", "rrelu", "hook"],
)
def test_what_looks_at_the_mode_is_not_the_same_in_both(make: Any) -> None:
    assert TorchEngine(nn.Sequential(nn.Linear(4, 3), nn.ReLU()), task("classification")).one_mode
    assert not TorchEngine(make(), task("classification")).one_mode


def hooked_by_mode(net: nn.Module) -> nn.Module:
    net.register_forward_hook(lambda module, given, made: made if module.training else -made)
    return net
