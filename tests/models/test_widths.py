"""Widths of a module: which places are cut together, and that a copy that is cut is a part of the whole."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from polyrhythm.base.axes import Axes, Narrower
from polyrhythm.base.errors import UserError
from polyrhythm.base.flat_model import FlatModel
from polyrhythm.models.catalogue import find
from polyrhythm.models.narrowing import narrow
from polyrhythm.models.widths import axes_of


class Recurrent(nn.Module):
    """Embedding, two layers of a kind in both directions, and a linear layer."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.embedding, self.cells = nn.Embedding(9, 6), kind(6, 8, 2, batch_first=True, bidirectional=True)
        self.output = nn.Linear(16, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        outputs: Tensor = self.output(self.cells(self.embedding(tokens))[0][:, -1])
        return outputs


class Branches(nn.Module):
    """A filter for each channel beside plain ones, joined, normalised in groups, and a shortcut around a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.each = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1, groups=8)
        self.plain, self.norm = nn.Conv2d(8, 8, 1), nn.GroupNorm(6, 24)
        self.inner, self.scale = nn.Conv2d(24, 24, 3, padding=1), nn.Parameter(torch.linspace(1, 2, 24).view(24, 1, 1))
        self.output = nn.Linear(24 * 16, 5)

    def forward(self, images: Tensor) -> Tensor:
        hidden = torch.relu(self.first(images))
        hidden = self.norm(torch.cat([self.each(hidden), self.plain(hidden)], 1))
        hidden = hidden + self.scale * torch.tanh(self.inner(hidden))
        outputs: Tensor = self.output(hidden.flatten(1))
        return outputs


class Tied(nn.Module):
    """An embedding that is the output layer as well."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.layer = nn.Embedding(9, 6), nn.Linear(6, 6)
        self.output = nn.Linear(6, 9, bias=False)
        self.output.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        outputs: Tensor = self.output(torch.tanh(self.layer(self.embedding(tokens[:, 0]))))
        return outputs


def image(size: int = 4) -> Tensor:
    return torch.linspace(-1, 1, 2 * 3 * size * size).view(2, 3, size, size)


TOKENS = torch.arange(10).view(2, 5) % 9
MODELS: dict[str, tuple[Callable[[], nn.Module], Tensor, list[tuple[int, int]]]] = {
    "mlp": (
        lambda: nn.Sequential(
            nn.Flatten(), nn.Linear(48, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 9)
        ),
        image(),
        [(16, 1)] * 2,
    ),
    "lenet5": (lambda: find("lenet5")((3, 32, 32), 10), image(32), [(6, 1), (16, 1), (120, 1), (84, 1)]),
    "char-lstm": (lambda: find("char-lstm")((5,), 9, hidden=12), TOKENS, [(8, 1), (12, 1)]),
    "branches": (Branches, image(), [(8, 2)]),
    "tied": (Tied, TOKENS, [(6, 1)]),
    "LSTM": (lambda: Recurrent(nn.LSTM), TOKENS, [(6, 1), (8, 1)]),
    "GRU": (lambda: Recurrent(nn.GRU), TOKENS, [(6, 1), (8, 1)]),
    "RNN": (lambda: Recurrent(nn.RNN), TOKENS, [(6, 1), (8, 1)]),
    "layer norm": (
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(48, 12), nn.LayerNorm(12), nn.GELU(), nn.Linear(12, 3)),
        image(),
        [(12, 1)],
    ),
    "batch norm": (
        lambda: nn.Sequential(nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(128, 3)),
        image(),
        [(8, 1)],
    ),
}


def made(name: str) -> tuple[nn.Module, Tensor, Axes]:
    torch.manual_seed(0)
    module, inputs = MODELS[name][0](), MODELS[name][1]
    return module, inputs, axes_of(module, inputs)


def some(axes: Axes) -> Narrower:
    """Every second unit of each axis."""
    portion = axes.portion([np.arange(0, axis.units, 2) for axis in axes.axes])
    assert portion is not None
    return portion


@pytest.mark.parametrize("name", MODELS)
def test_places_that_belong_together_are_found(name: str) -> None:
    axes = made(name)[2]
    found = [(axis.size, axis.unit) for axis in axes.axes]
    if name == "branches":  # as many widths as it has, of which some come in units
        assert {unit for _, unit in found} <= {1, 2, 4}
    else:
        assert sorted(found) == sorted(MODELS[name][2])


@pytest.mark.parametrize("name", [n for n in MODELS if n != "layer norm"])
def test_a_cut_copy_computes_what_the_whole_does_with_the_other_units_silenced(name: str) -> None:
    """Nobody reads what is left out: with all weights out of it set to zero, the whole gives the same."""
    module, inputs, axes = made(name)
    portion, flat = some(axes), FlatModel(module)
    vector, buffers = flat.weights.clone(), flat.buffers()
    readers = silenced(axes, portion, vector)
    flat.load(readers, buffers)
    whole, cut = flat.module.eval()(inputs), narrow(module, portion).eval()(inputs)
    assert torch.allclose(whole, cut, atol=1e-5)


def silenced(axes: Axes, portion: Narrower, vector: Tensor) -> Tensor:
    """The weights with zeros wherever some of a place's axes are left out."""
    return torch.where(portion.mask, vector, 0.0)


@pytest.mark.parametrize("name", MODELS)
def test_vectors_are_cut_as_modules_are(name: str) -> None:
    module, _, axes = made(name)
    portion = some(axes)
    cut, vector = FlatModel(narrow(module, portion)), FlatModel(module).weights
    assert cut.layout == portion.layout
    assert torch.equal(cut.weights, portion.taken(vector))
    assert torch.equal(portion.put(portion.taken(vector), torch.zeros_like(vector)), vector * portion.mask)
    assert int(portion.mask.sum()) == portion.layout.parameters
    taken = portion.taken_buffers(FlatModel(module).buffers())
    assert all(torch.equal(a, b) for a, b in zip(cut.buffers(), taken, strict=True))


def test_halves_of_published_networks_are_about_a_quarter() -> None:
    module = find("lenet5")((1, 28, 28), 10)
    axes = axes_of(module, torch.zeros(2, 1, 28, 28) + torch.linspace(0, 1, 28))
    share = [axes.portion([range(-(-a.units // n)) for a in axes.axes]) for n in (2, 4, 8)]
    assert [round(p.share, 2) for p in share if p is not None] == [0.26, 0.07, 0.02]


class HardCoded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(48, 16), nn.Linear(16, 3)

    def forward(self, images: Tensor) -> Tensor:
        outputs: Tensor = self.second(self.first(images.flatten(1)).view(-1, 16))
        return outputs


class Fourier(HardCoded):
    def forward(self, images: Tensor) -> Tensor:
        outputs: Tensor = self.second(torch.fft.fft(self.first(images.flatten(1))).real)
        return outputs


class Positions(HardCoded):
    """Each unit is something else than the next: what is linear in its place is no width."""

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.first(images.flatten(1))
        outputs: Tensor = self.second(hidden * torch.arange(16.0) + hidden.detach().numpy().sum() * 0)
        return outputs


@pytest.mark.parametrize(
    ("module", "found"),
    [
        (HardCoded(), "with half of its units it fails"),
        (Fourier(), "what fft_fft does to widths is not known"),
        (nn.Sequential(nn.Flatten(), nn.Linear(48, 3)), "no width in it lies between two layers"),
        (
            nn.Sequential(nn.Flatten(2), nn.Linear(16, 8), nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)),
            "attention, whose heads",
        ),
    ],
)
def test_what_cannot_be_followed_is_refused_by_name(module: nn.Module, found: str) -> None:
    with pytest.raises(UserError, match=found):
        axes_of(module, image())


def test_a_place_with_a_meaning_of_its_own_is_kept_whole() -> None:
    """A plain tensor along a width has a number for each place, so nothing there can be left out."""
    with pytest.raises(UserError, match="no width"):
        axes_of(Positions(), image())


def test_looking_leaves_the_module_and_the_generators_as_they_were() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(48, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, 3))
    before = {name: value.clone() for name, value in module.state_dict().items()}
    torch.manual_seed(3)
    state = torch.get_rng_state()
    axes_of(module.train(), image())
    assert torch.equal(state, torch.get_rng_state())
    assert module.training
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())


def test_layers_that_were_cut_are_scaled_before_their_norm_and_in_training_alone() -> None:
    """By 1 / r after the layer; the output layer, whose rows are whole, is not. BatchNorm undoes it, up to epsilon."""
    inputs = torch.linspace(-1, 1, 12).view(3, 4)
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6, eps=0.5), nn.ReLU(), nn.Linear(6, 3))
    portion = some(axes_of(plain, inputs))
    cut, scaled = narrow(plain, portion).train(), narrow(plain, portion, 4.0).train()
    by_hand = cut[3](cut[2](cut[1](4.0 * cut[0](inputs))))
    assert torch.equal(scaled(inputs), by_hand)
    assert not torch.allclose(scaled(inputs), cut(inputs), atol=1e-3)
    assert torch.equal(scaled.eval()(inputs), cut.eval()(inputs))
    assert torch.equal(narrow(plain, portion, 1.0).train()(inputs), cut.train()(inputs))
    normed = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6, eps=1e-12), nn.ReLU(), nn.Linear(6, 3))
    portion = some(axes_of(normed, inputs))
    one, other = (narrow(normed, portion, scale).train()(inputs) for scale in (1.0, 4.0))
    assert torch.allclose(one, other, atol=1e-5)
