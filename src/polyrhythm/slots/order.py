"""Which samples does a client use, in which order?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from polyrhythm.slots.mechanism import Mechanism, Visit
from polyrhythm.streams import stream


@dataclass(frozen=True, kw_only=True)
class Order(Mechanism):
    """Base: the order of one pass over a client's samples."""

    def one_pass(self, visit: Visit, name: tuple[int | str, ...]) -> np.ndarray:
        """Positions into the client's own samples, in the order of use.

        Args:
            visit: the visit that starts the pass.
            name: names the pass: ("visit", visit, epoch), or ("pass", number) where passes go on over visits.

        Returns:
            int64 [m], each between 0 and n_i - 1.
        """
        raise NotImplementedError


@final
@dataclass(frozen=True, kw_only=True)
class Shuffled(Order):
    """Every sample once, in a fresh uniform order for every pass. No state."""

    def one_pass(self, visit: Visit, name: tuple[int | str, ...]) -> np.ndarray:
        return stream(visit.seed, "order", visit.client, *name).permutation(visit.held)
