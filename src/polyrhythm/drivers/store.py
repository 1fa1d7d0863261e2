"""Where the states of clients are kept between their visits."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, final

from torch import Tensor

from polyrhythm.core.memory import Memory
from polyrhythm.drivers.shelf import Shelf, Shelved, read, vectors, with_vectors
from polyrhythm.errors import RunFailed


class ClientStore(Protocol):
    """What every client remembers. A memory is never changed in place: a visit puts a new one."""

    def get(self, client: int) -> Memory:
        """A client's memory; an empty one before its first visit."""

    def put(self, client: int, memory: Memory) -> None:
        """Keeps a client's memory in place of the one before."""

    def settle(self, client: int, accepted: int) -> None:
        """Forgets what is not needed any more, now that it is known which visit was the last that was accepted."""

    def names(self) -> Iterable[int]:
        """The clients that remember something, in the order of their first visits."""

    def snapshot(self, version: int) -> Mapping[int, Memory]:
        """All memories as they are now, for the checkpoint of a version; in the order of `names`.

        What lies in files is named and not read. To be read before the next `put`.
        """

    def restore(self, memories: Mapping[int, Memory]) -> None:
        """Keeps these and no others."""

    def close(self) -> None:
        """Removes what no checkpoint needs."""


_NOTHING = Memory()


@final
class InMemory:
    """Keeps all of them in memory."""

    def __init__(self) -> None:
        self._memories: dict[int, Memory] = {}

    def get(self, client: int) -> Memory:
        return self._memories.get(client, _NOTHING)

    def put(self, client: int, memory: Memory) -> None:
        self._memories[client] = memory

    def settle(self, client: int, accepted: int) -> None:
        if client in self._memories:
            self._memories[client] = self._memories[client].settled(accepted)

    def names(self) -> Iterable[int]:
        return self._memories.keys()

    def snapshot(self, version: int) -> Mapping[int, Memory]:
        return self._memories

    def restore(self, memories: Mapping[int, Memory]) -> None:
        self._memories = {client: _whole(memory, read) for client, memory in memories.items()}

    def close(self) -> None:
        """Nothing to remove."""


@final
class Spilling:
    """Keeps so many bytes of vectors in memory, and the others in files: those of the clients that were used last.

    A vector is written once, when it has to make way or for a checkpoint, and read into memory of its own. What it
    gives is what was put, to the last bit, so what lies where changes no number.

    Args:
        shelf: the files.
        budget: bytes in memory. What a turn works on, its updates under way, comes on top.
        least: bytes of a vector that may be in a file; smaller ones always stay.
    """

    def __init__(self, shelf: Shelf, budget: int, *, least: int = 4096) -> None:
        self._shelf, self._budget, self._least = shelf, budget, least
        self._names: dict[int, None] = {}
        self._whole: OrderedDict[int, Memory] = OrderedDict()  # with large vectors in memory, last used last
        self._sizes: dict[int, int] = {}  # theirs
        self._named: dict[int, Memory] = {}  # with places for large vectors, if all of them lie in files
        self._held: dict[int, list[Shelved]] = {}  # places in which some of a client's vectors lie
        self._used = 0

    def get(self, client: int) -> Memory:
        if client in self._whole:
            self._whole.move_to_end(client)
            return self._whole[client]
        named = self._named.get(client, _NOTHING)
        if client not in self._held:
            return named
        memory = _whole(named, self._shelf.read)
        self._admit(client, memory)
        return memory

    def put(self, client: int, memory: Memory) -> None:
        self._names.setdefault(client)
        # What is in files already is held before the memory that it was in lets it go.
        places = [self._shelf.place_of(v) if isinstance(v, Tensor) else v for v in self._large(memory)]
        held = [place for place in dict.fromkeys(places) if place is not None]
        self._shelf.hold(held)
        self._dismiss(client)
        self._shelf.let_go(self._held.pop(client, ()))
        self._named.pop(client, None)
        if held:
            self._held[client] = held
        if None in places:
            self._admit(client, memory)
        elif any(isinstance(v, Tensor) for v in self._large(memory)):
            self._named[client] = self._on_shelf(client, memory)
            self._admit(client, memory)
        else:
            self._named[client] = memory

    def settle(self, client: int, accepted: int) -> None:
        memory = self._whole.get(client) or self._named.get(client)
        if memory is not None and memory.provisional is not None:
            self.put(client, memory.settled(accepted))

    def names(self) -> Iterable[int]:
        return self._names.keys()

    def snapshot(self, version: int) -> Mapping[int, Memory]:
        """As the protocol has it; and it stays so while clients go on, as long as the version has a checkpoint.

        Raises:
            OSError: what lay only in memory cannot be written.
        """
        for client, memory in self._whole.items():
            if client not in self._named:
                self._named[client] = self._on_shelf(client, memory)
        self._shelf.pin(version, (place for places in self._held.values() for place in places))
        return {client: self._named[client] for client in self._names}

    def restore(self, memories: Mapping[int, Memory]) -> None:
        self._forget()
        for client, memory in memories.items():
            self.put(client, with_vectors(memory, lambda v: self._shelf.mine(v) if isinstance(v, Shelved) else v))

    def close(self) -> None:
        self._forget()
        self._shelf.close()

    def _forget(self) -> None:
        for places in self._held.values():
            self._shelf.let_go(places)
        for kept in (self._names, self._whole, self._sizes, self._named, self._held):
            kept.clear()
        self._used = 0

    def _large(self, memory: Memory) -> list[Tensor | Shelved]:
        return [v for v in vectors(memory) if isinstance(v, Shelved) or v.nbytes >= self._least]

    def _on_shelf(self, client: int, memory: Memory) -> Memory:
        """A memory with places for its large vectors, which are written if need be and held for the client."""
        mine: list[Shelved] = []

        def placed(vector: Tensor | Shelved) -> Tensor | Shelved:
            if isinstance(vector, Shelved) or vector.nbytes < self._least:
                return vector
            place = self._shelf.put(vector)
            mine.append(place)
            return place

        try:
            named: Memory = with_vectors(memory, placed)
        except BaseException:
            self._shelf.let_go(mine)
            raise
        self._shelf.let_go(self._held.pop(client, ()))
        self._held[client] = mine
        return named

    def _admit(self, client: int, memory: Memory) -> None:
        """Has a memory in memory, and others make way for it."""
        self._whole[client] = memory
        self._sizes[client] = sum({id(v): v.nbytes for v in self._large(memory) if isinstance(v, Tensor)}.values())
        self._used += self._sizes[client]
        while self._used > self._budget and self._whole:
            other = next(iter(self._whole))
            if other not in self._named:
                try:
                    self._named[other] = self._on_shelf(other, self._whole[other])
                except OSError as error:
                    raise RunFailed(
                        f"what clients remember cannot be written to {self._shelf.folder} ({error.strerror or error}); "
                        "what was recorded before is kept"
                    ) from error
            self._dismiss(other)

    def _dismiss(self, client: int) -> None:
        if self._whole.pop(client, None) is not None:
            self._used -= self._sizes.pop(client)


def _whole(memory: Memory, fetch: Callable[[Shelved], Tensor]) -> Memory:
    """A memory with its vectors in place of where they lie, one that lies in several places once."""
    found: dict[Shelved, Tensor] = {}

    def fetched(vector: Tensor | Shelved) -> Tensor:
        if isinstance(vector, Tensor):
            return vector
        if vector not in found:
            found[vector] = fetch(vector)
        return found[vector]

    whole: Memory = with_vectors(memory, fetched)
    return whole
