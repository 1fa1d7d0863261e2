"""A fleet in a run: how visits go, who is there, and what it has cost."""

from __future__ import annotations

import functools
import heapq
import math
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from polyrhythm.base.frozen import new_unchecked
from polyrhythm.base.messages import FaultKind
from polyrhythm.base.streams import stream
from polyrhythm.fleet.costs import Load, Spent
from polyrhythm.fleet.fleet import Fleet
from polyrhythm.fleet.next_arrival import AskedOnce, next_coming
from polyrhythm.fleet.parts import Device, Place, Timetable

_MOST_SPANS = 200  # comings and goings of a client that are followed


@final
@dataclass(frozen=True, kw_only=True)
class VisitOutcome:
    """How a visit ends.

    Args:
        time: when, in seconds since the run began.
        spent: what it has cost by then.
        lost: why no report comes of it; empty if one does.
        done: the share of the work that was done by then.
    """

    time: float
    spent: Spent
    lost: str = ""
    done: float = 1.0

    @property
    def fault(self) -> FaultKind:
        """As what it counts if it is lost."""
        return _KINDS.get(self.lost, "lost")


@final
@dataclass(frozen=True, kw_only=True)
class Remembered:
    """What a world remembers, as plain values.

    Args:
        back: when a broken device is there again, by client.
        charge: joules left in a battery, and when that was so, by client.
        arrivals: how many clients have come by themselves.
        comings: when clients are looked up that may have come, in the order of a heap; None before the first.
    """

    back: Mapping[int, float]
    charge: Mapping[int, tuple[float, float]]
    arrivals: int
    comings: tuple[tuple[float, int], ...] | None


@final
class FleetState:
    """One run's clients on their devices. Remembers batteries, broken devices and who has come, nothing else.

    Args:
        fleet: what they are like.
        population: N.
        seed: the experiment's.
        eligible: the clients that hold data, in order.
        labels: the share of each class in a client's samples; None where there are no classes.
        num_samples: the samples that each of the population declared when it joined; None if all have the same.
    """

    def __init__(
        self,
        fleet: Fleet,
        population: int,
        seed: int,
        eligible: Sequence[int],
        labels: Callable[[int], np.ndarray] | None = None,
        num_samples: Sequence[int] | None = None,
    ) -> None:
        self.fleet, self.population, self.eligible, self.num_samples = fleet, population, eligible, num_samples
        self._place = Place(population=population, seed=seed, labels=labels)
        self._line = fleet.links.bind(self._place)
        self._presence = fleet.availability.bind(self._place)
        self._coming_by_themselves = None if fleet.arrivals is None else fleet.arrivals.bind(self._place)
        self._back: dict[int, float] = {}  # when a broken device is there again
        self._charge: dict[int, tuple[float, float]] = {}  # joules left, and when that was so
        self._arrivals = 0
        self._comings: list[tuple[float, int]] | None = None

    def remembered(self) -> Remembered:
        """What it remembers now; to be read before anything else happens."""
        comings = None if self._comings is None else tuple(self._comings)
        return Remembered(back=self._back, charge=self._charge, arrivals=self._arrivals, comings=comings)

    def restore(self, remembered: Remembered) -> None:
        """Makes a world at the beginning of a run one that remembers this."""
        self._back, self._charge = dict(remembered.back), dict(remembered.charge)
        self._comings = None if remembered.comings is None else list(remembered.comings)
        for _ in range(remembered.arrivals):
            self._arrives()

    def _arrives(self) -> tuple[float, int]:
        assert self._coming_by_themselves is not None
        self._arrivals += 1
        return self._coming_by_themselves()

    @functools.cached_property
    def everybody_is_there(self) -> bool:
        """Whether nobody is ever away, so that nobody has to look."""
        return self.fleet.everybody_is_there

    @functools.lru_cache(maxsize=8192)  # noqa: B019  # a world lives as long as its run
    def device(self, client: int) -> Device:
        """A client's machine."""
        return self.fleet.devices.device(self._place, client)

    def span(self, client: int, now: float) -> tuple[bool, float]:
        """Whether a client is there, and until when that stays so if nothing happens to it."""
        if self.everybody_is_there:
            return True, math.inf
        back = max(self._back.get(client, 0.0), self._charged(client, now))
        there, until = self._presence.span(client, now)
        return (there, until) if now >= back else (False, max(back, now))

    def share_there(self, client: int, until: float) -> float:
        """The share of the time up to a moment in which a client was there; of the moment itself where that is 0.

        By the availability alone: broken devices and empty batteries are not looked at. Of a client that comes and goes
        more often than 100 times, the share up to then.
        """
        now, there = 0.0, 0.0
        for _ in range(_MOST_SPANS):
            is_there, end = self._presence.span(client, now)
            if not until:
                return float(is_there)
            end = min(end, until)
            there += end - now if is_there else 0.0
            now = end
            if now >= until:
                break
        return there / now

    def arrivals(self) -> Callable[[], tuple[float, int]] | None:
        """Gives the next client that comes by itself, (time, client), each time it is called; None if none do."""
        if self._coming_by_themselves is None:
            return None
        holding = frozenset(int(c) for c in self.eligible)

        def following() -> tuple[float, int]:
            while True:
                time, client = self._arrives()
                if time == math.inf or (client in holding and self.span(client, time)[0]):
                    return time, client

        return following

    def comings(self) -> Callable[[], tuple[float, int]]:
        """Gives the next client that was away and is there again, (time, client), each time it is called.

        Clients are looked up as they come, so one that breaks down in the meantime comes when it is repaired.
        """
        if self._comings is None:
            self._comings = [(self.returns(client, 0.0), client) for client in map(int, self.eligible)]
            heapq.heapify(self._comings)
        heap = self._comings

        def following() -> tuple[float, int]:
            while True:
                time, client = heap[0]
                there = time == math.inf or self.span(client, time)[0]
                heapq.heapreplace(heap, (self.returns(client, time), client))
                if there:
                    return time, client

        return following

    def next_arrival(self, now: float, exclude: Container[int] = ()) -> tuple[float, int] | None:
        """When a client comes next, later than now, and who; None if nobody will.

        Who is there now comes when it has been away. O(population), in some operations on arrays; the first time, where
        clients come and go by no formula, in a Python loop.
        """
        if self.everybody_is_there:
            return None
        times = self._coming(now)
        while len(times) and times[first := int(times.argmin())] < math.inf:
            client = int(self._clients[first])
            if client not in exclude:
                return float(times[first]), client
            times[first] = math.inf
        return None

    def _coming(self, now: float) -> np.ndarray:
        """When each eligible client comes next; infinity for never."""
        times = self._timetable.comes(self._clients, now)
        for place in np.flatnonzero(np.isin(self._clients, [*self._back, *self._charge])):
            times[place] = self.returns(int(self._clients[place]), now)
        return times

    @functools.cached_property
    def _timetable(self) -> Timetable:
        return self._presence if isinstance(self._presence, Timetable) else AskedOnce(self._presence, self.population)

    @functools.cached_property
    def _clients(self) -> np.ndarray:
        return np.asarray(self.eligible, dtype=np.int64)

    def returns(self, client: int, now: float) -> float:
        """When a client that is away, now or later, is there again; infinity for never."""
        return next_coming(self.span, client, now)

    def price(self, client: int, load: Load, now: float) -> Spent:
        """What a visit costs if nothing interrupts it."""
        energy, device = self.fleet.energy, self.device(client)
        per_flop = device.joules_per_flop
        down = self._line.seconds(client, "down", load.bytes_down, now)
        compute = device.seconds(load.samples, load.forward_samples, load.flops, load.effort)
        up = self._line.seconds(client, "up", load.bytes_up, now + down + compute)
        if load.turns:  # of a few bytes each, which are in the load
            down += load.turns * self._line.seconds(client, "down", 0, now)
            up += load.turns * self._line.seconds(client, "up", 0, now + down + compute)
        worked = (energy.joules_per_flop if per_flop is None else per_flop) * load.flops
        return new_unchecked(
            Spent,
            down=down,
            compute=compute,
            up=up,
            flops=load.flops,
            forward_flops=load.forward_flops,
            bytes_down=load.bytes_down,
            bytes_up=load.bytes_up,
            joules=worked + energy.joules_per_byte * (load.bytes_down + load.bytes_up),
            compute_joules=worked,
        )

    def undertake(self, dispatch: int, client: int, load: Load, now: float) -> VisitOutcome:
        """Lets a client set out on a visit, and says how it ends. Must be told of each client's visits, in their order.

        Args:
            dispatch: of the assignment; names what happens by chance.
            client: whose visit.
            load: the work in it.
            now: when it begins.
        """
        faults = self.fleet.faults
        spent, done = self.price(client, load, now), 1.0
        for stage, reason in enumerate((_NO_KEYS, _NO_LETTERS)):
            if self.leaves(stage, dispatch):
                return VisitOutcome(time=now, spent=Spent(), lost=reason, done=0.0)
        if self._all_goes_well:
            return new_unchecked(VisitOutcome, time=now + spent.seconds, spent=spent, lost="", done=1.0)
        if self.happens("slow", faults.slow, dispatch):
            spent = replace(spent, compute=spent.compute * faults.slowdown)
        end, lost = now + spent.seconds, ""
        for moment, reason in self._dangers(dispatch, client, spent, now):
            if moment < end or (moment == end and reason == _EMPTY):
                end, lost = moment, reason
        if lost:
            done, spent = spent.done(end - now)[1], spent.until(end - now)
            if lost == _CRASHED:
                self._back[client] = end + faults.downtime
        elif self.leaves(2, dispatch):
            lost = _NO_VECTOR
        elif self.happens("lost", faults.lost, dispatch):
            lost = _IN_TRANSIT
        self._drain(client, spent.joules, end)
        return new_unchecked(VisitOutcome, time=end, spent=spent, lost=lost, done=done)

    @functools.cached_property
    def _all_goes_well(self) -> bool:
        """Whether nothing ever befalls a visit."""
        faults = self.fleet.faults
        return self.everybody_is_there and not (faults.dropout or faults.slow or faults.lost or faults.secagg_dropout)

    def leaves(self, stage: int, dispatch: int) -> bool:
        """Whether a client is gone before a stage of `secagg`, from 0."""
        shares = self.fleet.faults.secagg_dropout
        return bool(shares) and self.happens(f"secagg {stage}", shares[stage], dispatch)

    def happens(self, what: str, share: float, dispatch: int) -> bool:
        """Whether a fault befalls a visit."""
        return bool(share) and float(stream(self._place.seed, "fault", what, dispatch).random()) < share

    def _dangers(self, dispatch: int, client: int, spent: Spent, now: float) -> list[tuple[float, str]]:
        faults, found = self.fleet.faults, []
        if not self.fleet.availability.always:
            found.append((self._presence.span(client, now)[1], _AWAY))
        if faults.dropout or faults.crash:
            drawn = stream(self._place.seed, "fault", dispatch).random(4)
            if drawn[0] < faults.dropout:
                found.append((now + float(drawn[1]) * spent.seconds, _DROPPED))
            if drawn[2] < faults.crash:
                found.append((now + float(drawn[3]) * spent.seconds, _CRASHED))
        energy = self.fleet.energy
        if energy.battery is not None:
            found.append((now + spent.lasts(self._level(client, now), energy.charging, energy.battery), _EMPTY))
        return found

    def _level(self, client: int, now: float) -> float:
        """Joules in a client's battery."""
        full = self.fleet.energy.battery or 0.0
        left, then = self._charge.get(client, (full, now))
        return min(full, left + self.fleet.energy.charging * max(0.0, now - then))

    def _charged(self, client: int, now: float) -> float:
        """When a client's battery has its reserve, or had it."""
        energy = self.fleet.energy
        if energy.battery is None:
            return 0.0
        missing = energy.reserve * energy.battery - self._level(client, now)
        if missing <= 0:
            return 0.0
        return now + missing / energy.charging if energy.charging else math.inf

    def _drain(self, client: int, joules: float, end: float) -> None:
        if self.fleet.energy.battery is not None:
            self._charge[client] = (max(0.0, self._level(client, end) - joules), end)


_AWAY, _DROPPED, _CRASHED = "it went away", "it dropped out", "its device failed"
_EMPTY, _IN_TRANSIT = "its battery was empty", "its report was lost on the way"
_NO_KEYS, _NO_LETTERS = "it left before it had sent its keys", "it left before it had sent its letters"
_NO_VECTOR = "it left before it had sent its masked update"
_KINDS: Mapping[str, FaultKind] = {
    _AWAY: "away",
    _DROPPED: "dropout",
    **dict.fromkeys((_NO_KEYS, _NO_LETTERS, _NO_VECTOR), "dropout"),
    _CRASHED: "crash",
    _EMPTY: "battery",
    _IN_TRANSIT: "transit",
}
