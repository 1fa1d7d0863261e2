"""What a client remembers, and how it forgets a visit that the server did not accept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import final

from polyrhythm.base.messages import State
from polyrhythm.methods.mechanism import Mechanism, Model, Setup


@final
@dataclass(frozen=True, kw_only=True)
class ClientState:
    """What a client remembers from one visit to the next.

    Args:
        parts: the mechanisms' states, by key; a missing one has not begun.
        cursor: (number of the pass, place in it), for work that goes on through the data.
        optimiser: momentum or moments, if they are kept.
        previous: the last local model, if a mechanism asks for it.
    """

    parts: Mapping[str, State] = field(default_factory=dict)
    cursor: tuple[int, int] = (0, 0)
    optimiser: State = field(default_factory=dict)
    previous: Model | None = None

    def parts_of(self, mechanisms: Iterable[tuple[str, Mechanism]], setup: Setup) -> dict[str, State]:
        """The states of these mechanisms, by key; of one that has not begun, the state that it begins with."""
        return {key: self.parts[key] if key in self.parts else m.client_start(setup) for key, m in mechanisms}


@final
@dataclass(frozen=True, kw_only=True)
class Memory:
    """A client's state after its last accepted visit, and after a later visit that may yet be accepted."""

    accepted: ClientState = ClientState()
    provisional: ClientState | None = None
    visit: int = -1

    def at(self, accepted_visit: int) -> ClientState:
        """The state to start from, given the last visit that the server accepted."""
        if self.provisional is not None and self.visit == accepted_visit:
            return self.provisional
        return self.accepted

    def then(self, start: ClientState, state: ClientState, visit: int) -> Memory:
        """The memory after a visit that started from `start` and ended in `state`."""
        return Memory(accepted=start, provisional=state, visit=visit)

    def settled(self, accepted_visit: int) -> Memory:
        """What is left of it when no visit is under way any more, given the last one that the server accepted."""
        return self if self.provisional is None else Memory(accepted=self.at(accepted_visit))
