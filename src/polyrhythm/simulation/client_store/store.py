"""Where the states of clients are kept between their visits, and what the server keeps of each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeVar, final

from immutables import Map
from torch import Tensor

from polyrhythm.core.client_state import Memory
from polyrhythm.simulation.client_store.lru_cache import LruCache
from polyrhythm.simulation.client_store.vector_files import StoredTensor, VectorFiles, read, with_vectors

T = TypeVar("T")


class ClientStore(Protocol):
    """What every client remembers. A memory is never changed in place: a visit puts a new one."""

    def get(self, client: int) -> Memory:
        """A client's memory; an empty one before its first visit."""

    def put(self, client: int, memory: Memory) -> None:
        """Keeps a client's memory in place of the one before."""

    def settle(self, client: int, accepted: int) -> None:
        """Forgets what is not needed any more, now that it is known which visit was the last that was accepted."""

    def table(self) -> Any:
        """An empty table of vectors by client for the server, persistent as an `immutables.Map` is."""

    def written(self, value: T) -> T:
        """A value of the server's with all its tables as plain maps, in which what lies in files is named."""

    def taken_up(self, value: T) -> T:
        """The value again, of what was written."""

    def names(self) -> Iterable[int]:
        """The clients that remember something, in the order of their first visits."""

    def snapshot(self, version: int) -> Mapping[int, Memory]:
        """All memories as they are now, for the checkpoint of a version; in the order of `names`.

        What lies in files is named and not read, also that of the tables that were `written` for it. To be read before
        the next `put`.
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

    def table(self) -> Map[int, Tensor]:
        return Map()

    def written(self, value: T) -> T:
        return value

    def taken_up(self, value: T) -> T:
        return _whole(value)

    def names(self) -> Iterable[int]:
        return self._memories.keys()

    def snapshot(self, version: int) -> Mapping[int, Memory]:
        return self._memories

    def restore(self, memories: Mapping[int, Memory]) -> None:
        self._memories = {client: _whole(memory) for client, memory in memories.items()}

    def close(self) -> None:
        """Nothing to remove."""


def _whole(value: T) -> T:
    """A value with its vectors in place of where they lie."""
    whole: T = with_vectors(value, lambda vector: read(vector) if isinstance(vector, StoredTensor) else vector)
    return whole


@final
class Spilling:
    """Keeps so many bytes of vectors in memory, and the others in files: those of the clients that were used last.

    A vector is written once, when it has to make way or for a checkpoint, and read into memory of its own. What it
    gives is what was put, to the last bit, so what lies where changes no number.

    Args:
        files: the files.
        budget: bytes in memory. What a turn works on, its updates under way, comes on top.
        least: bytes of a vector that may be in a file; smaller ones always stay.
    """

    def __init__(self, files: VectorFiles, budget: int, *, least: int = 4096) -> None:
        self._files, self._cache = files, LruCache(files, budget, least)
        self._names: dict[int, None] = {}

    def get(self, client: int) -> Memory:
        memory: Memory = self._cache.get(client) if client in self._names else _NOTHING
        return memory

    def put(self, client: int, memory: Memory) -> None:
        self._names.setdefault(client)
        self._cache.put(client, memory)

    def settle(self, client: int, accepted: int) -> None:
        memory: Memory = self._cache.glance(client) if client in self._names else _NOTHING
        if memory.provisional is not None:
            self._cache.put(client, memory.settled(accepted))

    def table(self) -> Table:
        return Table(self._cache)

    def written(self, value: T) -> T:
        """As the protocol has it.

        Raises:
            OSError: what lay only in memory cannot be written.
        """
        plain: T = _with_tables(value, lambda found: found.written() if isinstance(found, Table) else found)
        return plain

    def taken_up(self, value: T) -> T:
        whole: T = _with_tables(value, self._table_of)
        return whole

    def names(self) -> Iterable[int]:
        return self._names.keys()

    def snapshot(self, version: int) -> Mapping[int, Memory]:
        """As the protocol has it; and it stays so while clients go on, as long as the version has a checkpoint.

        Raises:
            OSError: what lay only in memory cannot be written.
        """
        memories = {client: self._cache.written(client) for client in self._names}
        self._files.pin(version, self._cache.held())
        return memories

    def restore(self, memories: Mapping[int, Memory]) -> None:
        for client in self._names:
            self._cache.drop(client)
        self._names.clear()
        for client, memory in memories.items():
            self.put(client, with_vectors(memory, self._mine))

    def close(self) -> None:
        self._cache.clear()
        self._files.close()

    def _mine(self, vector: Tensor | StoredTensor) -> Tensor | StoredTensor:
        return self._files.mine(vector) if isinstance(vector, StoredTensor) else vector

    def _table_of(self, found: Mapping[Any, Any]) -> Any:
        """The table that was written as a map; another mapping as it is."""
        if not found or not all(isinstance(value, (Tensor, StoredTensor)) for value in found.values()):
            return found
        table = self.table()
        for client, vector in found.items():
            table = table.set(client, self._mine(vector))
        return table


@final
class Table(Mapping[int, Tensor]):
    """Vectors by client, as many in memory as a cache allows; a changed one is a new table, as with a `Map`.

    Args:
        cache: keeps the vectors, of all tables that are still needed.
        keys: under which it keeps them, by client.
    """

    def __init__(self, cache: LruCache, keys: Map[int, Any] | None = None) -> None:
        self._cache = cache
        self._keys: Map[int, Any] = Map() if keys is None else keys

    def __getitem__(self, client: int) -> Tensor:
        found: Tensor = self._cache.get(self._keys[client].number)
        return found

    def __contains__(self, client: object) -> bool:
        return client in self._keys

    def __iter__(self) -> Iterator[int]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def set(self, client: int, vector: Tensor | StoredTensor) -> Table:
        """The table with another vector for a client."""
        return Table(self._cache, self._keys.set(client, self._cache.new_key(vector)))

    def written(self) -> Map[int, Tensor | StoredTensor]:
        """A map of where the vectors lie."""
        return Map({client: self._cache.written(key.number) for client, key in self._keys.items()})


def _with_tables(value: Any, change: Callable[[Mapping[Any, Any]], Any]) -> Any:
    """A server's state with other things in place of the maps and tables in it."""
    if isinstance(value, (Map, Table)):
        return change(value)
    if isinstance(value, dict):
        return {name: _with_tables(inner, change) for name, inner in value.items()}
    return value
