"""Fleets in which a law decides how fast each client is, when it is there, and when it comes."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from polyrhythm.fleet import Arrivals, Availability, Device, Devices, Fleet, Place
from polyrhythm.fleet.parts import Presence


@final
@dataclass(frozen=True, kw_only=True)
class Paces(Devices):
    """Client i needs the i-th number of seconds for a sample; from the beginning again when they are used up."""

    seconds: tuple[float, ...]

    def device(self, place: Place, client: int) -> Device:
        return Device(seconds_per_sample=self.seconds[client % len(self.seconds)])


@final
@dataclass(frozen=True, kw_only=True)
class Hours(Availability):
    """Client i is there in the i-th list of spans (from, to), and away otherwise."""

    spans: tuple[tuple[tuple[float, float], ...], ...]

    def bind(self, place: Place) -> Presence:
        return _Hours(self.spans)


@final
@dataclass(frozen=True, kw_only=True)
class Rhythms(Availability):
    """Client i is there once in every period, for a share of it, from a phase on: the i-th (period, share, phase)."""

    rhythms: tuple[tuple[float, float, float], ...]

    def spans(self) -> list[list[tuple[float, float]]]:
        """When each client is there, for long enough."""
        return [
            [(start, start + share * period) for start in self._starts(period, phase)]
            for period, share, phase in self.rhythms
        ]

    def _starts(self, period: float, phase: float) -> list[float]:
        return [period * (i + phase) for i in range(200)]

    def bind(self, place: Place) -> Presence:
        return _Hours(self.spans())


@final
class _Hours:
    def __init__(self, spans: Sequence[Sequence[tuple[float, float]]]) -> None:
        self._spans = spans
        self._ends = [[end for _, end in own] for own in spans]

    def span(self, client: int, now: float) -> tuple[bool, float]:
        place = bisect.bisect_right(self._ends[client], now)
        if place == len(self._spans[client]):
            return False, math.inf
        start, end = self._spans[client][place]
        return (True, math.inf if end >= EVER else end) if now >= start else (False, start)


@final
@dataclass(frozen=True, kw_only=True)
class Callers(Arrivals):
    """These clients come, at these times; then the same again, and so on for ever."""

    calls: tuple[tuple[float, int], ...]
    period: float = math.pi * 100

    def __post_init__(self) -> None:
        assert all(0 < time <= self.period for time, _ in self.calls)

    def bind(self, place: Place) -> Callable[[], tuple[float, int]]:
        given = -1

        def following() -> tuple[float, int]:
            nonlocal given
            given += 1
            time, client = self.calls[given % len(self.calls)]
            return given // len(self.calls) * self.period + time, client

        return following


EVER = 1e12
ALWAYS = ((0.0, EVER),)


def fleets() -> SearchStrategy[Fleet]:
    """Fleets of very unequal devices; the paces share no multiple, so that nobody ends at the time of another."""
    paces = st.permutations((0.01, 0.0271828, 0.1414213, 0.5772156, 1.618033, 3.141592))
    return paces.map(lambda seconds: Fleet(devices=Paces(seconds=tuple(seconds))))
