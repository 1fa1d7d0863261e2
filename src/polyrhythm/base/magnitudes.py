"""Magnitudes of a model's weights: portions that hold the largest ones, wherever they lie."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from polyrhythm.base.frozen import cached
from polyrhythm.base.portions import Cuts, Portion
from polyrhythm.base.vectors import Layout, Spans, laid_out


@final
@dataclass(frozen=True, eq=False)
class Magnitudes(Cuts):
    """Weights of a model that are ranked by their size.

    Args:
        layout: of the whole model.
        ranked: which parameters these are, as parts of the vector; all others are held by everybody.
    """

    layout: Layout
    ranked: Spans

    @cached
    def places(self) -> Tensor:
        """Where they lie in a vector [P], in order, int64."""
        return torch.cat([torch.arange(offset, offset + size) for offset, size in self.ranked])

    def count(self, share: float) -> int:
        """How many a share of them is."""
        return max(1, int(share * len(self.places) + 1e-9))

    def portion(self, held: Tensor, threshold: float) -> Sparser:
        """The portion that holds some of them, which are true in `held`, bool [of them], and all others."""
        mask = torch.zeros(self.layout.size, dtype=torch.bool)
        for segment in self.layout.segments:
            mask.narrow(0, segment.offset, segment.size).fill_(True)
        mask[self.places] = held
        return Sparser(self, mask, threshold)

    def __reduce__(self) -> tuple[Any, ...]:
        return Magnitudes, (self.layout, self.ranked)


@final
@dataclass(frozen=True, eq=False)
class Sparser(Portion):
    """A portion that holds single weights, each parameter's in one row.

    Args:
        magnitudes: the model's.
        held: whether each coordinate is held, bool [P].
        threshold: θ, which a ranked weight has to reach to be used.
    """

    magnitudes: Magnitudes
    held: Tensor
    threshold: float

    @property
    def whole(self) -> Layout:
        return self.magnitudes.layout

    @property
    def mask(self) -> Tensor:
        return self.held

    @property
    def key(self) -> int:
        return int(self.places[0].numel())

    @property
    def index_bytes(self) -> int:
        return -(-len(self.magnitudes.places) // 8)

    @property
    def index(self) -> Tensor:
        return torch.from_numpy(np.packbits(self.held[self.magnitudes.places].numpy()))

    def indexed(self, index: Tensor) -> Sparser | None:
        if index.dtype != torch.uint8 or index.shape != (self.index_bytes,):
            return None
        ranked = torch.from_numpy(np.unpackbits(index.numpy(), count=len(self.magnitudes.places)).astype(bool))
        same = self.magnitudes.portion(ranked, self.threshold)
        return same if same.key == self.key and torch.equal(same.index, index) else None

    @cached
    def layout(self) -> Layout:
        whole = self.whole
        own = [int(s.of(self.held).sum()) for s in whole.segments]
        parts = [(s.name, (size,), s.dtype) for s, size in zip(whole.segments, own, strict=True)]
        return dataclasses.replace(laid_out(parts, whole.buffers, whole.dtype), head=whole.head, norms=whole.norms)

    @cached
    def places(self) -> tuple[Tensor, Tensor]:
        here = np.concatenate([np.arange(s.offset, s.offset + s.size) for s in self.layout.segments])
        return self.held.nonzero()[:, 0], torch.from_numpy(here)

    @cached
    def ranked(self) -> Tensor:
        """Whether each of its own elements is one that has to reach the threshold, bool [Q]."""
        ranked = torch.zeros(self.whole.size, dtype=torch.bool)
        ranked[self.magnitudes.places] = True
        return self.taken(ranked)
