"""Real numbers as whole ones modulo 2^32, so that sums of them are exact in any order, and masks cancel.

x = round(s * v), with s the largest power of two for which a sum of K of them, each up to a bound B, is less than 2^31:
K * (s * B + 1) <= 2^31 - 1. What is read of a sum is then off by at most K / (2 s).
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from polyrhythm.base.errors import UserError

LEAST = 2.0**12
"""Steps to a unit, at least: fewer, and rounding would be seen in the model."""
_LARGEST = 2**31 - 1


def scale_for(most: int, bound: float) -> float:
    """s: steps to a unit of the weights.

    >>> scale_for(20, 1.0) == 2.0**26
    True

    Args:
        most: K, how many are summed at most.
        bound: B, the largest number that one of them has.

    Raises:
        UserError: it would be less than 2^12.
    """
    room = (_LARGEST / most - 1) / bound
    if room < LEAST:
        raise UserError(
            f"secagg: a sum of {most:,} updates with entries up to {bound:g} in 32 bits",
            expected=f"at least {LEAST:g} steps to a unit; here are {max(room, 0.0):.3g}",
            why="more clients and larger numbers leave fewer steps, and the model would be rounded visibly",
            fix="a smaller limit, or a smaller cohort",
        )
    return 2.0 ** math.floor(math.log2(room))


def rounded(vector: Tensor, scale: float, bound: float) -> Tensor | None:
    """A vector as whole numbers, int32 of the same shape; None where one of them is beyond the bound, or is none."""
    wide = vector.to(torch.float64)
    if wide.numel() and not float(wide.abs().max()) <= bound:
        return None
    return torch.round(wide * scale).to(torch.int32)


def as_numbers(whole: Tensor) -> np.ndarray:
    """The same bits as uint32 [n], in memory of its own."""
    return whole.detach().cpu().numpy().astype(np.int32, copy=False).view(np.uint32).copy()


def as_tensor(numbers: np.ndarray) -> Tensor:
    """And back, as int32: torch adds nothing unsigned."""
    return torch.from_numpy(numbers.astype(np.uint32, copy=False).view(np.int32))


def read(numbers: np.ndarray, scale: float) -> Tensor:
    """A sum as real numbers, float64 [n]."""
    return torch.from_numpy(numbers.astype(np.uint32, copy=False).view(np.int32).astype(np.float64) / scale)
