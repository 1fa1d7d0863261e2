"""Values by key, those used last in memory and the others in files."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, final

import torch
from torch import Tensor

from polyrhythm.base.errors import RunFailed
from polyrhythm.simulation.client_store.vector_files import StoredTensor, VectorFiles, vectors, with_vectors

_LARGE = 2**25  # bytes from which the system gives a block of its own (`base.threads`)


@final
class Key:
    """A number of a cache's own; what is kept under it is dropped when nobody has the key any more."""

    def __init__(self, number: int) -> None:
        self.number = number


@final
class LruCache:
    """Keeps values that are never changed in place; of each, all large vectors are in memory, or all in files.

    Args:
        files: the files.
        budget: bytes of large vectors in memory.
        least: bytes of a large vector.
    """

    def __init__(self, files: VectorFiles, budget: int, least: int) -> None:
        self._files, self._budget, self._least = files, budget, least
        self._whole: OrderedDict[int, Any] = OrderedDict()  # with large vectors in memory, last used last
        self._sizes: dict[int, int] = {}  # theirs
        self._named: dict[int, Any] = {}  # with places for large vectors, if all of them lie in files
        self._held: dict[int, list[StoredTensor]] = {}  # places in which some of them lie
        self._used, self._made = 0, 0

    def get(self, key: int) -> Any:
        """What is kept under a key, in memory from now on."""
        if key in self._whole:
            self._whole.move_to_end(key)
            return self._whole[key]
        named, found = self._named[key], dict[StoredTensor, Tensor]()
        if key not in self._held:
            return named

        def fetched(vector: Tensor | StoredTensor) -> Tensor:
            if isinstance(vector, Tensor):
                return vector
            if vector not in found:  # one that lies in several places of the value is one
                found[vector] = self._files.read(vector)
            return found[vector]

        value = with_vectors(named, fetched)
        self._admit(key, value)
        return value

    def glance(self, key: int) -> Any:
        """What is kept under a key, as it is at the moment: perhaps with places in place of vectors."""
        return self._whole[key] if key in self._whole else self._named[key]

    def put(self, key: int, value: Any) -> None:
        """Keeps a value in place of the one before."""
        # What is in files already is held before the value that it was in lets it go.
        large = self._large(value)
        places = [self._files.place_of(v) if isinstance(v, Tensor) else v for v in large]
        held = [place for place in dict.fromkeys(places) if place is not None]
        self._files.hold(held)
        self.drop(key)
        if held:
            self._held[key] = held
        if any(isinstance(v, Tensor) for v in large):
            self._admit(key, self._compact(value))
        else:
            self._named[key] = value

    def new_key(self, value: Any) -> Key:
        """Keeps a value under a new key, as long as somebody has the key."""
        self._made -= 1  # below those that others choose
        key = Key(self._made)
        self.put(key.number, value)
        weakref.finalize(key, self.drop, key.number).atexit = False
        return key

    def drop(self, key: int) -> None:
        """Keeps nothing under a key."""
        self._dismiss(key)
        self._named.pop(key, None)
        self._files.let_go(self._held.pop(key, ()))

    def written(self, key: int) -> Any:
        """What is kept under a key, with places for its large vectors; they are written if need be.

        Raises:
            OSError: they cannot be.
        """
        if key not in self._named:
            self._named[key] = self._on_shelf(key, self._whole[key])
        return self._named[key]

    def held(self) -> Iterator[StoredTensor]:
        """All places that are held here."""
        for places in self._held.values():
            yield from places

    def clear(self) -> None:
        """Keeps nothing any more."""
        for key in [*self._whole, *self._named]:
            self.drop(key)

    def _large(self, value: Any) -> list[Tensor | StoredTensor]:
        return [v for v in vectors(value) if isinstance(v, StoredTensor) or v.nbytes >= self._least]

    def _compact(self, value: Any) -> Any:
        """A value whose vectors fill gaps between others.

        Torch asks for aligned memory, and in glibc before 2.38 the gap that such a block leaves is too small for the
        next one of its size: what stays then takes twice its bytes, since what lay beside it is never used again.
        Memory that numpy asks for takes these gaps.
        """
        made: dict[int, Tensor] = {}

        def compact(vector: Tensor | StoredTensor) -> Tensor | StoredTensor:
            if (
                isinstance(vector, StoredTensor)
                or not self._least <= vector.nbytes < _LARGE
                or vector.dtype == torch.bfloat16
            ):
                return vector
            if self._files.place_of(vector) is not None:
                return vector  # known by its identity
            return made.setdefault(id(vector), torch.from_numpy(vector.numpy().copy()))

        return with_vectors(value, compact)

    def _on_shelf(self, key: int, value: Any) -> Any:
        """A value with places for its large vectors, which are written if need be and held."""
        mine: list[StoredTensor] = []

        def placed(vector: Tensor | StoredTensor) -> Tensor | StoredTensor:
            if isinstance(vector, StoredTensor) or vector.nbytes < self._least:
                return vector
            mine.append(self._files.put(vector))
            return mine[-1]

        try:
            named = with_vectors(value, placed)
        except BaseException:
            self._files.let_go(mine)
            raise
        self._files.let_go(self._held.pop(key, ()))
        self._held[key] = mine
        return named

    def _admit(self, key: int, value: Any) -> None:
        """Has a value in memory, and others make way for it."""
        self._whole[key] = value
        self._sizes[key] = sum({id(v): v.nbytes for v in self._large(value) if isinstance(v, Tensor)}.values())
        self._used += self._sizes[key]
        while self._used > self._budget and self._whole:
            other = next(iter(self._whole))
            try:
                self.written(other)
            except OSError as error:
                raise RunFailed(
                    f"what clients remember cannot be written to {self._files.folder} ({error.strerror or error}); "
                    "what was recorded before is kept"
                ) from error
            self._dismiss(other)

    def _dismiss(self, key: int) -> None:
        if self._whole.pop(key, None) is not None:
            self._used -= self._sizes.pop(key)
