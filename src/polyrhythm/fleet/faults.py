"""What goes wrong on devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from polyrhythm.settings import Fraction, NonNegative, Settings


@final
@dataclass(frozen=True, kw_only=True)
class Faults(Settings):
    """Visits that come to nothing, by chance and independently of each other.

    A visit breaks off at a moment drawn uniformly over its duration; what it has cost by then is spent. The client
    keeps its state of the last accepted visit.

    Args:
        dropout: probability that a client gives a visit up.
        crash: probability that its device fails in a visit, and is away for `downtime`.
        downtime: seconds until it is back.
    """

    dropout: Fraction = 0.0
    crash: Fraction = 0.0
    downtime: NonNegative = 600.0
