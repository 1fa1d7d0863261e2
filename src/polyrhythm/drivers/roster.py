"""Who is there: the server's only view of availability."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np


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

    def draw(self, count: int, generator: np.random.Generator, exclude: frozenset[int]) -> tuple[int, ...]:
        # A Fisher-Yates shuffle that stops early and keeps only what it moved: O(count), whatever the population.
        moved: dict[int, int] = {}
        drawn: list[int] = []
        total = len(self._eligible)
        for i in range(total):
            if len(drawn) == count:
                break
            j = int(generator.integers(i, total))
            client = int(self._eligible[moved.get(j, j)])
            moved[j] = moved.get(i, i)
            if client not in exclude:
                drawn.append(client)
        return tuple(drawn)

    def present(self, clients: tuple[int, ...]) -> tuple[int, ...]:
        return clients

    def all(self) -> tuple[int, ...]:
        return tuple(int(c) for c in self._eligible)
