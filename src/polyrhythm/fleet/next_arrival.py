"""When clients come that were away."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import final

import numpy as np

from polyrhythm.fleet.parts import Presence

_CHANGES = 1000


def next_coming(span: Callable[[int, float], tuple[bool, float]], client: int, now: float) -> float:
    """When a client that is away, now or later, is there again for the first time; infinity for never.

    Args:
        span: says whether a client is there at a moment, and until when that stays so.
        client: whose.
        now: from when on.
    """
    away = False
    for _ in range(_CHANGES):  # it may come back while it is being charged, and be away again when that is done
        there, until = span(client, now)
        if there and away:
            return now
        if until == math.inf:
            break
        away = not there
        now = until
    return math.inf


@final
class AskedOnce:
    """A timetable of clients that come and go by no formula: each is asked once, and again when it has come.

    8 bytes for each of the population. The first question asks everybody.

    Args:
        presence: who is there.
        population: N.
    """

    def __init__(self, presence: Presence, population: int) -> None:
        self._presence = presence
        self._comings = np.full(population, -math.inf)
        self._now = -math.inf

    def span(self, client: int, now: float) -> tuple[bool, float]:
        return self._presence.span(client, now)

    def comes(self, clients: np.ndarray, now: float) -> np.ndarray:
        """When each of some clients comes next, later than now, [clients]; infinity for never."""
        if now < self._now:
            self._comings.fill(-math.inf)
        self._now = now
        # Whoever was to come later than now has not come in between.
        for client in clients[self._comings[clients] <= now].tolist():
            self._comings[client] = next_coming(self._presence.span, client, now)
        following: np.ndarray = self._comings[clients]
        return following
