"""What one visit asks of a device, and what it cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, kw_only=True)
class Load:
    """The work in one visit, whoever does it.

    Args:
        samples: trained on, counted as often as they were used, and those of extra gradients.
        forward_samples: of extra forward passes: scores, frozen models, measurements.
        flops: floating-point operations of all of it.
        bytes_down, bytes_up: what travels.
    """

    samples: int = 0
    forward_samples: int = 0
    flops: int = 0
    bytes_down: int = 0
    bytes_up: int = 0


@final
@dataclass(frozen=True, kw_only=True)
class Spent:
    """What a visit cost a device, whether or not anything came of it. Sums over visits are sums of every field.

    Args:
        down, compute, up: seconds of receiving, working and sending.
        flops: floating-point operations done.
        bytes_down, bytes_up: what travelled.
        joules: energy.
    """

    down: float = 0.0
    compute: float = 0.0
    up: float = 0.0
    flops: int = 0
    bytes_down: int = 0
    bytes_up: int = 0
    joules: float = 0.0

    @property
    def seconds(self) -> float:
        """All of the time."""
        return self.down + self.compute + self.up

    def until(self, seconds: float) -> Spent:
        """What had been spent when the visit broke off after so many seconds."""
        if seconds >= self.seconds:
            return self
        down = min(self.down, seconds)
        compute = min(self.compute, seconds - down)
        up = max(0.0, seconds - down - compute)
        parts = (_part(down, self.down), _part(compute, self.compute), _part(up, self.up))
        total = self.bytes_down + self.bytes_up + self.flops
        return Spent(
            down=down,
            compute=compute,
            up=up,
            flops=int(parts[1] * self.flops),
            bytes_down=int(parts[0] * self.bytes_down),
            bytes_up=int(parts[2] * self.bytes_up),
            joules=self.joules * seconds / self.seconds if total else 0.0,
        )


def _part(done: float, whole: float) -> float:
    return done / whole if whole else float(done > 0)
