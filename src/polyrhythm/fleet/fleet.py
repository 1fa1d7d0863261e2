"""How long a client's work takes, on a clock of its own: virtual seconds, not measured ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from polyrhythm.settings import NonNegative, Settings
from polyrhythm.slots.budgets import Budgets
from polyrhythm.wires import Report


@dataclass(frozen=True, kw_only=True)
class Fleet(Settings):
    """Base: what the devices are like. Deterministic: the same visit always takes the same time.

    Args:
        budgets: the share of its visits in which each client can afford to train, for recipes that skip; None where
            the fleet says nothing about it.
    """

    budgets: Budgets | None = None

    @classmethod
    def label(cls) -> str:
        """The fleet's name in an experiment: `UniformFleet` is `uniform`."""
        return super().label().removesuffix("_fleet")

    def duration(self, report: Report) -> float:
        """Virtual seconds between an assignment and the arrival of its report, from the work that was really done."""
        raise NotImplementedError


@final
@dataclass(frozen=True, kw_only=True)
class UniformFleet(Fleet):
    """All devices alike, always there, with links that cost no time.

    Args:
        seconds_per_sample: virtual seconds to train on one sample; a forward pass alone takes a third.
    """

    seconds_per_sample: NonNegative = 0.001

    def duration(self, report: Report) -> float:
        trained = report.samples + report.gradient_samples
        return self.seconds_per_sample * (trained + report.forward_samples / 3)
