"""Random units of every width: Federated Dropout."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import final

from torch import Tensor

from polyrhythm.base.axes import Axes
from polyrhythm.base.portions import Cuts, Portion
from polyrhythm.base.streams import stream
from polyrhythm.methods.capacity.base import Widths, count
from polyrhythm.methods.mechanism import Setup


@final
@dataclass(frozen=True, kw_only=True)
class RandomWidth(Widths):
    """A client holds k = ⌈r · n⌉ units of each width that are drawn for its visit, without replacement.

    A width is drawn once for all tensors that it runs along, also for those that a shortcut ties together. ratio = 1 is
    exactly `whole`. No state.

    Args:
        shared: draws once for all clients of a version, rather than for each visit: clients of one ratio then hold the
            same, and narrower ones a part of it.

    Reference: Caldas, Konečný, McMahan, Talwalkar, "Expanding the Reach of Federated Learning by Reducing Client
    Resource Requirements", 2018, section 3.2.
    """

    shared: bool = False

    def kept(
        self, setup: Setup, cuts: Cuts, level: float, client: int, visit: int, version: int, weights: Tensor | None
    ) -> Portion | None:
        assert isinstance(cuts, Axes)
        names = (version,) if self.shared else (client, visit)
        return drawn(cuts, level, setup.seed, names)


@functools.lru_cache(maxsize=256)
def drawn(axes: Axes, ratio: float, seed: int, names: tuple[int, ...]) -> Portion | None:
    """As many units of each axis as a ratio has, drawn."""
    if ratio >= 1:
        return None
    chance = stream(seed, "capacity", *names)
    return axes.portion([chance.permutation(axis.units)[: count(axis, ratio)] for axis in axes.axes])
