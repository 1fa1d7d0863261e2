"""Vectors that wait in files: of many, a sum needs a part of each at a time, and no more is in memory.

They lie in files without a name, some in each, which are gone once nobody holds one of them. Each is mapped, and so can
be read like any other tensor; what was read of it stays resident until it is let go. A sum reads parts of them instead.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from polyrhythm.base.vectors import content_of

LONG = 2**20
"""Bytes from which on a vector is worth a file."""
READ = 2**26
"""Bytes of vectors in files that are read at a time while they are summed."""
_IN_A_FILE = 16  # so that hundreds of vectors need few open files
_PAGE = mmap.ALLOCATIONGRANULARITY
_PLACES: Any = WeakIdKeyDictionary()  # the file of a tensor, and where it begins there


@final
class Files:
    """Keeps vectors in files.

    Args:
        folder: on whose file system they lie.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._last: _File | None = None

    def put(self, tensor: Tensor) -> Tensor:
        """The same numbers in a file; the tensor itself if it is short, no vector, or the file cannot be written."""
        size = tensor.numel() * tensor.element_size()
        if not size or size < LONG or tensor.dim() != 1 or not tensor.is_cpu or not hasattr(mmap, "MADV_DONTNEED"):
            return tensor
        try:
            if self._last is None or self._last.room < size:
                self._last = _File(self._folder, _IN_A_FILE * _paged(size))
            return self._last.put(tensor, size)
        except OSError:  # a full disk, or a file system that has no such files: then it waits in memory
            self._last = None
            return tensor


@final
class _File:
    """A file without a name, mapped, and filled from its beginning; vectors hold it."""

    def __init__(self, folder: Path, size: int) -> None:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            file.truncate(size)
            self.mapped = mmap.mmap(file.fileno(), size)
            self.handle = os.dup(file.fileno())
        weakref.finalize(self, os.close, self.handle)  # with the last vector
        self._end = 0

    @property
    def room(self) -> int:
        return len(self.mapped) - self._end

    def put(self, tensor: Tensor, size: int) -> Tensor:
        content, done, place = content_of(tensor), 0, self._end
        while done < size:
            done += os.pwrite(self.handle, content[done:], place + done)
        self._end += _paged(size)
        found = torch.frombuffer(self.mapped, dtype=tensor.dtype, count=tensor.numel(), offset=place)
        _PLACES[found] = self, place
        return found


def any_filed(tensors: Sequence[Tensor]) -> bool:
    """Whether one of some tensors waits in a file."""
    return any(tensor in _PLACES for tensor in tensors)


def part(tensor: Tensor, first: int, count: int) -> Tensor:
    """Elements of a tensor, read into memory of their own if it waits in a file.

    Raises:
        OSError: they cannot be read.
    """
    if (known := _PLACES.get(tensor)) is None:
        return tensor[first : first + count]
    file, place = known
    found = torch.empty_like(tensor[first : first + count])
    content, done, place = content_of(found), 0, place + first * tensor.element_size()
    while done < len(content):
        done += (some := os.preadv(file.handle, [content[done:]], place + done))
        if not some:
            raise OSError("a file of waiting vectors ends too early")
    return found


def let_go(tensors: Iterable[Tensor]) -> None:
    """Lets go of what is resident of those that wait in files; they can be read again."""
    for tensor in tensors:
        if (known := _PLACES.get(tensor)) is not None:
            file, place = known
            file.mapped.madvise(mmap.MADV_DONTNEED, place, _paged(tensor.numel() * tensor.element_size()))


def _paged(size: int) -> int:
    return -(-size // _PAGE) * _PAGE
