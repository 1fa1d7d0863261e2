"""Where the states of clients are kept between their visits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, final

from polyrhythm.core.memory import Memory


class ClientStore(Protocol):
    """What every client remembers. A memory is never changed in place: a visit puts a new one."""

    def get(self, client: int) -> Memory:
        """A client's memory; an empty one before its first visit."""

    def put(self, client: int, memory: Memory) -> None:
        """Keeps a client's memory in place of the one before."""

    def names(self) -> Iterable[int]:
        """The clients that remember something, in the order of their first visits."""

    def snapshot(self) -> Mapping[int, Memory]:
        """All memories as they are now, to be read before the next `put`; in the order of `names`."""

    def restore(self, memories: Mapping[int, Memory]) -> None:
        """Keeps these and no others."""


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

    def names(self) -> Iterable[int]:
        return self._memories.keys()

    def snapshot(self) -> Mapping[int, Memory]:
        return self._memories

    def restore(self, memories: Mapping[int, Memory]) -> None:
        self._memories = dict(memories)
