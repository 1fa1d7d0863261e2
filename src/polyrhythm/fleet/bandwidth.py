"""Links whose speed changes all the time, as it was measured."""

from __future__ import annotations

import bisect
import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from polyrhythm.base.errors import UserError
from polyrhythm.base.settings import NonNegative, Positive
from polyrhythm.data.sources.files import existing
from polyrhythm.data.sources.npz import stored_arrays
from polyrhythm.fleet.draws import uniform_of
from polyrhythm.fleet.files import NOT_NEGATIVE, TEXT, damaged, digest_of, read_csv
from polyrhythm.fleet.parts import Line, Links, Place, Way

_BYTES_PER_MBIT = 125_000.0
_FORM = "an .npz file with the arrays time_s, mbps and offset, or a CSV file with the columns trace,time_s,mbps"


@final
@dataclass(frozen=True, kw_only=True)
class BandwidthTrace(Links):
    """A transfer takes until its last byte is through, on a bandwidth that was measured over time.

    The bandwidth at a point of a trace is that since the point before, so the first one only says when the trace
    begins. Each client is on a drawn trace, which is repeated for ever, and began at a drawn point of it. Both ways are
    as fast. A duration is the exact integral; it costs the logarithm of the trace's length.

    Args:
        path: .npz with time_s, mbps (all traces, one after the other) and offset (where each begins, and the end), or
            .csv with trace, time_s, mbps, of which the rows of a trace are in order of time, and may stand apart.
        down, up: factors on the measured bandwidth; old traces are slow.
        latency: seconds before the first byte, each way.

    Raises:
        UserError: a damaged file, with the place.

    Reference: the format and the reading of the points are those of Mao et al., "Neural Adaptive Video Streaming with
    Pensieve", SIGCOMM 2017, sim/fixed_env.py.
    """

    path: str | Path
    down: Positive = 1.0
    up: Positive = 1.0
    latency: NonNegative = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.traces  # noqa: B018  # read now, so that a damaged file is refused before anything runs

    @functools.cached_property
    def traces(self) -> tuple[Trace, ...]:
        """The traces of the file."""
        place = existing(self.path, what=_FORM)
        read = _from_csv(place) if ".csv" in place.suffixes else _from_npz(place)
        return tuple(_checked(place, name, times, speeds) for name, times, speeds in read)

    def bind(self, place: Place) -> Line:
        return _Measured(self, place)

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"sha256": digest_of(self.path)}


@final
class Trace:
    """One trace, repeated for ever.

    Args:
        times: seconds, rising, [n].
        speeds: bytes per second since the point before, [n]; the first one is not used.
    """

    def __init__(self, times: np.ndarray, speeds: np.ndarray) -> None:
        self._times: list[float] = (times - times[0]).tolist()
        self._passed: list[float] = [0.0, *np.cumsum(np.diff(times) * speeds[1:]).tolist()]
        self.period, self.bytes = float(self._times[-1]), float(self._passed[-1])

    def seconds(self, size: float, at: float) -> float:
        """How long so many bytes take from a moment in [0, period) of the trace."""
        if size <= 0:
            return 0.0
        i = bisect.bisect_right(self._times, at) - 1
        through = self._passed[i] + (at - self._times[i]) * self._slope(i)
        rounds, rest = divmod(through + size, self.bytes)
        if rest == 0.0:  # the last byte goes through in the round before, even if that ends with a silence
            rounds, rest = rounds - 1, self.bytes
        j = bisect.bisect_left(self._passed, rest) - 1
        end = self._times[j] + (rest - self._passed[j]) / self._slope(j)
        took: float = rounds * self.period + end - at
        return max(0.0, took)

    def _slope(self, i: int) -> float:
        """Bytes per second between a point and the next one."""
        return (self._passed[i + 1] - self._passed[i]) / (self._times[i + 1] - self._times[i])


@final
class _Measured:
    def __init__(self, links: BandwidthTrace, place: Place) -> None:
        self._traces, self._seed, self._latency = links.traces, place.seed, links.latency
        self._factors = {"down": links.down, "up": links.up}

    def seconds(self, client: int, way: Way, size: int, now: float) -> float:
        trace = self._traces[int(uniform_of(self._seed, "bandwidth", client) * len(self._traces))]
        phase = uniform_of(self._seed, "moment of the trace", client) * trace.period
        at = (phase + now + self._latency) % trace.period
        return self._latency + trace.seconds(size / self._factors[way], at)


_Read = Iterator[tuple[str, np.ndarray, np.ndarray]]


def _from_csv(place: Path) -> _Read:
    rows = read_csv(place, {"trace": TEXT, "time_s": NOT_NEGATIVE, "mbps": NOT_NEGATIVE})
    traces = dict[str, list[tuple[float, float]]]()
    for _, (name, time, speed) in rows:
        traces.setdefault(name, []).append((time, speed))
    for name, points in traces.items():
        times, speeds = zip(*points, strict=True)
        yield f"trace {name}", np.array(times), np.array(speeds)


def _from_npz(place: Path) -> _Read:
    wanted = ("time_s", "mbps", "offset")
    try:
        with stored_arrays(place) as stored:
            found = {name: stored.read(name) for name in wanted if name in stored.shapes}
    except UserError as error:
        raise damaged(place, "as a whole", error.found.removeprefix(f"{place}: "), _FORM) from None
    for name in wanted:
        if name not in found:
            raise damaged(place, "arrays", name, _FORM)
    times, speeds, offset = (found[name] for name in wanted)
    numbers = all(array.ndim == 1 and array.dtype.kind in "fiu" for array in (times, speeds, offset))
    sound = numbers and times.shape == speeds.shape and offset.dtype.kind in "iu"
    if not sound or len(offset) < 2 or offset[0] != 0 or offset[-1] != len(times) or (np.diff(offset) < 1).any():
        raise damaged(place, "array offset", "it does not cut time_s and mbps into traces", _FORM)
    for number, (start, end) in enumerate(itertools.pairwise(offset.tolist())):
        yield f"trace {number}", times[start:end].astype(np.float64), speeds[start:end].astype(np.float64)


def _checked(place: Path, name: str, times: np.ndarray, speeds: np.ndarray) -> Trace:
    if len(times) < 2 or not np.isfinite(times).all() or (np.diff(times) <= 0).any():
        raise damaged(place, name, "time_s does not rise from each point to the next", "two points or more, in order")
    if not np.isfinite(speeds).all() or (speeds < 0).any() or not speeds[1:].any():
        raise damaged(
            place, name, "mbps is never above 0, or below 0 at a point", "Mbit/s, 0 or more, not 0 throughout"
        )
    return Trace(times, speeds * _BYTES_PER_MBIT)
