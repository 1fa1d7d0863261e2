"""Models with several exits: blocks one after the other, and behind each a head of its own.

Whatever module has two lists of equal length, `blocks` and `exits`, and gives the mean of what its exits give, can be
cut in depth: a copy with the first of both is a model of the same kind. What is in neither list, such as a stem before
the first block, belongs to all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from polyrhythm.base.depths import Depths
from polyrhythm.base.errors import UserError
from polyrhythm.base.flat_model import FlatModel
from polyrhythm.base.module_copies import copy_of
from polyrhythm.base.streams import seeded_torch
from polyrhythm.base.vectors import Layout
from polyrhythm.models.calling import outputs_in

_CLOSE = 1e-5
"""Of the outputs' size: by how much the mean of the exits may differ from the model's outputs, in float32."""


class WithExits(nn.Module):
    """Blocks one after the other, and behind each a head; it gives the mean of what the heads give.

    Args:
        blocks: what each reads is what the one before it gives.
        exits: the head behind each block.
    """

    def __init__(self, blocks: Sequence[nn.Module], exits: Sequence[nn.Module]) -> None:
        super().__init__()
        self.blocks, self.exits = nn.ModuleList(blocks), nn.ModuleList(exits)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden, given = inputs, []
        for block, head in zip(self.blocks, self.exits, strict=True):
            hidden = block(hidden)
            given.append(head(hidden))
        return torch.stack(given).mean(0) if len(given) > 1 else given[0]


def cut_short(module: nn.Module, depth: int) -> nn.Module:
    """A copy of a module that has its first exits only."""
    copied = copy_of(module)
    for name in ("blocks", "exits"):
        setattr(copied, name, getattr(copied, name)[:depth])
    return copied


@contextmanager
def watched(module: nn.Module) -> Iterator[list[Tensor]]:
    """Collects what the exits of a module give in a pass inside of the block, in order."""
    given: list[Tensor] = []
    hooks = [head.register_forward_hook(lambda *seen: given.append(seen[-1])) for head in module.exits]  # type: ignore[union-attr]
    try:
        yield given
    finally:
        for hook in hooks:
            hook.remove()


def depths_of(module: nn.Module, inputs: Tensor) -> Depths:
    """The exits of a module, and what belongs to each.

    Args:
        module: the model; copied, never changed.
        inputs: two samples or more, as a batch.

    Raises:
        UserError: it has no exits, gives something else than the mean over them, or cannot be cut behind one.
    """
    blocks, exits = getattr(module, "blocks", None), getattr(module, "exits", None)
    if not isinstance(blocks, nn.ModuleList) or not isinstance(exits, nn.ModuleList):
        raise _refusal(module, "it has no lists of modules `blocks` and `exits`")
    if len(blocks) != len(exits) or not len(exits):
        raise _refusal(module, f"it has {len(blocks)} blocks and {len(exits)} exits")
    flat = FlatModel(module)
    layout, count = flat.layout, len(exits)
    found = Depths(
        layout,
        count,
        tuple(_depth(s.name) for s in layout.segments),
        tuple(_depth(s.name) for s in layout.buffers),
    )
    whole = _given(module, inputs)
    for depth in range(1, count + 1):
        _compare(module, cut_short(module, depth), found, depth, whole[:depth], inputs)
    return found


def _depth(name: str) -> int:
    """From which depth on a tensor is there."""
    parts = name.split(".")
    return int(parts[1]) + 1 if parts[0] in ("blocks", "exits") else 1


def _compare(
    module: nn.Module, cut: nn.Module, found: Depths, depth: int, wanted: Sequence[Tensor], inputs: Tensor
) -> None:
    """Goes on if a copy that is cut short has the tensors of its depth, and gives the mean of its exits."""
    portion, own = found.portion(depth), FlatModel(cut).layout
    layout = found.layout if portion is None else portion.layout
    names, there = _names(layout), _names(own)
    if there != names:
        odd = sorted(set(names) ^ set(there))
        raise _refusal(module, f"cut behind exit {depth} it has other parameters: {', '.join(odd[:3])}")
    try:
        with seeded_torch(0, "init", "exits"), torch.no_grad():
            outputs: Tensor = outputs_in(cut.eval()(inputs)).double()
    except Exception as error:  # whatever a user's own forward makes of it
        raise _refusal(module, f"cut behind exit {depth} it fails: {type(error).__name__}: {error}") from error
    mean = torch.stack(list(wanted)).mean(0)
    scale = float(mean.abs().max()) or 1.0
    if outputs.shape != mean.shape or not torch.allclose(outputs, mean, rtol=0.0, atol=_CLOSE * scale):
        raise _refusal(module, f"cut behind exit {depth} it gives something else than the mean of what its exits give")


def _names(layout: Layout) -> list[str]:
    return [*(s.name for s in layout.segments), *(s.name for s in layout.buffers)]


def _given(module: nn.Module, inputs: Tensor) -> list[Tensor]:
    """What each exit gives for a batch."""
    copied = copy_of(module).eval()
    with seeded_torch(0, "init", "exits"), torch.no_grad(), watched(copied) as given:
        copied(inputs)
    count = len(copied.exits)  # type: ignore[arg-type]
    if len(given) != count or any(not isinstance(z, Tensor) or z.shape != given[0].shape for z in given):
        raise _refusal(module, f"in a pass it runs {len(given)} of {count} exits, or they give unlike outputs")
    return [z.double() for z in given]


def _refusal(module: nn.Module, reason: str) -> UserError:
    return UserError(
        f"{type(module).__name__} cannot be cut in depth: {reason}",
        expected="a model with exits: lists `blocks` and `exits`, nn.ModuleList of equal length, and the mean of "
        "exits[i](blocks[i](…blocks[0](inputs))) as its outputs",
        why="a client that trains the first blocks needs a head behind each of them",
        fix="use mlp-exits or resnet18-exits, a model of your own with these lists, or a method that cuts in width",
    )
