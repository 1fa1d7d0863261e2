"""When does the server step, and on what?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

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
