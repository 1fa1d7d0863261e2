"""Who is there: the server's only view of availability."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Literal, final

from polyrhythm.fleet import World
from polyrhythm.streams import Integers


@final
@dataclass(frozen=True, kw_only=True)
class Answer:
    """One answer of a roster, as it is logged.

    Args:
        question: what was asked.
        clients: the answer; for "all", which never changes, left empty.
    """

    question: Literal["draw", "present", "all"]
    clients: tuple[int, ...] = ()


@final
class OpenRoster:
    """A federation where everybody who holds data is always there.

    Args:
        population: clients that the federation declares.
        eligible: those that hold data, in order.
    """

    def __init__(self, population: int, eligible: Sequence[int]) -> None:
        self._population, self._eligible = population, eligible

    @property
    def population(self) -> int:
        return self._population

    @property
    def eligible(self) -> int:
        return len(self._eligible)

    def draw(self, count: int, generator: Integers, exclude: Container[int]) -> tuple[int, ...]:
        return _drawn(self._eligible, count, generator, lambda client: client not in exclude)

    def present(self, clients: tuple[int, ...]) -> tuple[int, ...]:
        return clients

    def all(self) -> tuple[int, ...]:
        return tuple(int(c) for c in self._eligible)


@final
class WorldRoster:
    """A federation whose clients come and go, at the moment that the driver has reached.

    Args:
        world: the clients on their devices.

    Attributes:
        now: seconds since the run began; the driver moves it on.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._answers: list[Answer] = []
        self.now = 0.0

    def answers(self) -> tuple[Answer, ...]:
        """What was answered since this was last asked."""
        heard, self._answers = tuple(self._answers), []
        return heard

    @property
    def population(self) -> int:
        return self._world.population

    @property
    def eligible(self) -> int:
        return len(self._world.eligible)

    def draw(self, count: int, generator: Integers, exclude: Container[int]) -> tuple[int, ...]:
        open_to_all, world, now = self._world.everybody_is_there, self._world, self.now
        drawn = _drawn(
            world.eligible,
            count,
            generator,
            lambda client: client not in exclude and (open_to_all or world.span(client, now)[0]),
        )
        self._answers.append(Answer(question="draw", clients=drawn))
        return drawn

    def present(self, clients: tuple[int, ...]) -> tuple[int, ...]:
        there = clients
        if not self._world.everybody_is_there:
            there = tuple(c for c in clients if self._world.span(c, self.now)[0])
        self._answers.append(Answer(question="present", clients=there))
        return there

    def all(self) -> tuple[int, ...]:
        self._answers.append(Answer(question="all"))
        return tuple(int(c) for c in self._world.eligible)


def _drawn(eligible: Sequence[int], count: int, generator: Integers, wanted: Callable[[int], bool]) -> tuple[int, ...]:
    # A Fisher-Yates shuffle that stops early and keeps only what it moved: O(count), whatever the population.
    moved: dict[int, int] = {}
    drawn: list[int] = []
    total = len(eligible)
    for i in range(total):
        if len(drawn) == count:
            break
        j = int(generator.integers(i, total))
        client = int(eligible[moved.get(j, j)])
        moved[j] = moved.get(i, i)
        if wanted(client):
            drawn.append(client)
    return tuple(drawn)
