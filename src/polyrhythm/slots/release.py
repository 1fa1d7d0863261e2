"""When does the server step, and on what?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from polyrhythm.settings import Count
from polyrhythm.slots.mechanism import Mechanism


@dataclass(frozen=True, kw_only=True)
class ReleasePolicy(Mechanism):
    """Base: when what has arrived becomes a version."""

    def ready(self, *, waiting: int, in_flight: int) -> bool:
        """Whether to release now.

        Args:
            waiting: accepted updates not yet in a version.
            in_flight: assignments neither answered nor lost.
        """
        raise NotImplementedError


@final
@dataclass(frozen=True, kw_only=True)
class WhenAll(ReleasePolicy):
    """Synchronous rounds: the server steps once everybody invited has reported or is lost. No state."""

    def ready(self, *, waiting: int, in_flight: int) -> bool:
        return in_flight == 0


@final
@dataclass(frozen=True, kw_only=True)
class Buffer(ReleasePolicy):
    """Buffered asynchrony: the server steps once `size` updates have arrived, whoever is still under way.

    The server optimiser is handed their mean. size = cohort is exactly `WhenAll` while nobody is lost. If nobody is
    under way any more, what has arrived is released, so losses cannot stop a run. No state.

    Args:
        size: updates per version.

    Reference: Nguyen et al., "Federated Learning with Buffered Asynchronous Aggregation", AISTATS 2022, Algorithm 1.
    """

    size: Count = 5

    def ready(self, *, waiting: int, in_flight: int) -> bool:
        return waiting >= self.size or in_flight == 0
