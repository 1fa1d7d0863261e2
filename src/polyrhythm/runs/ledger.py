"""The books of a run: what its clients have spent, waited for and brought in, since the start.

Everything is kept as sums that change with each event, so a version costs as much to close as clients took part in it,
whatever the population.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, final

from polyrhythm.runs.records import VisitRecord

_SUMS = ("samples", "flops", "forward_flops", "backward_flops", "bytes_up", "bytes_down", "joules", "compute_seconds")
OUTLIER = 10.0
"""An accepted update is an outlier if it is so many times as long as the median of those before."""
_WINDOW, _FEWEST = 50, 10
_STATUSES = ("trained", "measured", "skipped", "dropped", "late", "lost")


@final
@dataclass
class Ledger:
    """Adds up visits, in the order in which they are heard.

    A client is busy from its invitation until its report is heard or it is lost. It waits from an accepted report until
    the version that this went into, or until it sets out again if that is earlier. The rest of its time it is idle, or
    away. So busy and waiting never overlap, and no client has more of both than there was time.

    Args:
        eligible: how many clients hold data.
    """

    _eligible: int
    _sums: dict[str, Any] = field(default_factory=lambda: dict.fromkeys(_SUMS, 0))
    _counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_STATUSES, 0))
    _steps: int = 0
    _links: float = 0.0
    _waited: float = 0.0
    _out: int = 0  # visits under way
    _since: float = 0.0  # the sum of the times when they began
    _waiting: dict[int, float] = field(default_factory=dict)
    _accepted: dict[int, int] = field(default_factory=dict)
    _accepted_sum: int = 0
    _accepted_squares: int = 0
    _faults: dict[str, int] = field(default_factory=dict)
    _norms: list[float] = field(default_factory=list)

    def sent(self, clients: Iterable[int], now: float) -> None:
        """Clients set out on visits."""
        for client in clients:
            self._out += 1
            self._since += now
            since = self._waiting.pop(client, None)
            if since is not None:
                self._waited += now - since

    def stands_out(self, norm: float | None) -> bool:
        """Whether an accepted update is far longer than those before it; it is one of those before the next."""
        if not norm:
            return False
        known = len(self._norms) >= _FEWEST
        outlier = known and norm > OUTLIER * statistics.median(self._norms)
        self._norms = [*self._norms, norm][-_WINDOW:]
        return outlier

    def went_wrong(self, fault: str) -> None:
        """Counts what went wrong, where something did."""
        if fault:
            self._faults[fault] = self._faults.get(fault, 0) + 1

    def heard(self, record: VisitRecord, *, counts: bool) -> None:
        """A visit is over; `counts` says whether what it sent will be part of a version."""
        self._counts[record.status] += 1
        self.went_wrong(record.fault)
        self._steps += record.steps
        for name in _SUMS:
            self._sums[name] += getattr(record, name)
        self._links += record.down_seconds + record.up_seconds
        self._out -= 1
        self._since = self._since - record.started if self._out else 0.0  # no rounding remains
        if counts:
            before = self._accepted.get(record.client, 0)
            self._accepted[record.client] = before + 1
            self._accepted_sum += 1
            self._accepted_squares += 2 * before + 1
            self._waiting[record.client] = record.finished

    def released(self, now: float) -> None:
        """The server made a version of everything that had been accepted."""
        self._waited += math.fsum(now - since for since in self._waiting.values())
        self._waiting.clear()

    @property
    def client_updates(self) -> int:
        """Visits that trained and were accepted."""
        return self._counts["trained"]

    def totals(self, now: float) -> dict[str, Any]:
        """The cumulative fields of a version's record, after `released` was told of it."""
        return {
            **self._sums,
            "client_updates": self.client_updates,
            "local_steps": self._steps,
            "link_seconds": self._links,
            "waiting_seconds": self._waited,
            "visits": sum(self._counts.values()),
            "dropped_visits": self._counts["dropped"],
            "late_visits": self._counts["late"],
            "lost_visits": self._counts["lost"],
            "faults": dict(self._faults),
            "utilisation": self._utilisation(now),
            "fairness": self._fairness(),
        }

    def _utilisation(self, now: float) -> float | None:
        busy = self._sums["compute_seconds"] + self._links + (self._out * now - self._since)
        return busy / (self._eligible * now) if now > 0 else None

    def _fairness(self) -> float | None:
        """Jain's index, (sum x)^2 / (N sum x^2), from its two sums: O(1), whoever took part."""
        if not self._accepted_sum:
            return None
        return self._accepted_sum**2 / (self._eligible * self._accepted_squares)
