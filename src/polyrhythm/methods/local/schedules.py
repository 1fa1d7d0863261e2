"""How the local learning rate changes, over the run's versions or over the steps inside a visit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, final

from polyrhythm.base.settings import Count, Fraction, NonNegative, Positive, Settings

Unit = Literal["version", "step"]


@dataclass(frozen=True, kw_only=True)
class Schedule(Settings):
    """A factor on the base learning rate.

    A schedule by version follows the server's versions, so a client absent for ten versions comes back at the rate of
    everybody else; nothing restarts. A schedule by step restarts with every visit.

    Args:
        unit: "version" or "step", what `at` counts.
    """

    unit: Unit = "version"

    def factor(self, at: int, end: int | None) -> float:
        """The factor at version or step `at`, counted from 0; `end` is how many there will be, if known."""
        raise NotImplementedError

    @property
    def needs_horizon(self) -> bool:
        """Whether the number of versions must be known before the run starts."""
        return False


@final
@dataclass(frozen=True, kw_only=True)
class Constant(Schedule):
    """The same rate throughout: factor 1."""

    def factor(self, at: int, end: int | None) -> float:
        return 1.0


@final
@dataclass(frozen=True, kw_only=True)
class StepDecay(Schedule):
    """gamma ** floor(at / every).

    Args:
        every: versions or steps between drops.
        gamma: factor at each drop.
    """

    every: Count
    gamma: Positive = 0.1

    def factor(self, at: int, end: int | None) -> float:
        return float(self.gamma ** (at // self.every))


@final
@dataclass(frozen=True, kw_only=True)
class Exponential(Schedule):
    """gamma ** at.

    Args:
        gamma: factor per version or step; FedCL's code has 0.9 per version.
    """

    gamma: Positive

    def factor(self, at: int, end: int | None) -> float:
        return float(self.gamma**at)


@final
@dataclass(frozen=True, kw_only=True)
class Cosine(Schedule):
    """floor + (1 - floor) * (1 + cos(pi * at / end)) / 2: from 1 down to `floor` over the run, or over the visit.

    Args:
        floor: the factor approached at the end.
    """

    floor: Fraction = 0.0

    def factor(self, at: int, end: int | None) -> float:
        if end is None:
            raise ValueError("cosine needs to know the end")
        return self.floor + (1 - self.floor) * (1 + math.cos(math.pi * min(at, end) / max(end, 1))) / 2

    @property
    def needs_horizon(self) -> bool:
        return self.unit == "version"


@final
@dataclass(frozen=True, kw_only=True)
class Power(Schedule):
    """(1 + alpha * at) ** -power, by default over the steps of a visit.

    Args:
        alpha: how soon it falls, per step or version; 0 is exactly constant.
        power: how far.

    Reference: "When do curricula work in federated learning?", ICCV 2023, supplement 7: alpha 0.001, power 0.75,
    restarting every round.
    """

    unit: Unit = "step"
    alpha: NonNegative = 0.001
    power: NonNegative = 0.75

    def factor(self, at: int, end: int | None) -> float:
        return float((1 + self.alpha * at) ** -self.power)
