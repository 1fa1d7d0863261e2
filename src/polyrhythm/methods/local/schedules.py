"""How the local learning rate changes, over the run's versions or over the steps inside a visit."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, final

from polyrhythm.base.errors import UserError
from polyrhythm.base.settings import Count, Fraction, NonNegative, Positive, Settings, Whole

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

    def over(self, before: Schedule) -> tuple[Schedule, Schedule]:
        """What it makes piped onto another one, and what of that it takes the place of: a warm-up stays in front."""
        return (replace(before, then=self), before.then) if isinstance(before, WarmUp) else (self, before)


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


@final
@dataclass(frozen=True, kw_only=True)
class WarmUp(Schedule):
    """Linear warm-up: (at + 1) / (length + 1) for `length` versions or steps, then another schedule from 0 on.

    length = 0 is exactly that schedule. Piped onto a recipe it goes in front of the schedule that is there, and one
    that is piped on later comes after it.

    Args:
        length: versions or steps with less than the whole rate.
        then: the schedule after it, of the same unit.

    Raises:
        UserError: the two count other things.

    Reference: Goyal et al., "Accurate, Large Minibatch SGD", 2017, section 2.2, "gradual warmup".

        pr.fedavg(cohort=10) | pr.parts.cosine() | pr.parts.warm_up(length=5)
    """

    length: Whole = 5
    then: Schedule = Constant()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.then.unit != self.unit and not isinstance(self.then, Constant):
            raise UserError(
                f"warm_up by {self.unit} in front of {self.then.label()} by {self.then.unit}",
                expected="one unit for both",
                why="the schedule begins when the warm-up is over, which the two would count differently",
                fix=f'unit="{self.then.unit}" for the warm-up, or unit="{self.unit}" for {self.then.label()}',
            )

    def factor(self, at: int, end: int | None) -> float:
        if at < self.length:
            return (at + 1) / (self.length + 1)
        return self.then.factor(at - self.length, None if end is None else max(end - self.length, 0))

    @property
    def needs_horizon(self) -> bool:
        return self.then.needs_horizon

    def over(self, before: Schedule) -> tuple[Schedule, Schedule]:
        """It in front of the schedule that is there, in place of another warm-up alone."""
        return (
            (replace(self, then=before.then), before)
            if isinstance(before, WarmUp)
            else (
                replace(self, then=before),
                Constant(),
            )
        )
