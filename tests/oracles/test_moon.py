"""MOON's loss against its formula with autograd on plain modules, and what its frozen passes must not touch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, final

import pytest
import torch
from torch import Tensor, nn

from polyrhythm.base.streams import seeded_torch
from polyrhythm.methods.mechanism import Model
from polyrhythm.methods.papers import fedavg, moon
from polyrhythm.methods.recipe import Recipe
from polyrhythm.models.tasks import Classification

Visits = Callable[..., Any]
SEED = 3  # of the `visits` fixture


@final
class Encoder(nn.Module):
    """BatchNorm and dropout before a projection: in training mode a pass draws and counts, in eval mode it does not."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Dropout(0.4))
        self.projection = nn.Linear(6, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(torch.tanh(self.projection(self.body(x))))
        return out

    def represent(self, x: Tensor) -> Tensor:
        out: Tensor = self.projection(self.body(x))
        return out


@pytest.fixture
def data(held: Callable[[Tensor, Tensor], Any]) -> Any:
    generator = torch.Generator().manual_seed(5)
    inputs = torch.randn(12, 5, generator=generator, dtype=torch.float64)
    return held(inputs, torch.randint(0, 3, (12,), generator=generator))


@pytest.fixture
def net() -> Encoder:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Encoder().double()


def shaken(model: Model) -> Model:
    """A global model that is not the client's own last one."""
    generator = torch.Generator().manual_seed(9)
    noise = torch.randn(model.weights.shape, generator=generator, dtype=model.weights.dtype)
    buffers = tuple(b * 1.5 if b.is_floating_point() else b for b in model.buffers)
    return Model(weights=model.weights + 0.3 * noise, buffers=buffers)


SETTINGS: dict[str, Any] = {"epochs": 1, "batch": None, "lr": 0.1}


@pytest.mark.parametrize("mu", [0.7, 5.0])
@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_a_step_follows_the_gradient_of_the_published_loss(
    visits: Visits, data: Any, net: Encoder, mu: float, temperature: float
) -> None:
    received: list[Model] = []

    def between(model: Model) -> Model:
        received.append(shaken(model))
        return received[-1]

    recipe = moon(mu=mu, temperature=temperature, **SETTINGS)
    reports, states, engine = visits(recipe, net, Classification(), data, count=2, between=between)

    def plain(model: Model) -> Encoder:
        module = copy.deepcopy(net)
        module.load_state_dict(engine.state_of(model))
        return module

    current, near, far = plain(received[0]).train(), plain(received[0]).eval(), plain(states[1].previous).eval()
    inputs, targets = data.inputs[data.asked[1]], data.targets[data.asked[1]]
    with seeded_torch(SEED, "network", 0, 1):
        z = current.represent(inputs)
    loss = nn.functional.cross_entropy(current.head(torch.tanh(z)), targets)
    with torch.no_grad():
        z_near, z_far = near.represent(inputs), far.represent(inputs)
    similar = torch.exp(nn.functional.cosine_similarity(z, z_near) / temperature)
    unlike = torch.exp(nn.functional.cosine_similarity(z, z_far) / temperature)
    contrast = -torch.log(similar / (similar + unlike)).mean()
    torch.autograd.backward(loss + mu * contrast)

    moved = engine.layout.named(reports[1].update)
    for name, parameter in current.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(moved[name], -0.1 * parameter.grad, rtol=1e-9, atol=1e-12)
    assert reports[1].loss == pytest.approx(loss.item(), rel=1e-12), "the loss on record is the task's"
    assert reports[1].forward_samples == 2 * 12
    assert reports[0].forward_samples == 0
    # One training pass and nothing else has moved the running statistics.
    for slot, buffer in zip(engine.layout.buffers, reports[1].buffers, strict=True):
        torch.testing.assert_close(buffer, current.get_buffer(slot.name), rtol=1e-12, atol=0)
    for which in ("received", "previous"):
        frozen = dict(engine.frozen(which).named_buffers())
        model = received[0] if which == "received" else states[1].previous
        for slot, buffer in zip(engine.layout.buffers, model.buffers, strict=True):
            assert torch.equal(frozen[slot.name], buffer)


def ends(visits: Visits, data: Any, net: Encoder, recipe: Recipe, count: int) -> tuple[Tensor, tuple[Tensor, ...]]:
    reports, _, engine = visits(recipe, net, Classification(), data, count=count, between=shaken)
    return engine.weights, reports[-1].buffers


def test_a_first_visit_has_no_last_model_and_is_plain(visits: Visits, data: Any, net: Encoder) -> None:
    settings = {**SETTINGS, "epochs": 3}
    mine, plain = ends(visits, data, net, moon(mu=5.0, **settings), 1), ends(visits, data, net, fedavg(**settings), 1)
    assert torch.equal(mine[0], plain[0])
    mine, plain = ends(visits, data, net, moon(mu=5.0, **settings), 2), ends(visits, data, net, fedavg(**settings), 2)
    assert not torch.equal(mine[0], plain[0])


def test_frozen_passes_disturb_neither_draws_nor_statistics(visits: Visits, data: Any, net: Encoder) -> None:
    """mu=0 runs them and adds nothing: weights, dropout and BatchNorm end as without them, bit for bit."""
    settings = {**SETTINGS, "epochs": 3}
    mine, plain = ends(visits, data, net, moon(mu=0.0, **settings), 3), ends(visits, data, net, fedavg(**settings), 3)
    assert torch.equal(mine[0], plain[0])
    assert all(torch.equal(a, b) for a, b in zip(mine[1], plain[1], strict=True))


@final
class Remembering(nn.Module):
    """Keeps its last activations, as user code does, and a statistic that does not travel."""

    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(5, 4)
        self.head = nn.Linear(4, 3)
        self.register_buffer("count", torch.zeros(()), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        self.count = self.count + 1
        self.last = torch.tanh(self.body(x)) / self.count
        out: Tensor = self.head(self.last)
        return out


def test_frozen_models_start_from_the_models_own_first_values(visits: Visits, data: Any) -> None:
    """Whenever they are made: a copy of the module in training would hold its graph and its counts."""
    net = Remembering().double()
    recipe = moon(mu=1.0, layer="features", **SETTINGS)
    _, _, engine = visits(recipe, net, Classification(), data, count=2, between=shaken)
    assert engine.module.count == 1
    assert engine.frozen("previous").count == 1  # one pass of its own
    assert engine.frozen("received").count == 1
