"""Coming and going by chance."""

from __future__ import annotations

import bisect
import math
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, final

import numpy as np
from annotated_types import Gt, Le

from polyrhythm.base.errors import UserError
from polyrhythm.base.settings import Positive
from polyrhythm.base.streams import stream
from polyrhythm.fleet.draws import uniform_of
from polyrhythm.fleet.parts import Availability, Place, Presence

_CHUNK = 32  # durations drawn at a time


@final
@dataclass(frozen=True, kw_only=True)
class Markov(Availability):
    """Clients come and go by chance: exponential durations, one independent of the other.

    Each is there for mean_on / (mean_on + mean_off) of the time, also at the start. A client's durations are drawn when
    it is first asked about, some at a time: 8 bytes each, kept.

    Args:
        mean_on, mean_off: seconds.
    """

    mean_on: Positive = 3600.0
    mean_off: Positive = 14_400.0

    def bind(self, place: Place) -> Presence:
        return _ByChance(place, lambda client: (self.mean_on, self.mean_off))


@final
@dataclass(frozen=True, kw_only=True)
class ByLabels(Availability):
    """Who holds a small class number is rarely there: availability goes with the data.

    Client i is there for p_i = lowest + (highest - lowest) * (smallest class it holds) / (classes - 1) of the time, and
    comes and goes by chance: on average it is there for p_i * cycle and away for (1 - p_i) * cycle seconds. lowest =
    highest = 1 is exactly always.

    Args:
        lowest, highest: shares of the time.
        cycle: seconds from one coming to the next, on average.

    Raises:
        UserError: before round 1, data whose samples have no class.

    Departure: in MIFA every client is drawn anew in every round. Here rounds last as long as they last, so it is a
    process in time with the same shares.

    Reference: Gu et al., "Fast Federated Learning in the Presence of Arbitrary Device Unavailability" (MIFA), NeurIPS
    2021; data/gen_avail_prob.py of hmgxr128/MIFA_code.
    """

    lowest: Annotated[float, Gt(0), Le(1)] = 0.1
    highest: Annotated[float, Gt(0), Le(1)] = 1.0
    cycle: Positive = 3600.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lowest > self.highest:
            raise UserError(
                f"by_labels: lowest = {self.lowest:g} above highest = {self.highest:g}",
                expected="lowest not above highest",
                why="clients with class 0 are there for the share lowest, those with only the last class for highest",
                fix="exchange the two",
            )

    @property
    def always(self) -> bool:
        return self.lowest == 1

    def bind(self, place: Place) -> Presence:
        if place.labels is None:
            raise UserError(
                "by_labels: samples without classes",
                expected="data whose samples have one class each",
                why="a client's availability follows from the smallest class that it holds",
                fix="use markov(mean_on=3600, mean_off=14400) for such data",
            )
        labels = place.labels

        def means(client: int) -> tuple[float, float]:
            held = labels(client)
            place_of_class = int(np.flatnonzero(held)[0]) / max(1, len(held) - 1) if held.any() else 0.0
            share = self.lowest + (self.highest - self.lowest) * place_of_class
            return share * self.cycle, (1 - share) * self.cycle

        return _ByChance(place, means)


@final
class _Line:
    """What is known so far of one client's coming and going."""

    def __init__(self, there: bool, means: tuple[float, float]) -> None:
        self.there, self.means = there, means  # at the start
        self.toggles, self.chunks = array("d"), 0


@final
class _ByChance:
    """Presence with exponential durations.

    Args:
        place: of the run.
        means: seconds that a client is there and away, on average.
    """

    def __init__(self, place: Place, means: Callable[[int], tuple[float, float]]) -> None:
        self._seed, self._means = place.seed, means
        self._lines: dict[int, _Line] = {}

    def span(self, client: int, now: float) -> tuple[bool, float]:
        line = self._line(client)
        if 0.0 in line.means:
            return line.there, math.inf
        while not line.chunks or line.toggles[-1] <= now:
            self._draw(client, line)
        passed = bisect.bisect_right(line.toggles, now)
        return line.there == (passed % 2 == 0), line.toggles[passed]

    def _line(self, client: int) -> _Line:
        if client not in self._lines:
            on, off = self._means(client)
            # Exponential durations have no memory, so the first one is like all others.
            there = uniform_of(self._seed, "there at the start", client) < on / (on + off)
            self._lines[client] = _Line(there, (on, off))
        return self._lines[client]

    def _draw(self, client: int, line: _Line) -> None:
        """The next durations: named by the client and their place, so whoever asks when makes no difference."""
        durations = stream(self._seed, "fleet", "coming and going", client, line.chunks).exponential(size=_CHUNK)
        durations[0::2] *= line.means[0 if line.there else 1]
        durations[1::2] *= line.means[1 if line.there else 0]
        last = line.toggles[-1] if line.chunks else 0.0
        line.toggles.frombytes((last + np.cumsum(durations)).tobytes())
        line.chunks += 1
