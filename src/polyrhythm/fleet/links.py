"""How fast clients receive and send."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any, final

from polyrhythm.base.settings import NonNegative, Positive
from polyrhythm.base.streams import FewIntegers
from polyrhythm.fleet.draws import Rows, normal_of, row_of
from polyrhythm.fleet.files import ABOVE_ZERO, NOT_NEGATIVE, digest_of, read_csv
from polyrhythm.fleet.parts import Line, Links, Place, Way


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


@final
@dataclass(frozen=True, kw_only=True)
class LognormalLinks(Links):
    """A client's link is median * exp(sigma * z) fast, z a standard normal number drawn once, the same for both ways.

    sigma = 0 is exactly `links(down=…, up=…)`.

    Args:
        down, up: medians, bytes per second.
        sigma: standard deviation of the logarithm.
        latency: seconds before the first byte, each way.
    """

    down: Positive = 1e6
    up: Positive = 5e5
    sigma: NonNegative = 1.0
    latency: NonNegative = 0.0

    def bind(self, place: Place) -> Line:
        medians = {"down": self.down, "up": self.up}

        def rate(client: int, way: Way) -> float:
            return medians[way] * math.exp(self.sigma * normal_of(place.seed, "link", client))

        return RatesOfClients(rate, self.latency)


@final
@dataclass(frozen=True, kw_only=True)
class UserSpeeds(Links):
    """Real users, whose speed differs from one transfer to the next: normal with their mean, never below 0.

    A CSV file with the columns down_mean_kb_s, down_std_kb_s, up_mean_kb_s and up_std_kb_s, one row a user; a kB is
    1,024 bytes. The draw is named by the client, the way and the moment the transfer begins.

    Args:
        path: the file.
        rows: "file" gives client i the i-th user, and clients beyond the file drawn ones; "drawn" draws all.
        latency: seconds before the first byte, each way.

    Raises:
        UserError: a damaged file, with the place.

    Reference: Yang et al., "Characterizing Impacts of Heterogeneity in Federated Learning upon Large-Scale Smartphone
    Data", WWW 2021; models/device.py of PKU-Chengxu/FLASH, which draws again while a speed is negative: the same law.
    """

    path: str | Path
    rows: Rows = "file"
    latency: NonNegative = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._users  # noqa: B018  # read now, so that a damaged file is refused before anything runs

    @functools.cached_property
    def _users(self) -> list[dict[Way, NormalDist]]:
        columns = {"down_mean_kb_s": ABOVE_ZERO, "down_std_kb_s": NOT_NEGATIVE} | {
            **{"up_mean_kb_s": ABOVE_ZERO, "up_std_kb_s": NOT_NEGATIVE}
        }
        rows = [values for _, values in read_csv(self.path, columns)]
        return [{"down": NormalDist(*values[:2]), "up": NormalDist(*values[2:])} for values in rows]

    def bind(self, place: Place) -> Line:
        return _Users(self._users, place, self.rows, self.latency)

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"sha256": digest_of(self.path)}


@final
class _Users:
    def __init__(self, users: list[dict[Way, NormalDist]], place: Place, rows: Rows, latency: float) -> None:
        self._users, self._place, self._rows, self._latency = users, place, rows, latency

    def seconds(self, client: int, way: Way, size: int, now: float) -> float:
        seed = self._place.seed
        law = self._users[row_of(seed, "user", client, len(self._users), self._rows)][way]
        speed = law.mean
        if law.stdev:
            drawn = (FewIntegers(seed, "fleet", "speed", client, way, repr(now)).integers(0, 2**32) + 0.5) / 2**32
            below = law.cdf(0.0)
            speed = law.inv_cdf(below + drawn * (1 - below))
        return self._latency + size / (speed * 1024)


@final
class RatesOfClients:
    """Links whose speed is a client's own and never changes.

    Args:
        rate: bytes per second of a client, each way.
        latency: seconds before the first byte.
    """

    def __init__(self, rate: Callable[[int, Way], float], latency: float) -> None:
        self._rate, self._latency = rate, latency

    def seconds(self, client: int, way: Way, size: int, now: float) -> float:
        """How long so many bytes take."""
        return self._latency + size / self._rate(client, way)
