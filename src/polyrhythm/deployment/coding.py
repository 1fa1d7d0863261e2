"""Vectors in fewer bytes, without losing a bit: for updates that a recipe has compressed already.

What a compression leaves of an update is a vector of the model's dtype, in which most entries are zero (`sparse`) or
every parameter has few different values (`levels`). Which of them pays is read off the vector; else it stays `plain`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from polyrhythm.base.vectors import Spans

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_LEVELS = 256  # that one byte can tell apart


class Uncodable(ValueError):
    """Arrays that are no code of the vector that was announced; says why."""


def bits(tensor: Tensor) -> Tensor:
    """A tensor's elements as whole numbers of the same width, [n]: equal numbers, equal bits."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(_BITS[tensor.element_size()])


def encode(vector: Tensor, spans: Spans = ()) -> tuple[str, list[np.ndarray]]:
    """The name of a code, and the arrays in it.

    Args:
        vector: [P].
        spans: (offset, size) of each parameter in it; what lies between them is zero.
    """
    flat = bits(vector)
    places = flat.nonzero()[:, 0]
    if len(places) * (4 + flat.element_size()) < flat.numel() * flat.element_size() and flat.numel() < 2**31:
        return "sparse", [places.to(torch.int32).numpy(), flat[places].numpy()]
    found = _levels(flat, spans)
    return ("plain", [flat.numpy()]) if found is None else ("levels", found)


def _levels(flat: Tensor, spans: Spans) -> list[np.ndarray] | None:
    """The values of each parameter, how many they are, and which of them each entry is; None if that does not pay."""
    values, codes, whole, covered = list[np.ndarray](), list[np.ndarray](), flat.numpy(), torch.zeros_like(flat)
    for offset, size in spans:
        part = whole[offset : offset + size]
        if len(np.unique(part[: 16 * _LEVELS])) > _LEVELS:
            return None
        found, which = np.unique(part, return_inverse=True)
        if len(found) > _LEVELS:
            return None
        values.append(found)
        codes.append(which.astype(np.uint8))
        covered.narrow(0, offset, size).copy_(flat.narrow(0, offset, size))
    if not spans or not torch.equal(covered, flat):
        return None
    counts = np.array([len(found) for found in values], dtype=np.int32)
    made = [np.concatenate(values), counts, np.concatenate(codes)]
    return made if sum(a.nbytes for a in made) < flat.numel() * flat.element_size() else None


def decode(
    code: str, arrays: Sequence[np.ndarray], dtype: torch.dtype, shape: Sequence[int], spans: Spans = ()
) -> Tensor:
    """The tensor, in memory of its own.

    Raises:
        Uncodable: the arrays are no such code.
    """
    if code not in _READERS:
        raise Uncodable(f"no code is called {code!r}")
    tensor = torch.zeros(tuple(shape), dtype=dtype)
    if not tensor.numel():
        if any(array.size for array in arrays):
            raise Uncodable("numbers for a tensor that has none")
        return tensor
    for array in arrays:
        if array.ndim != 1 or array.dtype.kind not in "iu" or not array.dtype.isnative:
            raise Uncodable(f"an array of {array.dtype} with {array.ndim} dimensions, not one of whole numbers")
    try:
        _READERS[code](tensor.reshape(-1).view(_BITS[tensor.element_size()]).numpy(), arrays, spans)
    except Uncodable:
        raise
    except (ValueError, IndexError) as error:
        raise Uncodable(f"a {code} code that does not fit {tuple(shape)}: {error}") from error
    return tensor


def _same(array: np.ndarray, dtype: np.dtype | type, length: int | None = None) -> np.ndarray:
    if array.dtype != dtype or (length is not None and len(array) != length):
        raise Uncodable(f"{len(array)} numbers of {array.dtype}, not {length} of {np.dtype(dtype)}")
    return array


def _read_plain(flat: np.ndarray, arrays: Sequence[np.ndarray], spans: Spans) -> None:
    (given,) = arrays
    flat[:] = _same(given, flat.dtype, len(flat))


def _read_sparse(flat: np.ndarray, arrays: Sequence[np.ndarray], spans: Spans) -> None:
    places, given = arrays
    _same(places, np.int32, len(given))
    if len(places) and (int(places.min()) < 0 or int(places.max()) >= len(flat)):
        raise Uncodable("a place that is not in the vector")
    flat[places] = _same(given, flat.dtype)


def _read_levels(flat: np.ndarray, arrays: Sequence[np.ndarray], spans: Spans) -> None:
    values, counts, codes = arrays
    _same(values, flat.dtype)
    _same(counts, np.int32, len(spans))
    _same(codes, np.uint8, sum(size for _, size in spans))
    if int(counts.sum(dtype=np.int64)) != len(values) or (len(counts) and int(counts.min()) < 0):
        raise Uncodable("other numbers of values than were announced")
    place = level = 0
    for (offset, size), count in zip(spans, counts.tolist(), strict=True):
        flat[offset : offset + size] = values[level : level + count][codes[place : place + size]]
        place, level = place + size, level + count


_READERS = {"plain": _read_plain, "sparse": _read_sparse, "levels": _read_levels}
CODES = frozenset(_READERS)
