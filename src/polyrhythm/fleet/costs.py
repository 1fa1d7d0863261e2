"""What one visit asks of a device, and what it cost."""

from __future__ import annotations

import math
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
        forward_flops: those of them in forward passes; the rest is gradients.
        bytes_down, bytes_up: what travels.
        turns: round trips beside the one in which the work is done, of few bytes, which are counted above.
        effort: operations for a sample over those that the whole model takes, where a part of it is trained.
    """

    samples: int = 0
    forward_samples: int = 0
    flops: int = 0
    forward_flops: int = 0
    bytes_down: int = 0
    bytes_up: int = 0
    effort: float = 1.0
    turns: int = 0


@final
@dataclass(frozen=True, kw_only=True)
class Spent:
    """What a visit cost a device, whether or not anything came of it. Sums over visits are sums of every field.

    Args:
        down, compute, up: seconds of receiving, working and sending.
        flops: floating-point operations done.
        forward_flops: those of them in forward passes.
        bytes_down, bytes_up: what travelled.
        joules: energy.
        compute_joules: that of them which working took; the rest is the links', evenly over the bytes.
    """

    down: float = 0.0
    compute: float = 0.0
    up: float = 0.0
    flops: int = 0
    forward_flops: int = 0
    bytes_down: int = 0
    bytes_up: int = 0
    joules: float = 0.0
    compute_joules: float = 0.0

    @property
    def seconds(self) -> float:
        """All of the time."""
        return self.down + self.compute + self.up

    @property
    def backward_flops(self) -> int:
        """Floating-point operations of gradients."""
        return self.flops - self.forward_flops

    def done(self, seconds: float) -> tuple[float, float, float]:
        """The shares of receiving, working and sending that are done after so many seconds.

        What takes no time is done as soon as it is its turn.
        """
        left, shares = seconds, []
        for whole in (self.down, self.compute, self.up):
            shares.append(1.0 if left >= whole else max(0.0, left) / (whole or 1.0))
            left -= whole
        return shares[0], shares[1], shares[2]

    def until(self, seconds: float) -> Spent:
        """What has been spent after so many seconds: of each phase the part that is done."""
        if seconds >= self.seconds:
            return self
        down, compute, up = self.done(seconds)
        received, worked, sent = self._energies()
        return Spent(
            down=down * self.down,
            compute=compute * self.compute,
            up=up * self.up,
            flops=int(compute * self.flops),
            forward_flops=int(compute * self.forward_flops),
            bytes_down=int(down * self.bytes_down),
            bytes_up=int(up * self.bytes_up),
            joules=down * received + compute * worked + up * sent,
            compute_joules=compute * worked,
        )

    def lasts(self, left: float, charging: float = 0.0, full: float = math.inf) -> float:
        """After how many seconds a battery is empty; infinity if it lasts. What takes no time spends at once.

        >>> Spent(down=2.0, compute=3.0, bytes_down=10, joules=7.0, compute_joules=6.0).lasts(3.0)
        3.0

        Args:
            left: joules in it when the visit begins.
            charging: watts.
            full: joules that it can hold.
        """
        passed = 0.0
        for whole, energy in zip((self.down, self.compute, self.up), self._energies(), strict=True):
            net = energy - charging * whole
            if net > left:
                return passed + whole * left / net
            left, passed = min(full, left - net), passed + whole
        return math.inf

    def _energies(self) -> tuple[float, float, float]:
        """Of receiving, working and sending."""
        size = self.bytes_down + self.bytes_up
        a_byte = (self.joules - self.compute_joules) / size if size else 0.0
        return a_byte * self.bytes_down, self.compute_joules, a_byte * self.bytes_up
