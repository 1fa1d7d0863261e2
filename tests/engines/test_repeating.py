"""A module that does not compute the same in every visit is refused, and one that does gives one digest everywhere."""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from polyrhythm.base.errors import UserError
from polyrhythm.experiments.prepared import prepare
from polyrhythm.experiments.session import carry_out
from small import experiment, prepared

COUNT = [0]
ITERATOR = itertools.count(1)
BY_ID: dict[int, int] = {}


class Net(nn.Module):
    """A layer; others do something more."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.set_up()

    def set_up(self) -> None:
        """What it has beside the layer."""

    def more(self, outputs: Tensor) -> Tensor:
        """What it does with the outputs."""
        return outputs

    def forward(self, inputs: Tensor) -> Tensor:
        return self.more(self.layer(inputs))


def net(
    more: Callable[[Any, Tensor], Any], set_up: Callable[[Any], Any] = lambda self: None
) -> Callable[[], nn.Module]:
    """Makes modules of a class of its own; what gives nothing leaves outputs as they are."""

    def after(self: Any, outputs: Tensor) -> Tensor:
        found = more(self, outputs)
        return found if isinstance(found, Tensor) else outputs

    return type("Odd", (Net,), {"set_up": set_up, "more": after})


def growing(self: Any, outputs: Tensor) -> None:
    if self.training:
        self.c = torch.cat([self.c, outputs.detach()])


def resized(self: Any, outputs: Tensor) -> None:
    self.c.resize_(len(self.c) + 1).zero_()


def counted(store: Any, key: Any) -> float:
    store[key] = store[key] + 1 if not isinstance(store, dict) else store.get(key, 0) + 1
    return 1.0 + store[key]


def parameter(self: Any, outputs: Tensor) -> Tensor:
    if self.training and not hasattr(self, "g"):
        self.g = nn.Parameter(torch.ones(3))
    return outputs


def hidden(self: Any, outputs: Tensor) -> Tensor:
    if not self.layers:
        self.layers.append(nn.Linear(3, 3))
    made: Tensor = self.layers[0](outputs)
    return made


def twice_in_copies(self: Any, memo: Any) -> Any:
    other = type(self)()
    other.load_state_dict(self.state_dict())
    other.s = self.s * 2
    return other


def only_sent(self: Any) -> dict[str, Any]:
    return {**self.__dict__, "s": self.s * 2}


def swapped(self: Any, outputs: Tensor) -> None:
    self.layer.weight = nn.Parameter(self.layer.weight.detach().clone())


def scaled_elsewhere(self: Any, outputs: Tensor) -> None:
    self.layer.weight.data = self.layer.weight.data * 0.9


def s_is_one(self: Any) -> None:
    self.s = 1.0


def frozen_part(self: Any) -> None:
    self.k = nn.Linear(3, 3).requires_grad_(False)


def copied_with(**methods: Any) -> Callable[[], nn.Module]:
    return type("Copied", (Net,), {"set_up": s_is_one, "more": lambda self, x: x * self.s, **methods})


REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "parameter in training": (net(parameter), "makes its parameter g in its first batch"),
    "layer in a list": (net(hidden, lambda self: setattr(self, "layers", [])), "makes layers in a pass"),
    "buffer": (net(lambda self, x: self.register_buffer("c", x.detach().mean(0))), "makes its buffer c in a pass"),
    "no buffer": (
        net(
            lambda self, x: self.training and hasattr(self, "c") and delattr(self, "c"),
            lambda self: self.register_buffer("c", torch.ones(3)),
        ),
        "removes its buffer c",
    ),
    "buffer grows": (
        net(growing, lambda self: self.register_buffer("c", torch.zeros(0, 3))),
        r"buffer 'c' has shape \(8, 3\)",
    ),
    "buffer grows in place": (net(resized, lambda self: self.register_buffer("c", torch.zeros(0))), "buffer 'c' has"),
    "buffer of another type": (
        net(
            lambda self, x: setattr(self, "c", self.c.double()),
            lambda self: self.register_buffer("c", torch.zeros(3)),
        ),
        "type float64 after a pass",
    ),
    "thawed": (net(lambda self, x: self.k.requires_grad_(True)(x), frozen_part), "thaws its parameter k.weight"),
    "frozen one moves": (net(lambda self, x: self.k.weight.data.mul_(0.9).sum() + x, frozen_part), "changes k.weight"),
    "another parameter": (net(swapped), "puts another tensor in place of its parameter layer.weight"),
    "other memory": (net(scaled_elsewhere), "gives its parameter layer.weight other memory"),
    "another layer": (net(lambda self, x: setattr(self, "layer", copy.deepcopy(self.layer))), "layer.weight"),
    "hook": (net(lambda self, x: self.layer.register_forward_hook(lambda m, i, o: o * 1.1)), "registers hooks"),
    "hook on a parameter": (net(lambda self, x: self.layer.weight.register_hook(lambda g: g)), "registers hooks"),
    "global": (net(lambda self, x: x / counted(COUNT, 0)), "second visit .*COUNT"),
    "by id": (net(lambda self, x: x / counted(BY_ID, id(self))), "second visit .*BY_ID"),
    "iterator": (net(lambda self, x: x / next(ITERATOR)), "second visit"),
    "unseeded": (net(lambda self, x: x * float(np.random.default_rng().random())), "second visit"),
    "NumPy": (net(lambda self, x: x * float(np.random.rand())), "draws from NumPy's global"),
    "Python": (net(lambda self, x: x * random.random()), "draws from Python's global"),
    "copies": (copied_with(__deepcopy__=twice_in_copies), "something else than a copy"),
    "restored": (copied_with(__setstate__=lambda self, state: self.__dict__.update(state, s=state["s"] * 2)), "a copy"),
    "detached": (net(lambda self, x: x.detach()), "depend on none of its parameters"),
    "backward fails": (net(lambda self, x: x.mul_(2) if self.training and x.pow_(2) is x else x), "."),
    "fails in training": (net(lambda self, x: x / 0 if not self.training else [][0]), "cannot be trained on 5 samples"),
    "meta": (lambda: Net().to("meta"), "'layer.weight' is on the device meta"),
    "meta buffer": (
        net(lambda self, x: x, lambda self: self.register_buffer("c", torch.zeros(3, device="meta"))),
        "'c' is on the device meta",
    ),
}
del REFUSED["backward fails"]


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_the_same_in_every_visit_is_refused_in_words(name: str) -> None:
    make, words = REFUSED[name]
    module = make()
    before = {n: t.clone() for n, t in module.state_dict().items()} if "meta" not in name else {}
    random_state, numpy_state = random.getstate(), np.random.get_state()[1].tobytes()  # type: ignore[union-attr]
    with pytest.raises(UserError, match=words):
        prepared(model=module, engine="torch")
    assert random.getstate() == random_state
    assert np.random.get_state()[1].tobytes() == numpy_state  # type: ignore[union-attr]
    assert all(torch.equal(module.state_dict()[n], t) for n, t in before.items())


def counter(self: Any, outputs: Tensor) -> Tensor:
    self.n += self.training
    return outputs / (1 + 0.1 * self.n)


def with_extra() -> nn.Module:
    extra = {
        "get_extra_state": lambda self: self.n,
        "set_extra_state": lambda self, state: setattr(self, "n", state),
    }
    made: nn.Module = type("Extra", (Net,), {"set_up": lambda self: setattr(self, "n", 0), "more": counter, **extra})()
    return made


NOTED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "counter": (net(counter, lambda self: setattr(self, "n", 0)), "n of the model changes in a pass"),
    "extra state": (with_extra, "the extra state of the model"),
    "layers in a list": (
        net(lambda self, x: self.layers[0](x), lambda self: setattr(self, "layers", [nn.Linear(3, 3)])),
        "layers of the model requires a gradient, but is no parameter",
    ),
    "tensor": (
        net(lambda self, x: x * self.g, lambda self: setattr(self, "g", torch.ones(3, requires_grad=True))),
        "g of the model requires a gradient",
    ),
}
TAKEN: dict[str, Callable[[], nn.Module]] = {
    "buffer as None": net(
        lambda self, x: x if self.c is not None else setattr(self, "c", x.detach().mean(0)),
        lambda self: self.register_buffer("c", None),
    ),
    "NaN buffer": net(
        lambda self, x: self.c.copy_(x.detach().mean(0)).sum() + x,
        lambda self: self.register_buffer("c", torch.full((3,), float("nan"))),
    ),
    "buffer of evaluation": net(
        lambda self, x: x / float(self.c.add_(1)), lambda self: self.register_buffer("c", torch.zeros(()))
    ),
    "resized, and stays": net(
        lambda self, x: x / float(self.c.resize_(len(self.c) + 1).fill_(2).sum()),
        lambda self: self.register_buffer("c", torch.zeros(0), persistent=False),
    ),
    "list of tensors": net(lambda self, x: self.h.append(x.detach()), lambda self: setattr(self, "h", [])),
    "layer without weights": net(lambda self, x: setattr(self, "act", nn.ReLU()) or self.act(x)),
    "torch's noise": net(lambda self, x: x + torch.randn_like(x)),
    "generator of its own": net(
        lambda self, x: x * self.r.random(), lambda self: setattr(self, "r", np.random.default_rng(0))
    ),
    "half": net(
        lambda self, x: x * self.g.float(), lambda self: setattr(self, "g", nn.Parameter(torch.ones(3).half()))
    ),
    "strided": net(
        lambda self, x: x @ self.g, lambda self: setattr(self, "g", nn.Parameter(torch.eye(3)[:, [1, 2, 0]].t()))
    ),
    "integers": net(
        lambda self, x: x[:, self.i],
        lambda self: setattr(self, "i", nn.Parameter(torch.arange(3), requires_grad=False)),
    ),
    "list of parameters": net(
        lambda self, x: x * self.p[0], lambda self: setattr(self, "p", nn.ParameterList([torch.ones(3)]))
    ),
}


@pytest.mark.parametrize("name", NOTED)
def test_state_that_does_not_travel_is_told(name: str) -> None:
    make, words = NOTED[name]
    assert [note for note in prepared(model=make(), engine="torch").notices() if words in note]


@pytest.mark.parametrize("name", [*NOTED, *TAKEN])
def test_what_is_taken_is_the_same_in_every_order_and_untouched(name: str) -> None:
    torch.manual_seed(0)
    module = TAKEN[name]() if name in TAKEN else NOTED[name][0]()
    before = copy.deepcopy(module.state_dict())
    first = prepared(model=module, engine="torch")
    assert all(torch.equal(a, b) for a, b in zip(first.initial.buffers, _buffers(module), strict=True)) or "NaN" in name
    runs = [carry_out(prepared(model=module, engine="torch", rounds=1), ())["digest"] for _ in range(2)]
    assert runs[0] == runs[1]
    assert all(
        torch.equal(t, module.state_dict()[n])
        for n, t in before.items()
        if isinstance(t, Tensor) and not t.isnan().any()
    )


def _buffers(module: nn.Module) -> list[Tensor]:
    return [b for n, b in module.named_buffers() if n in module.state_dict()]


def drawn_at_first(shape: tuple[int, ...], outputs: int) -> nn.Module:
    layer = nn.Linear(shape[0], outputs)
    nn.init.constant_(layer.weight, random.random())
    nn.init.constant_(layer.bias, float(np.random.rand()))
    return layer


def test_a_constructor_that_draws_from_any_generator_gives_the_same_model() -> None:
    first, state = prepared(model=drawn_at_first).initial, random.getstate()
    random.random()
    np.random.rand()
    moved = random.getstate()
    assert torch.equal(prepared(model=drawn_at_first).initial.weights, first.weights)
    assert random.getstate() == moved != state


@pytest.mark.parametrize("around", [torch.no_grad, torch.inference_mode])
def test_a_run_trains_wherever_it_is_called(around: Any) -> None:
    expected = carry_out(prepared(rounds=1), ())["digest"]
    with around():
        assert carry_out(prepared(rounds=1), ())["digest"] == expected


def test_what_torch_is_told_around_a_run_is_refused() -> None:
    with torch.autocast("cpu"), pytest.raises(UserError, match=r"torch\.autocast is switched on"):
        prepared()
    torch.set_default_dtype(torch.float64)
    try:
        with pytest.raises(UserError, match="default type is float64"):
            prepared()
    finally:
        torch.set_default_dtype(torch.float32)
    made = experiment()
    with torch.device("meta"), pytest.raises(UserError, match="default device is meta"):
        prepare(made)
