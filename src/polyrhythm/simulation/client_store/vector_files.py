"""Vectors in a few large files, each written once and read when it is wanted.

Rules of this file:

- What lies in a place never changes while anybody holds it. A place that nobody holds is written over by the next
  vector of its size, so files grow to what is held at one time, and no further.
- A checkpoint holds its places as long as its file is there. Those of an earlier process are not known one by one, so
  nothing is written into a file that it left, nor is one removed, until all checkpoints from then are gone.
- Files are read and written at a place, not mapped: a vector must begin where kernels want it, and what is resident is
  then what was asked for.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, final

import torch
from immutables import Map
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from polyrhythm.base.errors import RunFailed
from polyrhythm.base.frozen import replace_unchecked
from polyrhythm.base.vectors import content_of
from polyrhythm.runs.files import sync_folder

LARGEST = 2**30
"""Bytes of a file, unless a single vector is larger."""

_BORDER, _AT_ONCE = 64, 2**30


@final
@dataclass(frozen=True, kw_only=True)
class StoredTensor:
    """A tensor that lies in a file.

    Args:
        file: its number.
        offset: where it begins.
        dtype: by torch's name.
        shape: of the tensor.
        sha256: of its bytes.
        folder: the file's, if it is another one's than the run's.
    """

    file: int
    offset: int
    dtype: str
    shape: tuple[int, ...]
    sha256: str
    folder: str = ""

    @property
    def kind(self) -> torch.dtype:
        """The tensor's dtype."""
        kind: torch.dtype = getattr(torch, self.dtype)
        return kind

    @property
    def room(self) -> int:
        """Bytes up to where the next one may begin."""
        return _aligned(torch.Size(self.shape).numel() * self.kind.itemsize)


def vectors(value: Any) -> Iterator[Tensor | StoredTensor]:
    """The tensors and places in a value, in order."""
    if isinstance(value, (Tensor, StoredTensor)):
        yield value
    elif isinstance(value, (list, tuple)):
        yield from itertools.chain.from_iterable(map(vectors, value))
    elif isinstance(value, (dict, Map)):
        yield from itertools.chain.from_iterable(map(vectors, value.values()))
    elif is_dataclass(value) and not isinstance(value, type):
        yield from itertools.chain.from_iterable(vectors(getattr(value, field.name)) for field in fields(value))


def with_vectors(value: Any, change: Callable[[Any], Any]) -> Any:
    """A value with others in place of its tensors and places; what has none, as it is."""
    if isinstance(value, (Tensor, StoredTensor)):
        return change(value)
    if isinstance(value, (list, tuple)):
        items = [with_vectors(item, change) for item in value]
        return value if _all_same(items, value) else type(value)(items)
    if isinstance(value, (dict, Map)):
        items = [with_vectors(item, change) for item in value.values()]
        return value if _all_same(items, value.values()) else type(value)(zip(value, items, strict=True))
    if is_dataclass(value) and not isinstance(value, type):
        named = {field.name: getattr(value, field.name) for field in fields(value)}
        other = {name: with_vectors(item, change) for name, item in named.items()}
        return value if _all_same(other.values(), named.values()) else replace_unchecked(value, **other)
    return value


def _all_same(some: Iterable[Any], others: Iterable[Any]) -> bool:
    return all(one is other for one, other in zip(some, others, strict=True))


def read(place: StoredTensor, folder: Path | None = None) -> Tensor:
    """The tensor of a place.

    Args:
        place: where it lies.
        folder: whose file it is; that of the place if None.

    Raises:
        RunFailed: it cannot be read.
    """
    path = _path(folder or Path(place.folder), place.file)
    tensor = torch.empty(place.shape, dtype=place.kind)
    content, done = content_of(tensor), 0
    try:
        with path.open("rb", buffering=0) as file:
            file.seek(place.offset)
            while done < len(content):
                some = file.readinto(content[done : done + _AT_ONCE])
                if not some:
                    raise OSError("it ends too early")
                done += some
    except OSError as error:
        raise RunFailed(f"what clients remember cannot be read from {path} ({error.strerror or error})") from error
    return tensor


def check(places: Iterable[StoredTensor], folder: Path) -> str:
    """What is wrong with one of some places; empty if all of them are as they were written."""
    for place in dict.fromkeys(places):
        try:
            found = hashlib.sha256(content_of(read(place, folder))).hexdigest()
        except RunFailed as failure:
            return str(failure)
        if found != place.sha256:
            return f"what clients remember has changed in {_path(folder, place.file)}"
    return ""


@final
class VectorFiles:
    """Keeps vectors in files of a folder.

    Args:
        folder: gives it, when it is first needed; made if missing.
        kept: gives the versions of the checkpoints that are there.
    """

    def __init__(self, folder: Callable[[], Path], kept: Callable[[], Iterable[int]]) -> None:
        self._where, self._kept = folder, kept
        self._folder: Path | None = None
        self._holders: Counter[StoredTensor] = Counter()
        self._in_file: Counter[int] = Counter()  # places held
        self._free: dict[int, list[tuple[int, int]]] = {}  # by size, a heap of (file, offset)
        self._pins: dict[int, list[StoredTensor]] = {}
        self._known: Any = WeakIdKeyDictionary()  # tensors of which a copy lies here
        self._earlier: set[int] = set()  # checkpoints of another process
        self._sealed: set[int] = set()  # files that it left
        self._later: list[StoredTensor] = []  # to be free when these are no longer sealed
        self._unsynced: set[int] = set()
        self._file, self._end = 0, LARGEST

    @property
    def folder(self) -> Path:
        """Where the files are."""
        if self._folder is None:
            self._folder = self._where().absolute()
            self._folder.mkdir(parents=True, exist_ok=True)
            self._earlier, self._sealed = set(self._kept()), set(_numbers(self._folder))
            self._file = max(self._sealed, default=0)
        return self._folder

    def put(self, tensor: Tensor) -> StoredTensor:
        """Writes a tensor, if it is not there yet, and holds it for whoever asks.

        Raises:
            OSError: it cannot be written.
        """
        known: StoredTensor | None = self._known.get(tensor)
        if known is None or known not in self._holders:
            known = self._written(tensor.detach().cpu().contiguous())
            self._known[tensor] = known
        self.hold([known])
        return known

    def place_of(self, tensor: Tensor) -> StoredTensor | None:
        """Where a copy of a tensor lies and is held, if one does."""
        known: StoredTensor | None = self._known.get(tensor)
        return known if known in self._holders else None

    def read(self, place: StoredTensor) -> Tensor:
        """The tensor of a place.

        Raises:
            RunFailed: it cannot be read.
        """
        tensor = read(place, None if place.folder else self.folder)
        if not place.folder:
            self._known[tensor] = place
        return tensor

    def mine(self, place: StoredTensor) -> StoredTensor:
        """A place as it is called here: one of this folder has none of its own."""
        return replace(place, folder="") if place.folder == str(self.folder) else place

    def hold(self, places: Iterable[StoredTensor]) -> None:
        """Keeps places as they are until they are let go as often."""
        for place in places:
            if not place.folder:
                self._in_file[place.file] += place not in self._holders
                self._holders[place] += 1

    def let_go(self, places: Iterable[StoredTensor]) -> None:
        """No longer holds them; what nobody holds is written over."""
        for place in places:
            if place.folder:
                continue
            self._holders[place] -= 1
            if not self._holders[place]:
                del self._holders[place]
                self._in_file[place.file] -= 1
                if place.file in self._sealed:
                    self._later.append(place)
                else:
                    self._make_free(place.room, place.file, place.offset)

    def pin(self, version: int, places: Iterable[StoredTensor]) -> None:
        """Holds the places of a checkpoint that is about to be written, and sees to it that they are on the disk.

        Raises:
            OSError: they cannot be.
        """
        self.tidy()
        for number in self._unsynced:
            with _path(self.folder, number).open("r+b") as file:
                os.fsync(file.fileno())
        if self._unsynced:
            sync_folder(self.folder)
        self._unsynced.clear()
        new = list(places)
        self.hold(new)
        self._pins.setdefault(version, []).extend(new)

    def tidy(self) -> None:
        """Lets go of what only checkpoints needed that are gone, and removes files in which nobody holds anything."""
        there = set(self._kept())
        for version in self._pins.keys() - there:
            self.let_go(self._pins.pop(version))
        self._earlier &= there
        if not self._earlier:
            self._sealed.clear()
            for place in self._later:
                self._make_free(place.room, place.file, place.offset)
            self._later.clear()
        for number in _numbers(self.folder):
            if not self._in_file[number] and number not in self._sealed and number != self._file:
                _path(self.folder, number).unlink(missing_ok=True)
                self._free = {size: [slot for slot in slots if slot[0] != number] for size, slots in self._free.items()}

    def close(self) -> None:
        """Removes all files that no checkpoint needs, and the folder if it is empty."""
        if self._folder is None:
            return
        self._file = -1
        self.tidy()
        if not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _written(self, tensor: Tensor) -> StoredTensor:
        content, done, folder = content_of(tensor), 0, self.folder
        number, offset = self._slot(_aligned(len(content)))
        path = _path(folder, number)
        try:
            with path.open("r+b" if path.exists() else "w+b", buffering=0) as file:
                file.seek(offset)
                while done < len(content):
                    done += file.write(content[done : done + _AT_ONCE])
        except BaseException:
            self._make_free(_aligned(len(content)), number, offset)
            raise
        self._unsynced.add(number)
        dtype, digest = str(tensor.dtype).removeprefix("torch."), hashlib.sha256(content).hexdigest()
        return StoredTensor(file=number, offset=offset, dtype=dtype, shape=tuple(tensor.shape), sha256=digest)

    def _slot(self, size: int) -> tuple[int, int]:
        """Room for so many bytes: the first that is free, or new at the end."""
        if free := self._free.get(size):
            return heapq.heappop(free)
        if self._end + size > LARGEST:
            self._file, self._end = self._file + 1, 0
        self._end += size
        return self._file, self._end - size

    def _make_free(self, size: int, file: int, offset: int) -> None:
        heapq.heappush(self._free.setdefault(size, []), (file, offset))


def _path(folder: Path, number: int) -> Path:
    return folder / f"{number:04d}.vectors"


def _numbers(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob("*.vectors"))


def _aligned(size: int) -> int:
    return -(-max(size, 1) // _BORDER) * _BORDER
