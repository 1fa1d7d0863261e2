"""Coming and going as it was recorded."""

from __future__ import annotations

import bisect
import functools
import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, final

from polyrhythm.base.settings import NonNegative
from polyrhythm.fleet.cycles import cycle_span
from polyrhythm.fleet.draws import Rows, row_of, uniform_of
from polyrhythm.fleet.files import damaged, digest_of, read_clients
from polyrhythm.fleet.parts import Availability, Place, Presence

_FORM = 'JSON such as {"1": {"active": [5, 90], "inactive": [60, 120], "finish_time": 86400}}, seconds, by client'


@final
@dataclass(frozen=True, kw_only=True)
class AvailabilityTrace(Availability):
    """Clients come and go as real phones did: the form of FedScale's client_behave_trace, repeated after its end.

    JSON by client, with active[] and inactive[] (seconds at which it came and went) and finish_time (how long it was
    recorded). An entry without any time of coming is never there. How entries are read:

    - somebody who went at the moment it came was not there;
    - from each coming it is there until the next going that is later, which may lie in the next repetition, also where
      a list begins with a going;
    - what lies after finish_time is cut off.

    Args:
        path: the file; .json, also .gz.
        rows: "drawn" gives each client a drawn entry; "file" gives client i the i-th one, and drawn ones to clients
            beyond the file. FedScale's file is sorted: its first entries are those that are there most.
        start: seconds of the recording that are over when the run begins.
        spread: clients begin up to so many seconds later in the recording, by a named draw, so that two on one entry
            do not go in step.

    Raises:
        UserError: a damaged file, with the place.

    Departure: FedScale's `is_active` moves on by at most one interval each time it is asked, so its answer depends on
    how often that is; here the answer is the recording's.

    Reference: Lai et al., "FedScale: Benchmarking Model and System Performance of Federated Learning at Scale", ICML
    2022; fedscale/cloud/internal/client_metadata.py.
    """

    path: str | Path
    rows: Rows = "drawn"
    start: NonNegative = 0.0
    spread: NonNegative = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._entries  # noqa: B018  # read now, so that a damaged file is refused before anything runs

    @functools.cached_property
    def _entries(self) -> list[_Entry]:
        place = Path(self.path)
        return [_entry(place, client, entry) for client, entry in read_clients(place, _FORM).items()]

    def bind(self, place: Place) -> Presence:
        return _Recorded(self, self._entries, place)

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"sha256": digest_of(self.path)}


@final
class _Entry(NamedTuple):
    """One recording: when it came, when it went, and how long it was recorded."""

    came: Sequence[float]
    went: Sequence[float]
    length: float


@final
class _Recorded:
    def __init__(self, trace: AvailabilityTrace, entries: list[_Entry], place: Place) -> None:
        self._trace, self._entries, self._seed = trace, entries, place.seed
        self._toggles: dict[int, tuple[float, ...]] = {}  # of the rows that somebody has asked about

    def span(self, client: int, now: float) -> tuple[bool, float]:
        trace, entries = self._trace, self._entries
        row = row_of(self._seed, "recording", client, len(entries), trace.rows)
        if row not in self._toggles:
            self._toggles[row] = toggles_of(*entries[row])
        toggles, length = self._toggles[row], entries[row].length
        if toggles == (0.0, length):
            return True, math.inf
        later = trace.spread * uniform_of(self._seed, "later in the recording", client) if trace.spread else 0.0
        return cycle_span(toggles, length, -trace.start - later, now)


def _entry(place: Path, client: str, entry: Any) -> _Entry:
    where = f"client {client}"
    if not isinstance(entry, dict):
        raise damaged(place, where, repr(entry), _FORM)
    length = _as_times([entry.get("finish_time")])
    if not length or length[0] == 0:
        raise damaged(place, where, f"finish_time = {entry.get('finish_time')!r}", "seconds, above 0")
    lists = []
    for name in ("active", "inactive"):
        times = _as_times(entry.get(name))
        if times is None:
            raise damaged(place, where, f"{name} is no list of times", "seconds, 0 or more")
        lists.append(times)
    came, went = lists
    if len(came) != len(went):
        raise damaged(place, where, f"{len(came)} times in active and {len(went)} in inactive", "as many of both")
    return _Entry(came, went, length[0])


def _as_times(values: object) -> Sequence[float] | None:
    """A list of times, 8 bytes each; None if it is none. Written for millions of them."""
    try:
        times = array("d", values) if isinstance(values, list) else None
    except (TypeError, OverflowError):
        return None
    return None if times is None or (times and not (min(times) >= 0 and math.isfinite(sum(times)))) else times


def toggles_of(came: Sequence[float], went: Sequence[float], length: float) -> tuple[float, ...]:
    """When somebody comes, goes, comes, ... in a repetition of so many seconds; from the first coming on, rising.

    >>> toggles_of([10, 40], [20, 60], 100)
    (10.0, 20.0, 40.0, 60.0)
    >>> toggles_of([10, 20, 30], [20, 25, 30], 100)  # two that touch are one, and one without duration is none
    (10.0, 25.0)
    >>> toggles_of([50], [20], 100)  # from 50 on, until 20 in the next repetition
    (50.0, 120.0)
    """
    pairs = [(float(a), float(b)) for a, b in zip(came, went, strict=True) if a != b and a < length]
    goings = sorted({min(b, length) for _, b in pairs})
    merged: list[list[float]] = []
    for start in sorted({a for a, _ in pairs}):
        later = bisect.bisect_right(goings, start)
        end = goings[later] if later < len(goings) else goings[0] + length
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    # Whoever is there at the end of a repetition may still be when the next one begins.
    while len(merged) > 1 and merged[-1][1] >= merged[0][0] + length:
        merged[-1][1] = max(merged[-1][1], merged.pop(0)[1] + length)
    if merged and merged[-1][1] - merged[-1][0] >= length:
        return 0.0, length
    return tuple(moment for interval in merged for moment in interval)
