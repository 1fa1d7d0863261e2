"""The kinds of parts that a fleet is made of. Each is a frozen value; what depends on the run is bound to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, final, runtime_checkable

import numpy as np

from polyrhythm.base.settings import Settings


@final
@dataclass(frozen=True, kw_only=True)
class Place:
    """What the parts of a fleet may know of the run.

    Args:
        population: N, the clients that the federation declares.
        seed: the experiment's seed; every draw is named by it, a purpose and a client.
        labels: the share of each class in a client's samples, [classes]; None where the data have no classes.
    """

    population: int
    seed: int
    labels: Callable[[int], np.ndarray] | None = None


@final
@dataclass(frozen=True, kw_only=True)
class Device:
    """One client's machine.

    Args:
        seconds_per_sample: to train on one sample; a forward pass alone takes a third. None: by `flops_per_second`.
        flops_per_second: how fast it computes, where `seconds_per_sample` does not say so.
        memory: bytes for training; None for enough.
        joules_per_flop: for computing; None for the fleet's.
        group: of like devices, such as "tier 2"; empty for none.
    """

    seconds_per_sample: float | None = None
    flops_per_second: float | None = None
    memory: float | None = None
    joules_per_flop: float | None = None
    group: str = ""

    def seconds(self, samples: float, forward_samples: float, flops: float, effort: float = 1.0) -> float:
        """How long work takes; a sample `effort` times as long as with the whole model."""
        if self.seconds_per_sample is not None:
            return self.seconds_per_sample * (samples + forward_samples / 3) * effort
        return flops / self.flops_per_second if self.flops_per_second else 0.0


@dataclass(frozen=True, kw_only=True)
class Devices(Settings):
    """Base: which machine each client has."""

    @property
    def bounded(self) -> bool:
        """Whether the memory of any device is limited, so that somebody has to look."""
        return False

    def device(self, place: Place, client: int) -> Device:
        """One client's machine: the same one whenever it is asked for."""
        raise NotImplementedError


Way = Literal["down", "up"]


class Line(Protocol):
    """The links of a run."""

    def seconds(self, client: int, way: Way, size: int, now: float) -> float:
        """How long so many bytes take if they set out now."""


@dataclass(frozen=True, kw_only=True)
class Links(Settings):
    """Base: how fast clients receive and send."""

    def bind(self, place: Place) -> Line:
        """The links of one run."""
        raise NotImplementedError


class Presence(Protocol):
    """Who is there, in a run."""

    def span(self, client: int, now: float) -> tuple[bool, float]:
        """Whether a client is there, and until when that stays so: later than now; infinity for ever."""


@runtime_checkable
class Timetable(Presence, Protocol):
    """Who is there, where that can be looked up for many clients at once."""

    def comes(self, clients: np.ndarray, now: float) -> np.ndarray:
        """When each of some clients comes next, later than now, [clients]; infinity for never. As `span` has it."""


@dataclass(frozen=True, kw_only=True)
class Availability(Settings):
    """Base: when clients are there."""

    @property
    def always(self) -> bool:
        """Whether everybody is always there, so that nobody has to look."""
        return False

    def bind(self, place: Place) -> Presence:
        """Who is there in one run."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Arrivals(Settings):
    """Base: clients that come and ask for work by themselves."""

    def bind(self, place: Place) -> Callable[[], tuple[float, int]]:
        """Gives the next arrival, (time, client), each time it is called; times never fall. Infinity: no more."""
        raise NotImplementedError
