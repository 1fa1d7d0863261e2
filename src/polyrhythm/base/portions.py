"""Portions of a model: which of its coordinates a client holds on a visit, and the vectors of a smaller model of these.

Widths are cut along *axes*: places in parameters that belong together, such as the rows of one layer, the statistics of
the norm behind it and the columns of the next layer. A portion keeps some units of each axis, and so is a model of the
same kind, only narrower.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from polyrhythm.base.frozen import cached
from polyrhythm.base.vectors import Buffers, Layout, Slot, Spans, laid_out


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
class Axes:
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

    def portion(self, kept: Sequence[Sequence[int] | np.ndarray]) -> Portion | None:
        """The portion that keeps these units of each axis; None if that is all of them."""
        units = tuple(np.unique(np.asarray(some, dtype=np.int64)) for some in kept)
        if all(len(some) == axis.units for some, axis in zip(units, self.axes, strict=True)):
            return None
        return Portion(self, units)

    def __reduce__(self) -> tuple[Any, ...]:
        return _axes, (self.axes, self.layout, self.parameters, self.buffers)


@functools.lru_cache(maxsize=8)
def _axes(*parts: Any) -> Axes:
    """The same object for equal parts, so that whatever is kept by it is found again."""
    return Axes(*parts)


@final
@dataclass(frozen=True, eq=False)
class Portion:
    """A portion of a model.

    Args:
        axes: the model's.
        kept: of each axis the units that are kept, int64, in order.
    """

    axes: Axes
    kept: tuple[np.ndarray, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many units of each axis are kept: portions of equal sizes are models of the same shape."""
        return tuple(map(len, self.kept))

    @cached
    def layout(self) -> Layout:
        """Of the smaller model's vectors, [Q]."""
        return narrowed(self.axes, self.sizes)

    @property
    def share(self) -> float:
        """Of the model's parameters."""
        return self.layout.parameters / self.axes.layout.parameters

    @property
    def buffer_bytes(self) -> int:
        """Of its buffers on the wire."""
        return sum(math.prod(s.shape) * s.dtype.itemsize for s in self.layout.buffers)

    @cached
    def places(self) -> tuple[Tensor, Tensor]:
        """Where its parameters' elements lie in a vector [P] of the model and in one [Q] of its own, int64."""
        there, here = list[np.ndarray](), list[np.ndarray]()
        pairs = zip(self.axes.layout.segments, self.layout.segments, self.axes.parameters, strict=True)
        for whole, own, dims in pairs:
            there.append(whole.offset + self.elements(whole.shape, dims))
            here.append(own.offset + np.arange(own.size, dtype=np.int64))
        return torch.from_numpy(np.concatenate(there)), torch.from_numpy(np.concatenate(here))

    @cached
    def mask(self) -> Tensor:
        """Whether each coordinate is held, bool [P]; padding is held by nobody."""
        mask = torch.zeros(self.axes.layout.size, dtype=torch.bool)
        mask[self.places[0]] = True
        return mask

    def taken(self, vector: Tensor) -> Tensor:
        """Its part [Q] of a vector [P]."""
        there, here = self.places
        own = torch.zeros(self.layout.size, dtype=vector.dtype)
        own[here] = vector[there]
        return own

    def put(self, own: Tensor, onto: Tensor) -> Tensor:
        """A copy of a vector [P], with its part [Q] in place."""
        there, here = self.places
        whole = onto.clone()
        whole[there] = own[here].to(whole.dtype)
        return whole

    def spread(self, own: Tensor) -> Tensor:
        """A vector [P] with its part [Q] in place, and zeros elsewhere."""
        there, here = self.places
        whole = torch.zeros(self.axes.layout.size, dtype=own.dtype)
        whole[there] = own[here]
        return whole

    def taken_buffers(self, buffers: Buffers) -> Buffers:
        """Its part of the model's buffers."""
        return tuple(
            buffer if where is None else buffer.reshape(-1)[where].view(slot.shape)
            for buffer, where, slot in zip(buffers, self.buffer_places, self.layout.buffers, strict=True)
        )

    def put_buffers(self, own: Buffers, onto: Buffers) -> Buffers:
        """Copies of the model's buffers, with its part in place."""
        whole = list[Tensor]()
        for buffer, where, before in zip(own, self.buffer_places, onto, strict=True):
            filled = buffer if where is None else before.clone().reshape(-1).index_copy_(0, where, buffer.reshape(-1))
            whole.append(filled.view(before.shape))
        return tuple(whole)

    @cached
    def buffer_places(self) -> tuple[Tensor | None, ...]:
        """Of each buffer, where its part lies in it, int64; None if it has all of it."""
        pairs = zip(self.axes.layout.buffers, self.axes.buffers, strict=True)
        found = [(math.prod(slot.shape), self.elements(slot.shape, dims)) for slot, dims in pairs]
        return tuple(None if len(where) == size else torch.from_numpy(where) for size, where in found)

    def taken_in(self, value: Any) -> Any:
        """A state with its part of every vector [P] in it; all else as it is."""
        return _mapped(value, lambda tensor: self.taken(tensor) if self._whole(tensor) else tensor)

    def put_in(self, own: Any, before: Any) -> Any:
        """A state with every vector [Q] in it put back to where it was; what is held of a vector that is gone is zero.

        Args:
            own: the state, of vectors [Q].
            before: the state, of vectors [P], that it was made from; a vector that is not in it was zero.
        """
        if isinstance(own, Tensor):
            if own.shape != (self.layout.size,):
                return own
            known = isinstance(before, Tensor) and self._whole(before)
            return self.put(own, before) if known else self.spread(own)
        if isinstance(own, Mapping):
            earlier = before if isinstance(before, Mapping) else {}
            put = {key: self.put_in(value, earlier.get(key)) for key, value in own.items()}
            for key, value in earlier.items():
                if key not in own and isinstance(value, Tensor) and self._whole(value):
                    left = value.masked_fill(self.mask, 0.0)
                    put |= {key: left} if bool(left.any()) else {}
            return put
        if isinstance(own, (list, tuple)):
            return type(own)(self.put_in(value, None) for value in own)
        return own

    def spans(self, own: Spans) -> Spans:
        """Parts of the model's vector, from those of its own: the same parameters."""
        names = {(s.offset, s.size): n for n, s in enumerate(self.layout.segments)}
        wholes = self.axes.layout.segments
        return tuple((wholes[names[span]].offset, wholes[names[span]].size) for span in own)

    def _whole(self, tensor: Tensor) -> bool:
        return tensor.shape == (self.axes.layout.size,)

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


def _mapped(value: Any, change: Any) -> Any:
    """A state with every tensor in it changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _mapped(inner, change) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(inner, change) for inner in value)
    return value
