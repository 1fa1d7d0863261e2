"""A fleet in numbers: what its devices, links and comings and goings are like."""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import final

import numpy as np

from polyrhythm.fleet.fleet import Fleet
from polyrhythm.fleet.parts import Place, Way
from polyrhythm.fleet.periodic import DAY

MOST_CLIENTS = 1000  # that are followed through time, or whose links are tried
SIZE = 1_000_000  # bytes of a transfer that is tried
SLOTS = 24
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@final
@dataclass(frozen=True, kw_only=True)
class Survey:
    """What was found.

    Args:
        clients: how many there are.
        followed: how many of them, evenly spread, `down` to `stays` are about.
        seconds_per_sample: of those devices whose speed is given so, [devices].
        flops_per_second: of the others, [devices].
        memory: bytes, of those devices that have a limit, [devices].
        groups: clients in each group of devices, in order of their names.
        down, up: bytes per second of 1 MB that sets out when the run begins, [followed]; infinity for no limit.
        share: of the horizon in which each is there, [followed].
        there: share of the clients that are there in each of 24 equal parts of the horizon, [24].
        stays: seconds at a stretch that a client is there, of all stretches that end within the horizon.
        horizon: seconds that were looked at.
        arrivals: how many come by themselves in the horizon; None if nobody does.
    """

    clients: int
    followed: int
    seconds_per_sample: np.ndarray
    flops_per_second: np.ndarray
    memory: np.ndarray
    groups: dict[str, int]
    down: np.ndarray
    up: np.ndarray
    share: np.ndarray
    there: np.ndarray
    stays: np.ndarray
    horizon: float
    arrivals: int | None


def survey(
    fleet: Fleet,
    clients: int,
    seed: int,
    *,
    horizon: float = DAY,
    labels: Callable[[int], np.ndarray] | None = None,
) -> Survey:
    """Looks at a fleet, at all of its devices and at up to 1,000 of its clients through time.

    Args:
        fleet: which.
        clients: N.
        seed: of an experiment.
        horizon: seconds from the beginning to look at.
        labels: the share of each class in a client's samples, for fleets that depend on it.
    """
    place = Place(population=clients, seed=seed, labels=labels)
    devices = [fleet.devices.device(place, client) for client in range(clients)]
    some = _followed(clients)
    line, presence = fleet.links.bind(place), fleet.availability.bind(place)

    def speeds(way: Way) -> np.ndarray:
        taken = (line.seconds(client, way, SIZE, 0.0) for client in some)
        return np.array([SIZE / seconds if seconds else math.inf for seconds in taken])

    there = [list(_stretches(functools.partial(presence.span, client), horizon)) for client in some]
    edges = np.linspace(0, horizon, SLOTS + 1)
    covered = sum((np.diff(_time_there(stretches, edges)) for stretches in there), start=np.zeros(SLOTS))
    return Survey(
        clients=clients,
        followed=len(some),
        seconds_per_sample=np.array([d.seconds_per_sample for d in devices if d.seconds_per_sample is not None]),
        flops_per_second=np.array([d.flops_per_second for d in devices if d.seconds_per_sample is None], dtype=float),
        memory=np.array([d.memory for d in devices if d.memory is not None]),
        groups=dict(sorted(Counter(d.group for d in devices if d.group).items())),
        down=speeds("down"),
        up=speeds("up"),
        share=np.array([sum(end - start for start, end in stretches) / horizon for stretches in there]),
        there=covered / (len(some) * horizon / SLOTS),
        stays=np.array([end - start for stretches in there for start, end in stretches if start > 0 and end < horizon]),
        horizon=horizon,
        arrivals=_arrivals(fleet, place, horizon),
    )


def met(
    fleet: Fleet,
    clients: int,
    seed: int,
    seconds: float,
    *,
    labels: Callable[[int], np.ndarray] | None = None,
) -> float:
    """The share of the clients that are there at some time of the first seconds; of up to 1,000 that are followed.

    Args:
        fleet: which.
        clients: N.
        seed: of an experiment.
        seconds: from the beginning; at least one is looked at.
        labels: the share of each class in a client's samples, for fleets that depend on it.
    """
    presence = fleet.availability.bind(Place(population=clients, seed=seed, labels=labels))
    some, horizon = _followed(clients), max(1.0, seconds)
    return sum(any(_stretches(functools.partial(presence.span, client), horizon)) for client in some) / len(some)


def _followed(clients: int) -> list[int]:
    """At most 1,000 of them, evenly spread."""
    found: list[int] = np.unique(np.linspace(0, clients - 1, min(clients, MOST_CLIENTS)).astype(int)).tolist()
    return found


def _stretches(span: Callable[[float], tuple[bool, float]], horizon: float) -> Iterator[tuple[float, float]]:
    """From when until when one client is there."""
    now = 0.0
    while now < horizon:
        there, until = span(now)
        if there:
            yield now, min(until, horizon)
        now = until


def _time_there(stretches: list[tuple[float, float]], moments: np.ndarray) -> np.ndarray:
    """Seconds that somebody has been there by each moment."""
    starts, ends = np.array(stretches).reshape(-1, 2).T
    past: np.ndarray = np.clip(moments[:, None], starts, ends) - starts
    by: np.ndarray = past.sum(axis=1)
    return by


def _arrivals(fleet: Fleet, place: Place, horizon: float) -> int | None:
    if fleet.arrivals is None:
        return None
    following = fleet.arrivals.bind(place)
    return sum(1 for _ in itertools.takewhile(lambda arrival: arrival[0] < horizon, iter(following, None)))
