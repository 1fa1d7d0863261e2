"""Dimensions of tensors as products of axes, of which some turn out to be the same: what `widths` finds, as it goes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

from polyrhythm.base.axes import Along, Joined
from polyrhythm.base.axes import Dim as FoundDim


@final
@dataclass(eq=False)
class Free:
    """An axis that may be found to be another one, a product, or to be kept whole.

    Args:
        name: the parameter in which it was met first.
        size: how many places.
        unit: so many neighbours belong together.
        met: whether two tensors met along it; else nobody reads what is written there.
    """

    name: str
    size: int
    unit: int = 1
    met: bool = False
    bound: Dim | None = None


@final
@dataclass(frozen=True, eq=False)
class Cat:
    """Several dimensions one after the other."""

    dims: tuple[Dim, ...]


Dim = tuple["int | Free | Cat", ...]
Dims = tuple[Dim, ...]


def fixed(size: int) -> Dim:
    """A dimension that is kept whole."""
    return () if size == 1 else (size,)


def long(dim: Dim) -> int:
    """How long a dimension is."""
    return math.prod(_long(factor) for factor in dim)


def _long(factor: int | Free | Cat) -> int:
    if isinstance(factor, int):
        return factor
    return factor.size if isinstance(factor, Free) else sum(map(long, factor.dims))


def resolved(dim: Dim) -> Dim:
    """A dimension in terms of what its axes were found to be; neighbouring numbers are one."""
    found: list[int | Free | Cat] = []
    for factor in dim:
        parts: Dim = (factor,)
        if isinstance(factor, Free) and factor.bound is not None:
            parts = resolved(factor.bound)
        elif isinstance(factor, Cat):
            inner = tuple(map(resolved, factor.dims))
            parts = (Cat(inner),) if any(free_in(part) for part in inner) else fixed(sum(map(long, inner)))
        for part in parts:
            if isinstance(part, int) and found and isinstance(found[-1], int):
                found[-1] *= part
            elif part != 1:
                found.append(part)
    return tuple(found)


def free_in(dim: Dim) -> bool:
    """Whether any of a resolved dimension may be cut."""
    return any(not isinstance(factor, int) for factor in dim)


def axes_in(dim: Dim) -> Iterator[Free]:
    """The axes in a resolved dimension."""
    for factor in dim:
        if isinstance(factor, Free):
            yield factor
        elif isinstance(factor, Cat):
            for part in factor.dims:
                yield from axes_in(resolved(part))


def keep(dim: Dim) -> Dim:
    """Has a dimension kept whole."""
    for axis in list(axes_in(resolved(dim))):
        axis.bound = fixed(axis.size)
    return fixed(long(dim))


def meet(one: Dim, other: Dim) -> None:
    """Has two dimensions of equal length cut alike; where there is no way to, both are kept whole."""
    one, other = resolved(one), resolved(other)
    for axis in (*axes_in(one), *axes_in(other)):
        axis.met = True
    if len(one) == 1 and isinstance(one[0], Free):
        _bind(one[0], other)
    elif len(other) == 1 and isinstance(other[0], Free):
        _bind(other[0], one)
    elif _alike(one, other):
        for a, b in zip(one, other, strict=True):
            if isinstance(a, Cat) and isinstance(b, Cat):
                for x, y in zip(a.dims, b.dims, strict=True):
                    meet(x, y)
            elif not isinstance(a, int) or not isinstance(b, int):
                meet((a,), (b,))
    else:
        keep(one)
        keep(other)


def _alike(one: Dim, other: Dim) -> bool:
    """Whether two dimensions are products of factors of equal lengths, in order."""
    if len(one) != len(other):
        return False
    for a, b in zip(one, other, strict=True):
        if _long(a) != _long(b) or isinstance(a, Cat) != isinstance(b, Cat):
            return False
        if isinstance(a, Cat) and isinstance(b, Cat) and list(map(long, a.dims)) != list(map(long, b.dims)):
            return False
    return True


def _bind(axis: Free, dim: Dim) -> None:
    """Says what an axis is."""
    if dim == (axis,):
        return
    if axis in set(axes_in(dim)):  # an axis inside itself, once flattened
        keep(dim)
        return
    axis.bound = dim
    if axis.unit > 1:
        in_units(dim, axis.unit)


def in_units(dim: Dim, unit: int) -> None:
    """Has so many neighbours of a dimension stay together."""
    dim = resolved(dim)
    if not free_in(dim):
        return
    if len(dim) == 1 and isinstance(dim[0], Cat) and all(long(part) % unit == 0 for part in dim[0].dims):
        for part in dim[0].dims:
            in_units(part, unit)
        return
    inner = dim[-1] if isinstance(dim[-1], int) else 1
    axis = dim[-2] if len(dim) == 2 and inner > 1 else dim[0]
    if not isinstance(axis, Free) or len(dim) != 1 + (inner > 1) or (unit % inner and inner % unit):
        keep(dim)
    else:
        axis.unit = math.lcm(axis.unit, max(1, unit // inner))
        if axis.unit >= axis.size:
            keep(dim)


def regrouped(dims: Dims, shape: Sequence[int]) -> Dims:
    """The dimensions of a tensor after it was given another shape, with its elements in their order."""
    left = [factor for dim in dims for factor in resolved(dim)]
    found: list[Dim] = []
    for size in shape:
        own: list[int | Free | Cat] = []
        rest = size
        while rest > 1:
            factor = left.pop(0)
            if isinstance(factor, int):
                part = math.gcd(factor, rest)
                if part == 1:
                    return ()
                own.append(part)
                if factor > part:
                    left.insert(0, factor // part)
                rest //= part
            elif rest % _long(factor):
                return ()  # an axis in two
            else:
                own.append(factor)
                rest //= _long(factor)
        found.append(tuple(own))
    return tuple(found)


def frozen(dim: Dim, numbers: dict[Free, int]) -> FoundDim:
    """A dimension as it was found to be, with the axes by their numbers."""

    def one(factor: int | Free | Cat) -> int | Along | Joined:
        if isinstance(factor, int):
            return factor
        if isinstance(factor, Free):
            return Along(numbers[factor])
        return Joined(tuple(frozen(part, numbers) for part in factor.dims))

    return tuple(map(one, resolved(dim)))
