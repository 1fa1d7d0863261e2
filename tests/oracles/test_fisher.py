"""The Fisher trace of modules that have no rule for many samples at once, and what it leaves alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from polyrhythm.base.streams import stream
from polyrhythm.data import ArraySamples
from polyrhythm.data.holding import Holding
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.models.tasks import task


class Branching(nn.Module):
    """Decides by what it sees, which no batching rule can follow."""

    def __init__(self) -> None:
        super().__init__()
        self.low, self.high = nn.Linear(4, 3), nn.Linear(4, 3)
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, inputs: Tensor) -> Tensor:
        rows = [(self.high if float(row.sum()) > 0 else self.low)(row) for row in inputs]
        return self.scale * torch.stack(rows)


class Broken(nn.Linear):
    def forward(self, inputs: Tensor) -> Tensor:
        raise RuntimeError("a wire is loose")


def holding() -> Holding:
    generator = torch.Generator().manual_seed(1)
    return Holding(ArraySamples(torch.randn(9, 4, generator=generator), torch.arange(9) % 3))


def test_what_branches_on_its_values_is_taken_sample_by_sample() -> None:
    net, data = Branching(), holding()
    inputs, targets = data.batch(torch.arange(9).numpy(), None)
    expected = 0.0
    for x, y in zip(inputs, targets, strict=True):
        used = net.high if float(x.sum()) > 0 else net.low
        loss = nn.functional.cross_entropy(net(x[None]), y[None])
        expected += sum(float(g.square().sum()) for g in torch.autograd.grad(loss, list(used.parameters())))
    engine = TorchEngine(net, task("classification"))
    assert engine.fisher(engine.initial(), data) == pytest.approx(expected / 9, rel=1e-5)


def test_a_module_that_fails_says_why() -> None:
    engine = TorchEngine(Broken(4, 3), task("classification"))
    with pytest.raises(RuntimeError, match="a wire is loose"):
        engine.fisher(engine.initial(), holding())


def closed_form(name: str, outputs: Tensor) -> Tensor:
    """For a linear model the part of one sample is (|x|^2 + 1) times this: the expected square of d loss / d output."""
    p = outputs.softmax(dim=1)
    q = outputs.sigmoid()
    forms = {
        "classification": 1 - p.square().sum(dim=1),
        "next_character": 1 - p.square().sum(dim=1),
        "multilabel": (q * (1 - q)).sum(dim=1) / outputs.shape[1] ** 2,
        "multilabel, summed": (q * (1 - q)).sum(dim=1),
        "regression": torch.full((len(outputs),), 2.0),  # (2 / d)^2 times d variances of d / 2
    }
    return forms[name]


@pytest.mark.parametrize("name", ["classification", "next_character", "multilabel", "multilabel, summed", "regression"])
def test_over_many_draws_of_the_models_labels_it_is_the_fisher_information(name: str) -> None:
    judge = task("multilabel", labels="sum") if name == "multilabel, summed" else task(name)
    torch.manual_seed(2)
    net, inputs = nn.Linear(4, 3), torch.randn(3000, 4)
    with torch.no_grad():
        expected = (inputs.square().sum(dim=1) + 1) * closed_form(name, net(inputs))
    engine = TorchEngine(net, judge)
    data = Holding(ArraySamples(inputs, torch.zeros(3000, 3)))  # whose labels nobody reads
    model = engine.initial()
    found = [engine.fisher(model, data, None, labels=stream(0, "labels", 0, visit)) for visit in range(20)]
    assert sum(found) / 20 == pytest.approx(float(expected.mean()), rel=0.02)
    assert len(set(found)) == 20


@pytest.mark.parametrize("name", ["classification", "multilabel"])
def test_a_model_that_is_certain_has_none_for_its_own_labels_right_or_wrong(name: str) -> None:
    net = nn.Linear(4, 3)
    with torch.no_grad():
        net.weight.zero_()
        net.bias.copy_(torch.tensor([60.0, -60.0, -60.0]))
    labels = torch.arange(9) % 3
    targets = labels if name == "classification" else nn.functional.one_hot(labels, 3).float()
    data = Holding(ArraySamples(torch.randn(9, 4, generator=torch.Generator().manual_seed(1)), targets))
    engine = TorchEngine(net, task(name))
    assert engine.fisher(engine.initial(), data, labels=stream(0, "labels")) < 1e-12
    assert engine.fisher(engine.initial(), data) > 0.5


def test_the_models_labels_do_not_depend_on_the_chunks() -> None:
    engine, data = TorchEngine(nn.Linear(4, 3), task("classification")), holding()
    whole, *cut = (engine.fisher(engine.initial(), data, chunk, labels=stream(0, "labels")) for chunk in (None, 1, 4))
    assert cut == pytest.approx([whole, whole], rel=1e-5)


def test_it_is_of_the_given_model_and_leaves_the_one_in_training_alone() -> None:
    net = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout(0.5), nn.Linear(5, 3))
    engine = TorchEngine(net, task("classification"))
    first = engine.initial()
    other = type(first)(weights=2 * first.weights, buffers=first.buffers)
    weights, buffers, gradient = engine.weights.clone(), engine.buffers(), engine.gradient.clone()
    modes, state = [m.training for m in engine.module.modules()], torch.get_rng_state()
    found = engine.fisher(other, holding())
    assert found != engine.fisher(first, holding())
    assert found == engine.fisher(other, holding())
    assert torch.equal(engine.weights, weights)
    assert torch.equal(engine.gradient, gradient)
    assert all(torch.equal(a, b) for a, b in zip(engine.buffers(), buffers, strict=True))
    assert modes == [m.training for m in engine.module.modules()]
    assert torch.equal(torch.get_rng_state(), state)


class Mixing(nn.Module):
    """Looks at a whole batch, which single samples do not."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.out = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.first(inputs)
        return self.out(torch.tanh(hidden - hidden.mean(dim=0)))


def images(**settings: Any) -> nn.Module:
    """A convolution of 1 × 6 × 6 pixels and a linear layer, with a layer between them that works in place."""
    first = nn.Conv2d(1, 4, 3, **settings)
    width = first(torch.zeros(1, 1, 6, 6)).numel()
    return nn.Sequential(first, nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(width, 3))


def still(net: nn.Module) -> nn.Module:
    net[0].weight.requires_grad_(False)  # type: ignore[index, union-attr]
    return net


LAYERED = {
    "linear": lambda: nn.Sequential(nn.Linear(4, 8, bias=False), nn.ReLU(inplace=True), nn.Linear(8, 3)),
    "convolution": images,
    "many places": lambda: images(padding=2),
    "strides": lambda: images(stride=2, padding=1, dilation=2, bias=False),
    "a bias alone": lambda: still(images()),
    "at several places": lambda: nn.Sequential(
        nn.Unflatten(1, (2, 2)), nn.Linear(2, 5), nn.Flatten(), nn.Linear(10, 3)
    ),
}
WHOLE = {
    "mixing": Mixing,
    "groups": lambda: nn.Sequential(
        nn.Unflatten(1, (2, 2, 1)), nn.Conv2d(2, 4, 1, groups=2), nn.Flatten(), nn.Linear(8, 3)
    ),
    "norms": lambda: nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 3)),
}


@pytest.mark.parametrize("name", [*LAYERED, *WHOLE])
def test_layers_give_what_single_gradients_give_and_are_asked_where_they_can(name: str) -> None:
    torch.manual_seed(4)
    net = {**LAYERED, **WHOLE}[name]()
    inputs = (
        torch.randn(7, 1, 6, 6)
        if any(isinstance(m, nn.Conv2d) and name != "groups" for m in net.modules())
        else torch.randn(7, 4)
    )
    targets, expected = torch.arange(7) % 3, 0.0
    parameters = [p for p in net.parameters() if p.requires_grad]
    for x, y in zip(inputs, targets, strict=True):
        loss = nn.functional.cross_entropy(net.eval()(x[None]), y[None])
        found = torch.autograd.grad(loss, parameters, allow_unused=True)
        expected += sum(float(g.square().sum()) for g in found if g is not None)
    engine = TorchEngine(net, task("classification"))
    model, data = engine.initial(), Holding(ArraySamples(inputs, targets))
    for chunk in (None, 3):
        assert engine.fisher(model, data, chunk) == pytest.approx(expected / 7, rel=1e-4)
    assert bool(engine._squares._layers) == (name in LAYERED)


def test_how_it_is_computed_does_not_depend_on_what_came_first() -> None:
    """Two workers that begin with other visits, one of a model that is no number, give the same bits later."""
    data, first, second = holding(), *(TorchEngine(nn.Linear(4, 3), task("classification")) for _ in range(2))
    model = first.initial()
    broken = type(model)(weights=model.weights * float("nan"), buffers=())
    assert first.fisher(broken, data) != first.fisher(broken, data)
    assert first.fisher(model, data) == second.fisher(model, data)
    assert torch.equal(first._frozen_model("received").weights, model.weights)
