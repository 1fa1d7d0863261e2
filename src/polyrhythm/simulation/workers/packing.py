"""Values between processes: pickles whose tensors and arrays travel beside them, without a copy more than need be.

A tensor always arrives in memory that begins on a 64-byte border, since kernels may give other bits elsewhere.
"""

from __future__ import annotations

import functools
import io
import mmap
import os
import pickle
import socket
import struct
import tempfile
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

_ALIGNMENT = 64
Part = bytes | bytearray | memoryview
Board = tuple[int, Tensor] | None
"""A vector that the other end has already, and under which number."""
Lent = Mapping[int, tuple[int, int]]
"""Memory that the other end will have, too: its number and its bytes, by where it begins here."""


@final
class _Pickler(pickle.Pickler):
    def __init__(
        self, file: io.BytesIO, beside: list[pickle.PickleBuffer], slot: Board, lent: Lent = MappingProxyType({})
    ) -> None:
        super().__init__(file, protocol=5, buffer_callback=beside.append)
        self._lent = lent
        self._number: int = slot[0] if slot else 0
        self._vector: Tensor | None = slot[1] if slot else None

    def persistent_id(self, value: Any) -> Any:
        if value is self._vector and value is not None:
            return self._number
        if self._lent and type(value) is Tensor and (where := self._lent.get(value.data_ptr())) is not None:
            number, size = where
            if value.is_contiguous() and value.numel() * value.element_size() == size:
                return number, value.dtype, tuple(value.shape)
        return None

    def reducer_override(self, value: Any) -> Any:
        return reduced(value)


@final
class _Unpickler(pickle.Unpickler):
    def __init__(
        self, first: Part, beside: Sequence[np.ndarray], slots: Sequence[Tensor], lent: Sequence[np.ndarray] = ()
    ) -> None:
        super().__init__(io.BytesIO(first), buffers=beside)
        self._slots, self._lent = slots, lent

    def persistent_load(self, number: Any) -> Tensor:
        if isinstance(number, tuple):
            where, dtype, shape = number
            return _tensor(self._lent[where], dtype, shape)
        vector: Tensor = self._slots[number]
        return vector


def reduced(value: Any) -> Any:
    """How a tensor travels beside its pickle; `NotImplemented` for anything else."""
    if type(value) is not Tensor or value.requires_grad or value.layout is not torch.strided:
        return NotImplemented
    raw = value.contiguous().reshape(-1).view(torch.uint8).numpy()
    return _tensor, (pickle.PickleBuffer(raw.data), value.dtype, tuple(value.shape))


def _tensor(raw: Any, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    if 0 in shape:
        return torch.empty(shape, dtype=dtype)
    return torch.from_numpy(np.frombuffer(raw, dtype=np.uint8)).view(dtype).reshape(shape)


def pack(value: Any, slot: Board = None, lent: Lent = MappingProxyType({})) -> list[Part]:
    """A value as parts: the pickle, then what lies beside it. What is on the slot, or is lent, is only named."""
    return _packed(functools.partial(_Pickler, lent=lent), value, slot)


def _packed(pickler: Callable[..., pickle.Pickler], value: Any, slot: Board) -> list[Part]:
    file, beside = io.BytesIO(), list[pickle.PickleBuffer]()
    pickler(file, beside, slot).dump(value)
    return [file.getbuffer(), *(buffer.raw() for buffer in beside)]


def unpack(parts: Sequence[Any], slots: Sequence[Tensor] = (), lent: Sequence[np.ndarray] = ()) -> Any:
    """The value of some parts."""
    return _Unpickler(parts[0], parts[1:], slots, lent).load()


SharedSegment = np.ndarray
"""Memory that two processes share, uint8 [n], for what one of them is sending to the other."""

_IN_LANE = 1 << 63


def segments(memory: SharedSegment) -> tuple[SharedSegment, tuple[SharedSegment, SharedSegment]]:
    """A worker's memory as a segment for tasks, and two for reports, which it fills in turn.

    So the driver can send it the next task before it has read the report: that segment is not used again before the
    task after that.
    """
    third = len(memory) // (3 * _ALIGNMENT) * _ALIGNMENT
    return memory[:third], (memory[third : 2 * third], memory[2 * third : 3 * third])


def send(to: socket.socket, value: Any, slot: Board = None, segment: SharedSegment | None = None) -> None:
    """Sends a value: what lies beside its pickle goes through the segment as far as it fits, the rest after it."""
    first, *rest = pack(value, slot)
    sizes, follow, place = [len(first)], list[Part](), 0
    for part in rest:
        end = place + len(part)
        if segment is None or end > len(segment):
            sizes.append(len(part))
            follow.append(part)
        else:
            sizes.append(len(part) | _IN_LANE)
            segment[place:end] = np.frombuffer(part, dtype=np.uint8)
            place = _aligned(end)
    to.sendall(struct.pack(f"<Q{len(sizes)}Q", len(sizes), *sizes) + bytes(first))
    for part in follow:
        to.sendall(part)


@final
class Head(NamedTuple):
    """How a value begins: its pickle, and how much lies beside it, in the segment or behind it on the socket."""

    first: np.ndarray
    sizes: tuple[int, ...]

    @property
    def in_lane(self) -> bool:
        """Whether something lies beside it, and all of that in the segment."""
        return bool(self.sizes) and all(size & _IN_LANE for size in self.sizes)


def head(of: socket.socket) -> Head:
    """Receives the head of a value.

    Raises:
        EOFError: the other end is gone.
    """
    first, *sizes = _sizes(lambda count: bytes(_exactly(of, count)))
    return Head(_exactly(of, first), tuple(sizes))


def receive(
    of: socket.socket, slots: Sequence[Tensor] = (), segment: SharedSegment | None = None, *, begun: Head | None = None
) -> Any:
    """Receives a value, or what is left of one. Nothing of it stays in the segment.

    Raises:
        EOFError: the other end is gone.
    """
    begun = begun or head(of)
    parts, place = [begun.first], 0
    for size in begun.sizes:
        if size & _IN_LANE:
            assert segment is not None
            part = torch.empty(size ^ _IN_LANE, dtype=torch.uint8).numpy()
            part[:] = segment[place : place + len(part)]
            place = _aligned(place + len(part))
        else:
            part = _exactly(of, size)
        parts.append(part)
    return unpack(parts, slots)


def _exactly(of: socket.socket, count: int) -> np.ndarray:
    """So many bytes, in memory of torch's, which is aligned."""
    raw = torch.empty(count, dtype=torch.uint8).numpy()
    view, place = raw.data, 0
    while place < count:
        try:
            read = of.recv_into(view[place:])
        except ConnectionResetError:
            read = 0
        if not read:
            raise EOFError
        place += read
    return raw


def _header(parts: Sequence[Part]) -> bytes:
    return struct.pack(f"<Q{len(parts)}Q", len(parts), *(len(part) for part in parts))


def _sizes(read: Any) -> tuple[int, ...]:
    (count,) = struct.unpack("<Q", read(8))
    return struct.unpack(f"<{count}Q", read(8 * count))


def memory(size: int) -> int:
    """A file descriptor of so much memory, which processes can share."""
    if hasattr(os, "memfd_create"):  # not /dev/shm, which is small in many containers
        place = os.memfd_create("polyrhythm")
    else:
        with tempfile.TemporaryFile() as file:
            place = os.dup(file.fileno())
    os.ftruncate(place, max(size, 1))
    return place


def put(value: Any, lent: Lent = MappingProxyType({})) -> int:
    """Writes a value into memory that processes can share; gives its descriptor. What is lent is only named."""
    pieces, end = _laid_out(pack(value, lent=lent))
    where = memory(end)
    for place, part in pieces:
        view, done = memoryview(part), 0
        while done < len(view):
            done += os.pwrite(where, view[done : done + 2**30], place + done)
    return where


def get(where: int, lent: Sequence[int] = ()) -> Any:
    """Reads a value from such memory. Nothing is copied; whoever writes into its tensors gets pages of its own.

    Args:
        where: its descriptor.
        lent: those of what was only named, in the order of their numbers.
    """
    whole, *others = (
        np.frombuffer(mmap.mmap(number, 0, access=mmap.ACCESS_COPY), dtype=np.uint8) for number in (where, *lent)
    )
    return unrolled(whole, lent=others)


def rolled(value: Any, slot: Board = None, pickler: Callable[..., pickle.Pickler] = _Pickler) -> np.ndarray:
    """A value in one array, uint8 [n]."""
    pieces, end = _laid_out(_packed(pickler, value, slot))
    whole = np.empty(end, dtype=np.uint8)
    for place, part in pieces:
        whole[place : place + len(part)] = np.frombuffer(part, dtype=np.uint8)
    return whole


def _laid_out(parts: Sequence[Part]) -> tuple[list[tuple[int, Part]], int]:
    """What lies where behind one another, each part on a border, and where all of it ends."""
    header = _header(parts)
    places, end = [0], _aligned(len(header))
    for part in parts:
        places.append(end)
        end = _aligned(end + len(part))
    return list(zip(places, [header, *parts], strict=True)), end


def unrolled(whole: np.ndarray, slots: Sequence[Tensor] = (), lent: Sequence[np.ndarray] = ()) -> Any:
    """The value in such an array, which must begin on a border. Nothing is copied."""
    cursor = 0

    def read(count: int) -> bytes:
        nonlocal cursor
        cursor += count
        return bytes(whole[cursor - count : cursor])

    parts = []
    for size in _sizes(read):
        cursor = _aligned(cursor)
        parts.append(whole[cursor : cursor + size])
        cursor += size
    return unpack([bytes(parts[0]), *parts[1:]], slots, lent)


def on_border(array: np.ndarray, *, writable: bool) -> np.ndarray:
    """The array, uint8 [n], or a copy of it in memory that begins on a border and may be written."""
    if array.ctypes.data % _ALIGNMENT == 0 and not writable:
        return array
    copy = torch.empty(len(array), dtype=torch.uint8).numpy()
    copy[:] = array
    return copy


def shared(where: int) -> SharedSegment:
    """Such memory as bytes, which all who map it see change."""
    return np.frombuffer(mmap.mmap(where, 0), dtype=np.uint8)


def board_bytes(size: int, dtype: torch.dtype) -> int:
    """How much memory a slot takes."""
    return max(_ALIGNMENT, _aligned(size * dtype.itemsize))


def slots(where: int, size: int, dtype: torch.dtype) -> list[Tensor]:
    """Such memory as vectors [size], as many as have room."""
    whole, each = shared(where), board_bytes(size, dtype)
    pieces = (whole[place : place + size * dtype.itemsize] for place in range(0, len(whole) - each + 1, each))
    return [torch.from_numpy(piece).view(dtype) for piece in pieces]


def _aligned(place: int) -> int:
    return -(-place // _ALIGNMENT) * _ALIGNMENT
