"""How fast devices are."""

from __future__ import annotations

import bisect
import functools
import math
from dataclasses import dataclass
from typing import final

import numpy as np

from polyrhythm.base.errors import UserError
from polyrhythm.base.frozen import replace_unchecked
from polyrhythm.base.settings import NonNegative, Positive
from polyrhythm.fleet.draws import normal_of, uniform_of
from polyrhythm.fleet.parts import Device, Devices, Place


@final
@dataclass(frozen=True, kw_only=True)
class Uniform(Devices):
    """All devices alike.

    Args:
        seconds_per_sample: virtual seconds to train on one sample; a forward pass alone takes a third.
        flops_per_second: computes by floating-point operations instead, if it is given.
        memory: bytes for training; None for enough.
    """

    seconds_per_sample: NonNegative = 0.001
    flops_per_second: Positive | None = None
    memory: Positive | None = None

    @property
    def bounded(self) -> bool:
        return self.memory is not None

    def device(self, place: Place, client: int) -> Device:
        return Device(
            seconds_per_sample=self.seconds_per_sample if self.flops_per_second is None else None,
            flops_per_second=self.flops_per_second,
            memory=self.memory,
        )


@final
@dataclass(frozen=True, kw_only=True)
class Tiers(Devices):
    """Groups of like devices: with the defaults a third is fast, a third three and a third ten times slower.

    Which client is in which group is drawn once, independently of its data. Within a tier all are alike, unless it has
    a spread: then a device takes exp(spread * z) times as long, z a standard normal number of its own.

    Args:
        slowdown: one number per tier, by which its devices are slower than the reference.
        shares: of the clients in each tier, in any unit; None for equal shares.
        seconds_per_sample: of the reference, to train on one sample.
        memory: bytes for training, one number per tier; empty for enough.
        spread: standard deviation of the log of the time within a tier, one number per tier; empty for none.
        joules_per_flop: for computing, one number per tier; empty for the fleet's.
    """

    slowdown: tuple[Positive, ...] = (1.0, 3.0, 10.0)
    shares: tuple[NonNegative, ...] | None = None
    seconds_per_sample: NonNegative = 0.001
    memory: tuple[Positive, ...] = ()
    spread: tuple[NonNegative, ...] = ()
    joules_per_flop: tuple[NonNegative, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("shares", "memory", "spread", "joules_per_flop"):
            given = getattr(self, name)
            if given and len(given) != len(self.slowdown):
                raise UserError(
                    f"tiers: {len(self.slowdown)} numbers in slowdown and {len(given)} in {name}",
                    expected="as many as there are tiers",
                    why="the numbers belong to the tiers one by one",
                    fix=f"give {name} {len(self.slowdown)} numbers, or leave it out",
                )
        if not self.slowdown or not sum(self.shares or (1.0,)) > 0:
            raise UserError(
                "tiers: no tier has any client",
                expected="at least one tier with a share above 0",
                why="every client is in one",
                fix="slowdown=[1, 3, 10]",
            )

    @property
    def bounded(self) -> bool:
        return bool(self.memory)

    def device(self, place: Place, client: int) -> Device:
        tier = min(bisect.bisect_right(self._ends, uniform_of(place.seed, "tier", client)), len(self.slowdown) - 1)
        spread, device = self.spread[tier] if self.spread else 0.0, self._devices[tier]
        if not spread:
            return device
        factor = math.exp(spread * normal_of(place.seed, "within a tier", client))
        return replace_unchecked(device, seconds_per_sample=self.seconds_per_sample * self.slowdown[tier] * factor)

    @functools.cached_property
    def _devices(self) -> list[Device]:
        """One device of each tier: that of all its clients, where they are alike."""
        return [
            Device(
                seconds_per_sample=self.seconds_per_sample * slowdown,
                memory=self.memory[tier] if self.memory else None,
                joules_per_flop=self.joules_per_flop[tier] if self.joules_per_flop else None,
                group=f"tier {tier + 1}",
            )
            for tier, slowdown in enumerate(self.slowdown)
        ]

    @functools.cached_property
    def _ends(self) -> list[float]:
        """Where each tier ends in [0, 1]."""
        weights = np.asarray(self.shares or [1.0] * len(self.slowdown), dtype=np.float64)
        return list((np.cumsum(weights) / weights.sum()).tolist())
