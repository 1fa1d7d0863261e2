"""Vectors: every model-sized thing (weights, gradient, update, control variate, moment) is one 1-D tensor.

All share a `Layout`, the map between a module's names and places in the vector.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

CPU = torch.device("cpu")
ALIGNMENT = 64  # bytes

RESIDUAL = "lora_residual"
"""How a parameter is called that the server alone changes: what it adds to the weights under an adapter."""

Buffers = tuple[Tensor, ...]

Spans = tuple[tuple[int, int], ...]
"""Parts of a vector, each as (offset, size)."""


@final
@dataclass(frozen=True)
class Segment:
    """Where one parameter lies in the vector. Offset and size count elements; dtype is the module's own."""

    name: str
    shape: tuple[int, ...]
    offset: int
    size: int
    dtype: torch.dtype

    def of(self, vector: Tensor) -> Tensor:
        """This parameter's part of a vector [..., P], as a view [..., *shape]."""
        part = vector.narrow(-1, self.offset, self.size)
        return part.view((*vector.shape[:-1], *self.shape))


@final
@dataclass(frozen=True)
class Slot:
    """One buffer that travels beside the vector."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype


@final
@dataclass(frozen=True)
class Layout:
    """The map between a module's names and one vector of `size` elements, padding included.

    Of the names of parameters and buffers, `head` are those of the last linear layer, and `norms` those of
    normalisation layers.
    """

    segments: tuple[Segment, ...]
    buffers: tuple[Slot, ...]
    dtype: torch.dtype
    size: int
    head: frozenset[str] = frozenset()
    norms: frozenset[str] = frozenset()

    @functools.cached_property
    def parameters(self) -> int:
        """How many trainable numbers there are, without padding."""
        return sum(s.size for s in self.segments)

    @functools.cached_property
    def statistics(self) -> tuple[int, ...]:
        """The places of the buffers of normalisation layers: running statistics, and how many batches they are of."""
        return tuple(place for place, slot in enumerate(self.buffers) if slot.name in self.norms)

    @functools.cached_property
    def vector_bytes(self) -> int:
        """What one vector costs on the wire: its elements in the vector's dtype, without padding."""
        return self.parameters * self.dtype.itemsize

    @functools.cached_property
    def served(self) -> tuple[Segment, ...]:
        """The parameters that clients are sent and never train."""
        return tuple(s for s in self.segments if s.name == RESIDUAL or s.name.endswith(f".{RESIDUAL}"))

    def zeros(self) -> Tensor:
        """A zero vector [P]."""
        return torch.zeros(self.size, dtype=self.dtype)

    def named(self, vector: Tensor) -> dict[str, Tensor]:
        """The vector's parts by parameter name, as views in the vector's dtype."""
        return {s.name: s.of(vector) for s in self.segments}

    def name_at(self, position: int) -> str:
        """The name of the parameter that element `position` belongs to."""
        for segment in self.segments:
            if segment.offset <= position < segment.offset + segment.size:
                return segment.name
        return "padding"


def with_statistics(layout: Layout, buffers: Buffers, others: Buffers) -> Buffers:
    """Buffers, with those of normalisation layers from others."""
    return tuple(others[n] if n in layout.statistics else buffer for n, buffer in enumerate(buffers))


def laid_out(
    parts: Iterable[tuple[str, tuple[int, ...], torch.dtype]], buffers: Iterable[Slot], dtype: torch.dtype
) -> Layout:
    """The layout of parameters, each beginning on a 64-byte border.

    Args:
        parts: of each its name, shape and dtype.
        buffers: beside the vector.
        dtype: of the vector.
    """
    step = ALIGNMENT // dtype.itemsize
    offset, segments = 0, []
    for name, shape, own in parts:
        size = math.prod(shape)
        segments.append(Segment(name, shape, offset, size, own))
        offset += -(-size // step) * step
    return Layout(tuple(segments), tuple(buffers), dtype, offset)


def spans_of(layout: Layout) -> Spans:
    """(offset, size) of each parameter in a vector."""
    return tuple((s.offset, s.size) for s in layout.segments)


def clear_(vector: Tensor, spans: Spans) -> Tensor:
    """Sets parts of a vector [P] to zero, in place, and gives the vector."""
    for offset, size in spans:
        vector.narrow(0, offset, size).zero_()
    return vector


def first_non_finite(layout: Layout, vector: Tensor) -> str | None:
    """The name of the first parameter with a NaN or an infinity in a vector, or None. One read of the vector."""
    if all_finite(vector):
        return None
    bad = (~torch.isfinite(vector)).nonzero()
    return layout.name_at(int(bad[0])) if len(bad) else None


def all_finite(tensor: Tensor) -> bool:
    """Whether there is no NaN and no infinity in a tensor of floats."""
    return has_length(tensor.flatten()) or bool(torch.isfinite(tensor).all())


def has_length(vector: Tensor) -> bool:
    """Whether a vector's square is a finite number; if not, it may have overflowed. The quickest look of torch's."""
    quick = vector.dtype in (torch.float32, torch.float64)  # half precision has no quick product
    return math.isfinite((torch.dot(vector, vector) if quick else vector.sum()).item())


def content_of(tensor: Tensor) -> memoryview:
    """The bytes of a tensor, copied only if they do not lie one after the other."""
    # NumPy has no bfloat16, so look at the bytes; a 0-d tensor has no last dimension to reinterpret.
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data


def bytes_of(value: object, layout: Layout, vector: int | None = None) -> int:
    """What a value costs on the wire: tensors by element, numbers 8 bytes, text by its length; containers add up.

    A vector of the layout costs its parameters only: padding need not travel.

    Args:
        value: it.
        layout: of the vectors.
        vector: what a vector of the layout costs, where a part of it travels.
    """
    if isinstance(value, Tensor):
        if value.shape == (layout.size,) and value.dtype == layout.dtype:
            return layout.vector_bytes if vector is None else vector
        return value.numel() * value.element_size()
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, Mapping):
        return sum(bytes_of(v, layout, vector) for v in value.values())
    if isinstance(value, (list, tuple)):
        return sum(bytes_of(v, layout, vector) for v in value)
    return 0 if value is None else 8
