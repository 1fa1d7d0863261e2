"""How fast clients receive and send."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from polyrhythm.fleet.parts import Line, Links, Place, Way
from polyrhythm.settings import NonNegative, Positive


@final
@dataclass(frozen=True, kw_only=True)
class FixedLinks(Links):
    """Everybody's link is the same. Without settings, links cost no time.

    Args:
        down, up: bytes per second; None for no limit.
        latency: seconds before the first byte, each way.
    """

    down: Positive | None = None
    up: Positive | None = None
    latency: NonNegative = 0.0

    def bind(self, place: Place) -> Line:
        return _Fixed(self)


@final
class _Fixed:
    def __init__(self, links: FixedLinks) -> None:
        self._latency, self._rates = links.latency, {"down": links.down, "up": links.up}

    def seconds(self, client: int, way: Way, size: int, now: float) -> float:
        rate = self._rates[way]
        return self._latency + (size / rate if rate else 0.0)
