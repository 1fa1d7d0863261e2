"""Day and night."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, final

import numpy as np
from annotated_types import Gt, Le

from polyrhythm.base.settings import Count, NonNegative, Positive
from polyrhythm.fleet.cycles import cycle_span
from polyrhythm.fleet.draws import uniform_of, uniforms
from polyrhythm.fleet.parts import Availability, Place, Presence

DAY = 86_400.0


@final
@dataclass(frozen=True, kw_only=True)
class Periodic(Availability):
    """Clients are there for the same part of every period, such as at night, each in a time zone of its own.

    A client comes at zone * period / zones + late, and again after every period; its zone and how late it is, from 0 to
    `spread` seconds, are drawn once. on = 1 is exactly always. Closed form, no state; also for a million clients.

    Args:
        period: seconds.
        on: share of it in which a client is there.
        zones: time zones, equally likely; 1 puts all in one, so that they come and go together.
        spread: seconds over which the clients of one zone come.
    """

    period: Positive = DAY
    on: Annotated[float, Gt(0), Le(1)] = 0.3
    zones: Count = 24
    spread: NonNegative = 3600.0

    @property
    def always(self) -> bool:
        return self.on == 1

    def bind(self, place: Place) -> Presence:
        return _Periodic(self, place)


@final
class _Periodic:
    def __init__(self, settings: Periodic, place: Place) -> None:
        self._settings, self._place = settings, place
        self._toggles = (0.0, settings.on * settings.period)
        self._all = np.empty(0)

    def span(self, client: int, now: float) -> tuple[bool, float]:
        if self._settings.always:
            return True, math.inf
        seed = self._place.seed
        shift = float(self._shift(uniform_of(seed, "zone", client), uniform_of(seed, "late", client)))
        return cycle_span(self._toggles, self._settings.period, shift, now)

    def comes(self, clients: np.ndarray, now: float) -> np.ndarray:
        if self._settings.always:
            return np.full(len(clients), math.inf)
        if not len(self._all):
            seed, many = self._place.seed, self._place.population
            self._all = self._shift(uniforms(seed, "zone", many), uniforms(seed, "late", many))
        shift, period = self._all[clients], self._settings.period
        cycle = np.floor((now - shift) / period)
        # As in `cycle_span`: the last moment of coming that is not after now, computed in the one way.
        cycle -= shift + cycle * period + self._toggles[0] > now
        cycle += shift + (cycle + 1) * period + self._toggles[0] <= now
        following: np.ndarray = shift + (cycle + 1) * period + self._toggles[0]
        return following

    def _shift(self, zone: Any, late: Any) -> Any:
        """When a client comes for the first time, for one or many."""
        s = self._settings
        return np.floor(zone * s.zones) * (s.period / s.zones) + late * s.spread
