"""Depths of a model: which parameters belong to which of its exits, and portions that end at one of them."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from polyrhythm.base.frozen import cached
from polyrhythm.base.portions import Cuts, Portion
from polyrhythm.base.vectors import Layout, laid_out

_NOTHING = torch.zeros(0, dtype=torch.int64)


@final
@dataclass(frozen=True, eq=False)
class Depths(Cuts):
    """Exits of a model, and what stands before each.

    Args:
        layout: of the whole model.
        exits: M, how many there are.
        parameters: of each segment, from which depth on it is there, from 1 on.
        buffers: likewise of each travelling buffer.
    """

    layout: Layout
    exits: int
    parameters: tuple[int, ...]
    buffers: tuple[int, ...]

    def portion(self, depth: int) -> Shallower | None:
        """The portion that ends at an exit; None if that is the last one."""
        return None if depth >= self.exits else _shallower(self, depth)

    def __reduce__(self) -> tuple[Any, ...]:
        return Depths, (self.layout, self.exits, self.parameters, self.buffers)


@final
@dataclass(frozen=True, eq=False)
class Shallower(Portion):
    """A portion that has the first exits of a model, and what stands before them.

    Args:
        depths: the model's.
        depth: how many exits it has.
    """

    depths: Depths
    depth: int

    @property
    def whole(self) -> Layout:
        return self.depths.layout

    @property
    def key(self) -> int:
        return self.depth

    @cached
    def segments(self) -> tuple[int, ...]:
        return tuple(n for n, first in enumerate(self.depths.parameters) if first <= self.depth)

    @cached
    def slots(self) -> tuple[int, ...]:
        return tuple(n for n, first in enumerate(self.depths.buffers) if first <= self.depth)

    @cached
    def layout(self) -> Layout:
        whole = self.whole
        own = [whole.segments[n] for n in self.segments]
        made = laid_out([(s.name, s.shape, s.dtype) for s in own], [whole.buffers[n] for n in self.slots], whole.dtype)
        names = {s.name for s in own} | {s.name for s in made.buffers}
        return dataclasses.replace(made, head=whole.head & names, norms=whole.norms & names)

    @cached
    def places(self) -> tuple[Tensor, Tensor]:
        pairs = [(self.whole.segments[n], own) for n, own in zip(self.segments, self.layout.segments, strict=True)]
        there = [torch.arange(s.offset, s.offset + s.size) for s, _ in pairs]
        here = [torch.arange(s.offset, s.offset + s.size) for _, s in pairs]
        return torch.cat(there), torch.cat(here)

    @cached
    def buffer_places(self) -> tuple[Tensor | None, ...]:
        return tuple(None if first <= self.depth else _NOTHING for first in self.depths.buffers)


@functools.lru_cache(maxsize=64)
def _shallower(depths: Depths, depth: int) -> Shallower:
    return Shallower(depths, depth)
