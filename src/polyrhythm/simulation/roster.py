"""Who is there: the server's only view of availability."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, final

import numpy as np

from polyrhythm.base.frozen import new_unchecked
from polyrhythm.base.streams import Integers, proportionally


@final
@dataclass(frozen=True, kw_only=True)
class Answer:
    """One answer of a roster, as it is logged.

    Args:
        question: what was asked.
        clients: the answer; for "all", which never changes, left empty. For "samples" the samples of each, in order;
            for "unmask" who has helped to read a sum, nobody if it could not be read.
    """

    question: Literal["draw", "present", "all", "samples", "unmask"]
    clients: tuple[int, ...] = ()


class Presence(Protocol):
    """Who belongs to a federation, and who is there: a simulated world, or nodes that are connected."""

    @property
    def population(self) -> int:
        """How many clients the federation declares."""

    @property
    def eligible(self) -> Sequence[int]:
        """Those that hold data, in order."""

    @property
    def num_samples(self) -> Sequence[int] | None:
        """The samples that each of the population declared when it joined; None if all have the same."""

    @property
    def everybody_is_there(self) -> bool:
        """Whether nobody is ever away, so that nobody has to look."""

    def span(self, client: int, now: float) -> tuple[bool, float]:
        """Whether a client is there, and until when that is known to stay so."""


@final
class OpenRoster:
    """A federation where everybody who holds data is always there.

    Args:
        population: clients that the federation declares.
        eligible: those that hold data, in order.
        num_samples: the samples that each of the population declared when it joined; None if all have the same.
    """

    def __init__(self, population: int, eligible: Sequence[int], num_samples: Sequence[int] | None = None) -> None:
        self._population, self._eligible, self._held = population, eligible, num_samples

    @property
    def population(self) -> int:
        return self._population

    @property
    def eligible(self) -> int:
        return len(self._eligible)

    def draw(self, count: int, generator: Integers, exclude: Container[int]) -> tuple[int, ...]:
        return _drawn(self._eligible, count, generator, exclude)

    def draw_by_samples(self, count: int, generator: np.random.Generator, exclude: Container[int]) -> tuple[int, ...]:
        return _drawn_by_samples(self._eligible, self._sums, count, generator, exclude)

    @functools.cached_property
    def _sums(self) -> list[float]:
        return _summed(self._eligible, self._held)

    def present(self, clients: tuple[int, ...]) -> tuple[int, ...]:
        return clients

    def samples(self) -> tuple[int, ...]:
        return _held(self._eligible, self._held)

    def all(self) -> tuple[int, ...]:
        return tuple(int(c) for c in self._eligible)

    def unmask(self, version: int, clients: tuple[int, ...], masked: np.ndarray) -> np.ndarray | None:
        return masked  # nobody has put a mask on


class Unmasking(Protocol):
    """Whoever takes masks off sums."""

    def unmask(
        self, version: int, clients: tuple[int, ...], masked: np.ndarray
    ) -> tuple[tuple[int, ...], np.ndarray | None]:
        """Who has helped, and the sum without masks; None where they are too few."""


@final
class WorldRoster:
    """A federation whose clients come and go, at the moment that the driver has reached.

    Args:
        world: the clients, on their devices or at their nodes.

    Attributes:
        now: seconds since the run began; the driver moves it on.
        sums: takes masks off sums, where the recipe hides single updates.
    """

    def __init__(self, world: Presence) -> None:
        self._world = world
        self._answers: list[Answer] = []
        self.now = 0.0
        self.sums: Unmasking | None = None

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
        drawn = _drawn(self._world.eligible, count, generator, exclude, self._there())
        self._answers.append(new_unchecked(Answer, question="draw", clients=drawn))
        return drawn

    def draw_by_samples(self, count: int, generator: np.random.Generator, exclude: Container[int]) -> tuple[int, ...]:
        drawn = _drawn_by_samples(self._world.eligible, self._sums, count, generator, exclude, self._there())
        self._answers.append(new_unchecked(Answer, question="draw", clients=drawn))
        return drawn

    @functools.cached_property
    def _sums(self) -> list[float]:
        return _summed(self._world.eligible, self._world.num_samples)

    def _there(self) -> Callable[[int], bool] | None:
        """Whether a client is there; None if everybody is."""
        world, now = self._world, self.now
        return None if world.everybody_is_there else lambda client: world.span(client, now)[0]

    def present(self, clients: tuple[int, ...]) -> tuple[int, ...]:
        there = clients
        if not self._world.everybody_is_there:
            there = tuple(c for c in clients if self._world.span(c, self.now)[0])
        self._answers.append(new_unchecked(Answer, question="present", clients=there))
        return there

    def samples(self) -> tuple[int, ...]:
        held = _held(self._world.eligible, self._world.num_samples)
        self._answers.append(new_unchecked(Answer, question="samples", clients=held))
        return held

    def all(self) -> tuple[int, ...]:
        self._answers.append(new_unchecked(Answer, question="all"))
        return tuple(int(c) for c in self._world.eligible)

    def unmask(self, version: int, clients: tuple[int, ...], masked: np.ndarray) -> np.ndarray | None:
        assert self.sums is not None, "a sum that nobody can read"
        helped, numbers = self.sums.unmask(version, clients, masked)
        self._answers.append(Answer(question="unmask", clients=() if numbers is None else helped))
        return numbers


def _drawn(
    eligible: Sequence[int],
    count: int,
    generator: Integers,
    exclude: Container[int],
    there: Callable[[int], bool] | None = None,
) -> tuple[int, ...]:
    # A Fisher-Yates shuffle that stops early and keeps only what it moved: O(count), whatever the population.
    moved: dict[int, int] = {}
    drawn: list[int] = []
    total = len(eligible)
    for i in range(total if count > 0 else 0):
        j = int(generator.integers(i, total))
        client = int(eligible[moved.get(j, j)])
        moved[j] = moved.get(i, i)
        if client not in exclude and (there is None or there(client)):
            drawn.append(client)
            if len(drawn) == count:
                break
    return tuple(drawn)


def _drawn_by_samples(
    eligible: Sequence[int],
    sums: Sequence[float],
    count: int,
    generator: np.random.Generator,
    exclude: Container[int],
    there: Callable[[int], bool] | None = None,
) -> tuple[int, ...]:
    def wanted(place: int) -> bool:
        client = int(eligible[place])
        return client not in exclude and (there is None or there(client))

    places = proportionally(sums, generator, wanted)
    return tuple(int(eligible[place]) for place in itertools.islice(places, count))


def _held(eligible: Sequence[int], num_samples: Sequence[int] | None) -> tuple[int, ...]:
    return tuple(1 if num_samples is None else int(num_samples[client]) for client in eligible)


def _summed(eligible: Sequence[int], num_samples: Sequence[int] | None) -> list[float]:
    """The samples of the eligible clients, summed up to and with each."""
    return list(itertools.accumulate(1.0 if num_samples is None else float(num_samples[client]) for client in eligible))
