"""Models with exits: what they give, how they are cut, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from polyrhythm.base.errors import UserError
from polyrhythm.base.flat_model import FlatModel
from polyrhythm.models import build
from polyrhythm.models.exits import WithExits, cut_short, depths_of

INPUTS = torch.linspace(-1, 1, 8).view(2, 4)


def module(**changes: Any) -> WithExits:
    """Three blocks with an exit behind each."""
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Tanh()) for _ in range(3)]
    return WithExits(**{"blocks": blocks, "exits": [nn.Linear(4, 3) for _ in range(3)], **changes})


class Own(nn.Module):
    """A user's own, with a stem that all exits stand on."""

    def __init__(self, of_all: bool = True) -> None:
        super().__init__()
        self.stem, self.of_all = nn.Linear(4, 5), of_all
        self.blocks = nn.ModuleList(nn.Linear(5, 5) for _ in range(2))
        self.exits = nn.ModuleList(nn.Linear(5, 3) for _ in range(2))

    def forward(self, inputs: Tensor) -> Tensor:
        hidden, total = self.stem(inputs), torch.zeros(len(inputs), 3)
        for block, head in zip(self.blocks, self.exits, strict=True):
            hidden = torch.relu(block(hidden))
            total = total + head(hidden) if self.of_all else head(hidden)
        return total / (len(self.exits) if self.of_all else 1)


def test_a_model_gives_the_mean_of_its_exits() -> None:
    net = module().eval()
    hidden, given = INPUTS, []
    for block, head in zip(net.blocks, net.exits, strict=True):
        hidden = block(hidden)
        given.append(head(hidden))
    assert torch.allclose(net(INPUTS), (given[0] + given[1] + given[2]) / 3, atol=1e-6)
    assert torch.allclose(cut_short(net, 2)(INPUTS), (given[0] + given[1]) / 2, atol=1e-6)
    assert torch.equal(cut_short(net, 1)(INPUTS), given[0])


@pytest.mark.parametrize("net", [module(), Own()], ids=["WithExits", "a user's own"])
def test_a_portion_has_the_tensors_of_a_model_that_is_cut_short(net: nn.Module) -> None:
    depths, flat = depths_of(net, INPUTS), FlatModel(net)
    for depth in range(1, depths.exits):
        portion, own = depths.portion(depth), FlatModel(cut_short(net, depth))
        assert portion is not None
        assert portion.layout.segments == own.layout.segments
        assert portion.layout.buffers == own.layout.buffers
        assert torch.equal(portion.taken(flat.weights), own.weights)
        for a, b in zip(portion.taken_buffers(flat.buffers()), own.buffers(), strict=True):
            assert torch.equal(a, b)
        back = portion.put(own.weights + 1, flat.weights)
        assert torch.equal(back[~portion.mask], flat.weights[~portion.mask])
        assert torch.equal(portion.taken(back)[portion.places[1]], own.weights[portion.places[1]] + 1)
    assert depths.portion(depths.exits) is None


def twice(linear: nn.Linear) -> list[nn.Module]:
    return [linear, nn.Linear(4, 3), linear]


@pytest.mark.parametrize(
    ("net", "words"),
    [
        (nn.Linear(4, 3), "it has no lists of modules `blocks` and `exits`"),
        (module(exits=[nn.Linear(4, 3)] * 2), "it has 3 blocks and 2 exits"),
        (Own(of_all=False), "cut behind exit 2 it gives something else than the mean of what its exits give"),
        (module(exits=twice(nn.Linear(4, 3))), "in a pass it runs"),
    ],
)
def test_what_cannot_be_cut_in_depth_is_refused_in_words(net: nn.Module, words: str) -> None:
    with pytest.raises(UserError) as caught:
        depths_of(net, INPUTS)
    assert words in str(caught.value)


@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize("size", [8, 28, 32])
def test_the_resnet_of_depthfl_is_cut_behind_each_exit(norm: str, size: int) -> None:
    net = build("resnet18-exits", (1, size, size), 3, norm=norm)
    depths = depths_of(net, torch.linspace(-1, 1, 2 * size * size).view(2, 1, size, size))
    assert depths.exits == 4
    shares = [p.share for d in (1, 2, 3) if (p := depths.portion(d)) is not None]
    assert shares == sorted(shares)
