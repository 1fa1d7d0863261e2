"""Widths of a model: which places in its parameters are cut together, and portions that keep some of them.

Widths are cut along *axes*: places in parameters that belong together, such as the rows of one layer, the statistics of
the norm behind it and the columns of the next layer. A portion keeps some units of each axis, and so is a model of the
same kind, only narrower.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from polyrhythm.base.frozen import cached
from polyrhythm.base.portions import Cuts, Portion
from polyrhythm.base.vectors import Layout, Slot, laid_out


@final
@dataclass(frozen=True)
class Axis:
    """Places that are kept or left out together.

    Args:
        name: the parameter in which they begin, for words.
        size: n, how many there are.
        unit: so many neighbours are kept or left out as one: the channels of a group of GroupNorm.
    """

    name: str
    size: int
    unit: int = 1

    @property
    def units(self) -> int:
        """How many units there are."""
        return self.size // self.unit


@final
@dataclass(frozen=True)
class Along:
    """A factor of a dimension that runs along an axis, by its number."""

    axis: int


@final
@dataclass(frozen=True)
class Joined:
    """A factor that is several dimensions one after the other."""

    dims: tuple[Dim, ...]


Dim = tuple["int | Along | Joined", ...]
"""A dimension of a tensor as a product, the last factor running fastest; a number is kept whole.

A convolution's channels flattened, [C, H * W], are `(Along(axis of C), H * W)`."""


@final
@dataclass(frozen=True, eq=False)
class Axes(Cuts):
    """Axes of a model, and where they run.

    Args:
        axes: all of them.
        layout: of the whole model.
        parameters: of each segment, each of its dimensions.
        buffers: of each travelling buffer.
    """

    axes: tuple[Axis, ...]
    layout: Layout
    parameters: tuple[tuple[Dim, ...], ...]
    buffers: tuple[tuple[Dim, ...], ...]

    def portion(self, kept: Sequence[Sequence[int] | np.ndarray]) -> Narrower | None:
        """The portion that keeps these units of each axis; None if that is all of them."""
        units = tuple(np.unique(np.asarray(some, dtype=np.int64)) for some in kept)
        if all(len(some) == axis.units for some, axis in zip(units, self.axes, strict=True)):
            return None
        return Narrower(self, units)

    def __reduce__(self) -> tuple[Any, ...]:
        return _axes, (self.axes, self.layout, self.parameters, self.buffers)


@functools.lru_cache(maxsize=8)
def _axes(*parts: Any) -> Axes:
    """The same object for equal parts, so that whatever is kept by it is found again."""
    return Axes(*parts)


@final
@dataclass(frozen=True, eq=False)
class Narrower(Portion):
    """A portion that keeps some units of each axis.

    Args:
        axes: the model's.
        kept: of each axis the units that are kept, int64, in order.
    """

    axes: Axes
    kept: tuple[np.ndarray, ...]

    @property
    def whole(self) -> Layout:
        return self.axes.layout

    @property
    def key(self) -> tuple[int, ...]:
        """How many units of each axis are kept."""
        return tuple(map(len, self.kept))

    @cached
    def layout(self) -> Layout:
        return narrowed(self.axes, self.key)

    @cached
    def places(self) -> tuple[Tensor, Tensor]:
        there, here = list[np.ndarray](), list[np.ndarray]()
        pairs = zip(self.axes.layout.segments, self.layout.segments, self.axes.parameters, strict=True)
        for whole, own, dims in pairs:
            there.append(whole.offset + self.elements(whole.shape, dims))
            here.append(own.offset + np.arange(own.size, dtype=np.int64))
        return torch.from_numpy(np.concatenate(there)), torch.from_numpy(np.concatenate(here))

    @cached
    def buffer_places(self) -> tuple[Tensor | None, ...]:
        pairs = zip(self.axes.layout.buffers, self.axes.buffers, strict=True)
        found = [(math.prod(slot.shape), self.elements(slot.shape, dims)) for slot, dims in pairs]
        return tuple(None if len(where) == size else torch.from_numpy(where) for size, where in found)

    def elements(self, shape: tuple[int, ...], dims: tuple[Dim, ...]) -> np.ndarray:
        """Which elements of a tensor it has, int64."""
        places = np.zeros(1, dtype=np.int64)
        for size, dim in zip(shape, dims, strict=True):
            places = (places[:, None] * size + self._along(dim)).reshape(-1)
        return places

    def _along(self, dim: Dim) -> np.ndarray:
        """Which places of a dimension it has, int64."""
        places = np.zeros(1, dtype=np.int64)
        for factor in dim:
            size, inner = self._factor(factor)
            places = (places[:, None] * size + inner).reshape(-1)
        return places

    def _factor(self, factor: int | Along | Joined) -> tuple[int, np.ndarray]:
        if isinstance(factor, int):
            return factor, np.arange(factor, dtype=np.int64)
        if isinstance(factor, Along):
            axis = self.axes.axes[factor.axis]
            kept = self.kept[factor.axis][:, None] * axis.unit + np.arange(axis.unit, dtype=np.int64)
            return axis.size, kept.reshape(-1)
        sizes = [length(dim, self.axes.axes) for dim in factor.dims]
        starts = [0, *itertools.accumulate(sizes)]
        return sum(sizes), np.concatenate(
            [start + self._along(dim) for start, dim in zip(starts, factor.dims, strict=False)]
        )


def length(dim: Dim, axes: Sequence[Axis], units: Sequence[int] | None = None) -> int:
    """How long a dimension is, with so many units of each axis; with all if None."""
    size = 1
    for factor in dim:
        if isinstance(factor, int):
            size *= factor
        elif isinstance(factor, Along):
            axis = axes[factor.axis]
            size *= axis.size if units is None else units[factor.axis] * axis.unit
        else:
            size *= sum(length(part, axes, units) for part in factor.dims)
    return size


@functools.lru_cache(maxsize=64)
def narrowed(axes: Axes, sizes: tuple[int, ...]) -> Layout:
    """The layout of a model of which so many units of each axis are kept."""

    def shape(dims: tuple[Dim, ...]) -> tuple[int, ...]:
        return tuple(length(dim, axes.axes, sizes) for dim in dims)

    whole = axes.layout
    parts = [(s.name, shape(dims), s.dtype) for s, dims in zip(whole.segments, axes.parameters, strict=True)]
    slots = [Slot(s.name, shape(dims), s.dtype) for s, dims in zip(whole.buffers, axes.buffers, strict=True)]
    return dataclasses.replace(laid_out(parts, slots, whole.dtype), head=whole.head, norms=whole.norms)
