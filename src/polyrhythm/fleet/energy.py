"""What visits cost in energy, and batteries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, final

from annotated_types import Gt, Le

from polyrhythm.base.settings import NonNegative, Positive, Settings


@final
@dataclass(frozen=True, kw_only=True)
class Energy(Settings):
    """Joules for computing and for sending, and the battery they come from.

    With a battery, a client that has less than `reserve` of it left is not there until it is charged to that again, and
    a visit that empties it is lost. All begin with a full one. Charging goes on all the time.

    Args:
        joules_per_flop: for computing, on devices that say nothing else.
        joules_per_byte: for receiving and for sending.
        battery: joules; None for a device on the mains.
        charging: watts.
        reserve: share of the battery below which a client is not there; above 0, or an empty one would be.
    """

    joules_per_flop: NonNegative = 1e-10
    joules_per_byte: NonNegative = 1e-7
    battery: Positive | None = None
    charging: NonNegative = 0.0
    reserve: Annotated[float, Gt(0), Le(1)] = 0.2
