"""Clients that come and ask for work by themselves."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from polyrhythm.base.settings import Fraction, Positive
from polyrhythm.base.streams import stream
from polyrhythm.fleet.draws import uniforms
from polyrhythm.fleet.files import NOT_NEGATIVE, WHOLE, damaged, digest_of, read_csv
from polyrhythm.fleet.parts import Arrivals, Place

_CHUNK = 1024

Arrival = tuple[float, int]
_NO_MORE: Arrival = (math.inf, -1)


@final
@dataclass(frozen=True, kw_only=True)
class Poisson(Arrivals):
    """Every client comes by chance, `rate` times a second on average, whenever it came before.

    All of them together come N * rate times a second, each time one of the N with equal chance, which costs the same
    for a million clients as for ten. Who is away at that moment, or has no data, does not come.

    Args:
        rate: arrivals of one client per second.
    """

    rate: Positive = 0.001

    def bind(self, place: Place) -> Callable[[], Arrival]:
        return functools.partial(next, self._all(place))

    def _all(self, place: Place) -> Iterator[Arrival]:
        now, chunk = 0.0, 0
        while True:
            draws = stream(place.seed, "fleet", "arrivals", chunk)
            times = now + np.cumsum(draws.exponential(1 / (self.rate * place.population), size=_CHUNK))
            clients = draws.integers(place.population, size=_CHUNK)
            yield from zip(times.tolist(), clients.tolist(), strict=True)
            now, chunk = float(times[-1]), chunk + 1


@final
@dataclass(frozen=True, kw_only=True)
class Every(Arrivals):
    """Every client comes once in every period, always at the same moment of it, which is drawn once.

    Costs 16 bytes a client.

    Args:
        seconds: the period.
        spread: share of it over which clients' moments lie; 0 has all of them come at once.
    """

    seconds: Positive = 3600.0
    spread: Fraction = 1.0

    def bind(self, place: Place) -> Callable[[], Arrival]:
        return functools.partial(next, self._all(place))

    def _all(self, place: Place) -> Iterator[Arrival]:
        phases = uniforms(place.seed, "moment of coming", place.population) * (self.spread * self.seconds)
        order, last, period = np.argsort(phases, kind="stable").tolist(), 0.0, 0
        while True:
            for client in order:
                last = max(last, period * self.seconds + float(phases[client]))  # a rounding must not lead back
                yield last, client
            period += 1


@final
@dataclass(frozen=True, kw_only=True)
class ArrivalTrace(Arrivals):
    """Clients come as a file says: CSV with the columns time and client, in order of time.

    Times are seconds since the run began. After the last line nobody comes any more. Who is away at that moment, or has
    no data, does not come.

    Args:
        path: the file; also .gz.

    Raises:
        UserError: a damaged file, with the line, or, before round 1, a client that there is not.
    """

    path: str | Path

    def __post_init__(self) -> None:
        super().__post_init__()
        self._rows  # noqa: B018  # read now, so that a damaged file is refused before anything runs

    @functools.cached_property
    def _rows(self) -> list[tuple[int, Arrival]]:
        rows, before = read_csv(self.path, {"time": NOT_NEGATIVE, "client": WHOLE}), 0.0
        for line, (time, _) in rows:
            if time < before:
                raise damaged(self.path, f"line {line}", f"time = {time:g} after {before:g}", "times that never fall")
            before = time
        return [(line, (time, client)) for line, (time, client) in rows]

    def bind(self, place: Place) -> Callable[[], Arrival]:
        for line, (_, client) in self._rows:
            if client >= place.population:
                raise damaged(
                    self.path,
                    f"line {line}",
                    f"client = {client}",
                    f"one of the {place.population:,} clients of the federation, 0 to {place.population - 1:,}",
                )
        arrivals = iter([arrival for _, arrival in self._rows])
        return lambda: next(arrivals, _NO_MORE)

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"sha256": digest_of(self.path)}
