"""A window of every width that moves on with each version: FedRolex."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import final

import numpy as np
from torch import Tensor

from polyrhythm.base.axes import Axes
from polyrhythm.base.portions import Cuts, Portion
from polyrhythm.methods.capacity.base import Widths, count
from polyrhythm.methods.mechanism import Setup


@final
@dataclass(frozen=True, kw_only=True)
class RollingWindow(Widths):
    """In version t a client holds the units (t + j) mod n of each width, for j below k = ⌈r · n⌉.

    All clients of one ratio hold the same in a version, and over n versions each unit is held equally often. ratio = 1
    is exactly `whole`. No state.

    Departure: the authors' code rolls backward; this is the paper's direction.

    Reference: Alam, Liu, Yan, Zhang, "FedRolex: Model-Heterogeneous Federated Learning with Rolling Sub-Model
    Extraction", NeurIPS 2022, equation (3).
    """

    def kept(
        self, setup: Setup, cuts: Cuts, level: float, client: int, visit: int, version: int, weights: Tensor | None
    ) -> Portion | None:
        assert isinstance(cuts, Axes)
        return window(cuts, level, version)


@functools.lru_cache(maxsize=64)
def window(axes: Axes, ratio: float, version: int) -> Portion | None:
    """As many units of each axis as a ratio has, from one on that moves with the version."""
    return axes.portion([(version + np.arange(count(axis, ratio))) % axis.units for axis in axes.axes])
