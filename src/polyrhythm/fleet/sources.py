"""Whole fleets by name: from traces, and from distributions that were fitted to some."""

from __future__ import annotations

import functools
import operator
from pathlib import Path

from polyrhythm.base.errors import UserError
from polyrhythm.base.settings import Settings
from polyrhythm.fleet.bandwidth import BandwidthTrace
from polyrhythm.fleet.behaviour import AvailabilityTrace
from polyrhythm.fleet.capacity import DeviceTrace
from polyrhythm.fleet.devices import Tiers
from polyrhythm.fleet.fleet import Fleet
from polyrhythm.fleet.links import LognormalLinks
from polyrhythm.fleet.markov import Markov

# Fitted by docs/fit_phones.py; docs/fleet.md says to what and how well.
FAST_MS, SLOW_MS = 31.0, 159.0
SHARES, SPREAD = (0.605, 0.395), (0.455, 0.126)
KBPS, KBPS_SIGMA = 6790.0, 1.185
MEAN_ON, MEAN_OFF = 3829.0, 15_067.0
_TRAINING_FACTOR, _BYTES_PER_KBIT = 3, 125


def trace(
    *,
    capacity: str | Path | None = None,
    availability: str | Path | None = None,
    bandwidth: str | Path | None = None,
) -> Fleet:
    """A fleet from recorded traces; what is not given is as in `uniform`.

    In text it may also stand after a pipe, where it changes what it has recordings of: `tiers | trace(bandwidth=…)`.
    For other settings of a file, pipe its part on: `trace(capacity=…) | availability(path=…, rows=file)`.

    Args:
        capacity: speeds and links, as `device_trace` reads them.
        availability: when clients are there, as `availability` reads it.
        bandwidth: links that change over time, as `bandwidth` reads them; they take the place of the capacities' links.

    Raises:
        UserError: no file at all, or a damaged one.
    """
    parts = recordings(capacity=capacity, availability=availability, bandwidth=bandwidth)
    return functools.reduce(operator.or_, parts, Fleet())


def recordings(
    *,
    capacity: str | Path | None = None,
    availability: str | Path | None = None,
    bandwidth: str | Path | None = None,
) -> tuple[Settings, ...]:
    """The parts that `trace` is made of, in the order in which they are piped on.

    Raises:
        UserError: no file at all, or a damaged one.
    """
    if capacity is None and availability is None and bandwidth is None:
        raise UserError(
            "trace without any file",
            expected="capacity, availability or bandwidth, or several of them",
            why="nothing would be as it was recorded",
            fix="trace(capacity=client_device_capacity.json), or leave trace out; without traces a fleet is uniform",
        )
    parts: list[Settings] = []
    if capacity is not None:
        parts.append(DeviceTrace(path=capacity))
    if availability is not None:
        parts.append(AvailabilityTrace(path=availability))
    if bandwidth is not None:
        parts.append(BandwidthTrace(path=bandwidth))
    return tuple(parts)


def phones() -> Fleet:
    """Phones: devices, links and availability by distributions that were fitted to FedScale's traces of real ones.

    Two kinds of devices, 93 and 477 ms per training sample (medians), lognormal within each kind; lognormal links with
    a median of 849 kB/s, both ways; there for 20 % of the time, 64 minutes at a stretch on average. The three are drawn
    independently of each other. Pipe other parts on to change some: `phones | markov(mean_on=1800, mean_off=1800)`.

    The page on fleets says what they were fitted to and how well they fit.

    Reference: Lai et al., "FedScale: Benchmarking Model and System Performance of Federated Learning at Scale", ICML
    2022; its traces themselves are not part of this package.
    """
    devices = Tiers(
        seconds_per_sample=FAST_MS / 1000 * _TRAINING_FACTOR,
        slowdown=(1.0, SLOW_MS / FAST_MS),
        shares=SHARES,
        spread=SPREAD,
    )
    links = LognormalLinks(down=KBPS * _BYTES_PER_KBIT, up=KBPS * _BYTES_PER_KBIT, sigma=KBPS_SIGMA)
    return Fleet(devices=devices, links=links, availability=Markov(mean_on=MEAN_ON, mean_off=MEAN_OFF))
