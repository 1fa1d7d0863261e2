"""When clients are there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from polyrhythm.fleet.parts import Availability, Place, Presence


@final
@dataclass(frozen=True, kw_only=True)
class Always(Availability):
    """Everybody is always there."""

    @property
    def always(self) -> bool:
        return True

    def bind(self, place: Place) -> Presence:
        return _Always()


@final
class _Always:
    def span(self, client: int, now: float) -> tuple[bool, float]:
        return True, math.inf

    def comes(self, clients: np.ndarray, now: float) -> np.ndarray:
        return np.full(len(clients), math.inf)
