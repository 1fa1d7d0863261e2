"""The books of a run: what its clients have spent, waited for and brought in, since the start.

Everything is kept as sums that change with each event, so a version costs as much to close as clients took part in it
or are still under way, whatever the population.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

from polyrhythm.fleet import Spent
from polyrhythm.runs.costs import TOTALS
from polyrhythm.runs.records import VisitRecord

_SPENT = tuple(cost.name for cost in TOTALS if hasattr(Spent, cost.name))  # what visits add up to
_SUMS = ("samples", *_SPENT, "compute_seconds")
OUTLIER = 10.0
"""An accepted update is an outlier if it is so many times as long as the median of those before."""
_WINDOW, _FEWEST = 50, 10
_STATUSES = ("trained", "measured", "skipped", "dropped", "late", "lost")


class Part(NamedTuple):
    """What a visit has done so far."""

    steps: int
    samples: int
    spent: Spent


@final
@dataclass
class Ledger:
    """Adds up visits, in the order in which they are heard; and at each version what those under way have done by then.

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
    _waiting: dict[int, float] = field(default_factory=dict)
    _accepted: dict[int, int] = field(default_factory=dict)
    _accepted_sum: int = 0
    _accepted_squares: int = 0
    _faults: dict[str, int] = field(default_factory=dict)
    _norms: list[float] = field(default_factory=list)

    def sent(self, clients: Iterable[int], now: float) -> None:
        """Clients set out on visits."""
        for client in clients:
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

    def over(self) -> dict[str, int]:
        """What visits that are over add up to, where it is a whole number and their records have it, by its name."""
        return {"steps": self._steps, **{name: int(self._sums[name]) for name in ("samples", "bytes_up", "bytes_down")}}

    def totals(self, now: float, under_way: Iterable[Part] = ()) -> dict[str, Any]:
        """The cumulative fields of a version's record, after `released` was told of it.

        Args:
            now: the time of the version.
            under_way: what each visit that is not over has done by then.
        """
        sums, steps, links = dict(self._sums), self._steps, self._links
        for part in under_way:
            steps += part.steps
            sums["samples"] += part.samples
            for name in _SPENT:
                sums[name] += getattr(part.spent, name)
            sums["compute_seconds"] += part.spent.compute
            links += part.spent.down + part.spent.up
        busy = sums["compute_seconds"] + links
        return {
            **sums,
            "client_updates": self.client_updates,
            "local_steps": steps,
            "link_seconds": links,
            "waiting_seconds": self._waited,
            "visits": sum(self._counts.values()),
            "dropped_visits": self._counts["dropped"],
            "late_visits": self._counts["late"],
            "lost_visits": self._counts["lost"],
            "faults": dict(self._faults),
            "utilisation": busy / (self._eligible * now) if now > 0 else None,
            "fairness": self._fairness(),
        }

    def _fairness(self) -> float | None:
        """Jain's index, (sum x)^2 / (N sum x^2), from its two sums: O(1), whoever took part."""
        if not self._accepted_sum:
            return None
        return self._accepted_sum**2 / (self._eligible * self._accepted_squares)
