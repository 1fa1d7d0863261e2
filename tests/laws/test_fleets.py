"""The sources of a fleet: who is there when, how long a transfer takes, how fast a device is, and who comes when."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from polyrhythm.base.streams import stream
from polyrhythm.fleet import (
    Always,
    AvailabilityTrace,
    ByLabels,
    Exponential,
    FixedLinks,
    Fleet,
    FleetState,
    HalfNormal,
    Lognormal,
    LognormalLinks,
    Markov,
    Periodic,
    Place,
    Poisson,
    Tiers,
    Uniform,
    Zipf,
    arrivals,
    devices,
    draws,
    markov,
    speeds,
)
from polyrhythm.fleet.arrivals import Every
from polyrhythm.fleet.bandwidth import Trace
from polyrhythm.fleet.draws import normal_of, uniform_of
from polyrhythm.fleet.energy import Energy
from polyrhythm.fleet.faults import Faults
from polyrhythm.fleet.next_arrival import AskedOnce
from polyrhythm.fleet.parts import Availability

from .law import Mutation, law, swap

PLACE = Place(population=2500, seed=3, labels=lambda client: np.eye(5)[client % 5])
clients = st.integers(0, 2499)
moments = st.floats(0, 5e5, allow_nan=False)

RECORDED = {
    "1": {"active": [10, 60, 90], "inactive": [30, 60, 100], "finish_time": 120},
    "2": {"active": [50, 80], "inactive": [20, 70], "finish_time": 100},
    "3": {"active": [], "inactive": [], "finish_time": 86400},
    "4": {"active": [0, 40], "inactive": [40, 100], "finish_time": 100},
    "5": {"active": [0, 437681, 437703], "inactive": [437679, 437702, 691200], "finish_time": 691200},
}


def recorded(**settings: Any) -> AvailabilityTrace:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        path.write_text(json.dumps(RECORDED))
        return AvailabilityTrace(path=path, **settings)


SOURCES: tuple[Availability, ...] = (
    Always(),
    Periodic(period=1000.0, on=0.3, zones=3, spread=100.0),
    Periodic(period=86400.0, on=0.1, zones=1, spread=0.0),
    Periodic(on=1.0),
    Markov(mean_on=300.0, mean_off=900.0),
    Markov(mean_on=5e4, mean_off=1e4),
    ByLabels(lowest=0.2, cycle=500.0),
    recorded(),
    recorded(rows="file", start=77.7, spread=33.3),
)
availabilities = st.sampled_from(SOURCES)


def _presence(kind: type[Availability], name: str, change: Callable[..., Any]) -> Mutation:
    """The mutant whose presences answer otherwise: `change` is given the true answer and what was asked."""
    bind = kind.bind

    def bound(self: Availability, place: Place) -> Any:
        presence: Any = bind(self, place)
        whole = getattr(presence, name)
        setattr(presence, name, lambda *asked: change(whole(*asked), *asked))
        return presence

    return swap(kind, "bind", bound)


def _slips(moment: float, now: float) -> float:
    return moment + 1e-6 * now if moment < math.inf else moment


@law(
    broken_by={
        "the same answer after every toggle": _presence(Markov, "span", lambda answer, *_: (True, answer[1])),
        "until half way": _presence(
            Markov, "span", lambda answer, client, now: (answer[0], (now + min(answer[1], 1e9)) / 2)
        ),
        "until now": _presence(AvailabilityTrace, "span", lambda answer, client, now: (answer[0], now)),
        "a moment that slips": _presence(
            Periodic, "span", lambda answer, client, now: (answer[0], _slips(answer[1], now))
        ),
    },
    examples=60,
    source=availabilities,
    client=clients,
    now=moments,
    part=st.floats(0, 1, exclude_max=True),
)
def test_a_span_lasts_until_it_ends_and_toggles_there(
    source: Availability, client: int, now: float, part: float
) -> None:
    """Whoever asks at any moment of a span is told the same, and at its end the opposite, for some time."""
    presence = source.bind(PLACE)
    there, until = presence.span(client, now)
    assert until > now
    for _ in range(3):
        if until == math.inf:
            break
        between = now + part * (until - now)
        if between < until:
            assert presence.span(client, between) == (there, until)
        assert presence.span(client, math.nextafter(until, 0)) == (there, until)
        now, before = until, there
        there, until = presence.span(client, now)
        assert there is not before
        assert until > now


def _numbered_by_call(patch: pytest.MonkeyPatch) -> None:
    calls = itertools.count()
    patch.setattr(markov, "stream", lambda seed, purpose, what, client, chunk: stream(seed, purpose, what, next(calls)))


def _from_population(patch: pytest.MonkeyPatch) -> None:
    bind = Periodic.bind
    patch.setattr(
        Periodic, "bind", lambda self, place: bind(self, dataclasses.replace(place, seed=place.seed + place.population))
    )


@law(
    broken_by={"durations by the order of asking": _numbered_by_call, "zones by the population": _from_population},
    examples=30,
    source=availabilities,
    asked=st.lists(st.tuples(clients, moments), min_size=2, max_size=8),
    population=st.integers(2500, 10**6),
)
def test_presence_depends_on_nobody_else_and_no_order(
    source: Availability, asked: list[tuple[int, float]], population: int
) -> None:
    forwards, backwards = source.bind(PLACE), source.bind(dataclasses.replace(PLACE, population=population))
    first = {question: forwards.span(*question) for question in asked}
    assert {question: backwards.span(*question) for question in reversed(asked)} == first
    assert {question: forwards.span(*question) for question in asked} == first


def _away_as_long_as_there(patch: pytest.MonkeyPatch) -> None:
    bind = Markov.bind
    patch.setattr(Markov, "bind", lambda self, place: bind(dataclasses.replace(self, mean_off=self.mean_on), place))


SHARES: tuple[tuple[Availability, float], ...] = (
    (Periodic(period=1000.0, on=0.3, zones=3), 0.3),
    (Markov(mean_on=300.0, mean_off=900.0), 0.25),
    (Markov(mean_on=40.0, mean_off=10.0), 0.8),
    (ByLabels(lowest=0.2, highest=0.6, cycle=500.0), 0.4),  # the mean of 0.2, 0.3, 0.4, 0.5 and 0.6
)


@law(
    broken_by={
        "always there at first": swap(markov, "uniform_of", lambda *names: 0.0),
        "away as long as there": _away_as_long_as_there,
    },
    examples=12,
    case=st.sampled_from(SHARES),
    now=st.sampled_from([0.0, 1234.5, 12345.6]),
)
def test_the_share_of_clients_there_is_the_nominal_one_at_any_time(
    case: tuple[Availability, float], now: float
) -> None:
    """Also at the beginning. 2,500 clients: the sd of the share is 0.01 or less."""
    source, share = case
    presence = source.bind(PLACE)
    there = np.mean([presence.span(client, now)[0] for client in range(PLACE.population)])
    assert abs(there - share) < 0.05


def _brute(times: np.ndarray, speeds: np.ndarray, size: float, at: float) -> float:
    """Interval by interval, for as many repetitions as it takes."""
    now, cycle = at, 0.0
    while True:
        for i in range(1, len(times)):
            end = cycle + times[i] - times[0]
            if end <= now:
                continue
            through = speeds[i] * (end - now)
            if through >= size:
                return float(now + size / speeds[i] - at)
            size, now = size - through, end
        cycle += times[-1] - times[0]


speeds_of = st.lists(st.sampled_from([0.0, 1.0, 3.0, 250.0]), min_size=2, max_size=6).filter(lambda s: any(s[1:]))


_SECONDS = Trace.seconds


@law(
    broken_by={
        "at the mean speed": swap(Trace, "seconds", lambda self, size, at: size * self.period / self.bytes),
        "no repetition": swap(Trace, "seconds", lambda self, size, at: min(_SECONDS(self, size, at), self.period)),
    },
    examples=60,
    speeds=speeds_of,
    steps=st.lists(st.floats(0.1, 5.0), min_size=6, max_size=6),
    size=st.floats(0.01, 1e4),
    at=st.floats(0, 1, exclude_max=True),
)
def test_a_transfer_takes_the_exact_integral(speeds: list[float], steps: list[float], size: float, at: float) -> None:
    times = 7.0 + np.cumsum(steps)[: len(speeds)]
    trace = Trace(times, np.array(speeds))
    begins = at * trace.period
    expected = _brute(times, np.array(speeds), size, begins)
    assert math.isclose(trace.seconds(size, begins), expected, rel_tol=1e-6, abs_tol=1e-6)


def _drawn_for(other: Callable[[int], int]) -> Mutation:
    """Devices have the draws of other clients."""

    def mutate(patch: pytest.MonkeyPatch) -> None:
        for module, draw in itertools.product((devices, speeds), (uniform_of, normal_of)):
            patch.setattr(module, draw.__name__, functools.partial(_of_another, draw, other))

    return mutate


def _of_another(draw: Callable[..., float], other: Callable[[int], int], seed: int, what: str, client: int) -> float:
    return draw(seed, what, other(client))


SPEEDS = (Tiers(), Tiers(spread=(0.5, 0.1, 0.1)), Lognormal(), Zipf(), HalfNormal(), Exponential())


@law(
    broken_by={
        "everybody alike": _drawn_for(lambda client: 0),
        "blocks that repeat": _drawn_for(lambda client: client % 1024),
    },
    source=st.sampled_from(SPEEDS),
    seed=st.integers(0, 9),
)
def test_devices_are_drawn_by_client_and_not_by_block(source: Any, seed: int) -> None:
    """2,048 clients are two different blocks, and each is the same in any population, whoever was asked before."""
    place = Place(population=2048, seed=seed)
    drawn = [source.device(place, client) for client in range(2048)]
    assert drawn[:1024] != drawn[1024:]
    assert len(set(drawn[:1024])) > 1
    other = Place(population=10**6, seed=seed)
    assert [source.device(other, client) for client in reversed(range(1000, 1050))] == drawn[1000:1050][::-1]


NEUTRAL = (
    (Lognormal(median=0.002, sigma=0.0), Uniform(seconds_per_sample=0.002)),
    (Zipf(slowest=1, seconds_per_sample=0.002), Uniform(seconds_per_sample=0.002)),
    (Tiers(slowdown=(1.0,), spread=(0.0,), seconds_per_sample=0.002), Uniform(seconds_per_sample=0.002)),
)


@law(
    broken_by={
        "sigma 0 spreads": swap(Lognormal, "sigma", property(lambda self: 0.1, lambda self, value: None)),
        "spread 0 spreads": swap(Tiers, "spread", property(lambda self: (0.1,), lambda self, value: None)),
    },
    pair=st.sampled_from(NEUTRAL),
    client=clients,
    seed=st.integers(0, 99),
)
def test_speeds_without_spread_are_exactly_the_plain_ones(pair: tuple[Any, Any], client: int, seed: int) -> None:
    place = Place(population=2500, seed=seed)
    one, other = (dataclasses.replace(source.device(place, client), group="") for source in pair)
    assert one == other


@law(
    broken_by={"sigma 0 spreads": swap(LognormalLinks, "sigma", property(lambda self: 0.1, lambda self, value: None))},
    client=clients,
    size=st.integers(1, 10**9),
    way=st.sampled_from(["down", "up"]),
)
def test_lognormal_links_without_spread_are_exactly_fixed(client: int, size: int, way: Any) -> None:
    drawn = LognormalLinks(down=3e5, up=7e4, sigma=0.0, latency=0.25).bind(PLACE)
    fixed = FixedLinks(down=3e5, up=7e4, latency=0.25).bind(PLACE)
    assert drawn.seconds(client, way, size, 5.0) == fixed.seconds(client, way, size, 5.0)


def _forgets_the_charge(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(np, "isin", lambda these, those: np.zeros(len(these), dtype=bool))


def _asks_once(self: AskedOnce, clients: np.ndarray, now: float) -> np.ndarray:
    return _COMES(self, clients, now) if self._now == -math.inf else self._comings[clients]


_COMES = AskedOnce.comes
_TIMES: Any = {"period": st.just(1000.0), "spread": st.just(30.0)}


@law(
    broken_by={
        "a period too early": _presence(
            Periodic, "comes", lambda comings, clients, now: np.full(len(clients), now + 1.0)
        ),
        "broken devices are forgotten": _forgets_the_charge,
        "whoever has come is never asked again": swap(AskedOnce, "comes", _asks_once),
    },
    examples=30,
    availability=st.one_of(
        st.builds(Periodic, zones=st.integers(1, 3), on=st.sampled_from([0.05, 0.5]), **_TIMES),
        st.builds(Markov, mean_on=st.sampled_from([50.0, 1000.0]), mean_off=st.just(1000.0)),
    ),
    moments=st.lists(st.floats(0, 5000), min_size=1, max_size=4),
    broken=st.dictionaries(st.integers(0, 39), st.floats(0, 8000), max_size=5),
    empty=st.dictionaries(st.integers(0, 39), st.floats(0, 3), max_size=5),
    busy=st.frozensets(st.integers(0, 39), max_size=30),
)
def test_the_next_arrival_is_the_first_of_all_clients(
    availability: Availability,
    moments: list[float],
    broken: dict[int, float],
    empty: dict[int, float],
    busy: frozenset[int],
) -> None:
    """Found at once for all clients, it is the one that following each of them from span to span finds."""
    fleet = Fleet(
        availability=availability,
        faults=Faults(crash=0.5),
        energy=Energy(battery=10.0, charging=0.01),
    )
    world = FleetState(fleet, 40, 0, range(40))
    world._back.update(broken)
    world._charge.update({client: (joules, 0.0) for client, joules in empty.items()})

    def comes(client: int, now: float) -> float:
        there, moment = world.span(client, now)
        while True:
            before, (there, until) = there, world.span(client, moment)
            if there and not before:
                return moment
            moment = until

    for now in moments:
        expected = min(((comes(c, now), c) for c in range(40) if c not in busy), default=None)
        assert world.next_arrival(now, busy) == expected


@law(
    broken_by={
        "as if one client came": swap(Poisson, "rate", property(lambda self: 0.01 / 50, lambda self, value: None)),
        "one client comes for all": swap(arrivals, "stream", lambda *names: OnlyTheFirst(stream(*names))),
    },
    examples=3,
    seed=st.integers(0, 99),
)
def test_poisson_arrivals_have_their_rate_and_are_everybodys(seed: int) -> None:
    """50 clients with a rate of 0.01 for 2,000 s: 1,000 arrivals (sd 32), 20 of each (sd 4.5)."""
    following = Poisson(rate=0.01).bind(Place(population=50, seed=seed))
    came = list(itertools.takewhile(lambda arrival: arrival[0] < 2000, iter(following, None)))
    times, who = zip(*came, strict=True)
    assert list(times) == sorted(times)
    assert abs(len(came) - 1000) < 6 * 32
    counts = np.bincount(who, minlength=50)
    assert counts.min() > 0
    assert counts.max() < 20 + 7 * 4.5
    gaps = np.diff(times)
    assert abs(gaps.std() / gaps.mean() - 1) < 0.25  # exponential


class OnlyTheFirst:
    """A generator whose whole numbers are all 0."""

    def __init__(self, generator: np.random.Generator) -> None:
        self.exponential = generator.exponential

    def integers(self, high: int, size: int) -> np.ndarray:
        return np.zeros(size, dtype=np.int64)


@law(
    broken_by={"phases by place in line": swap(arrivals, "uniforms", lambda seed, what, many: np.arange(many) / many)},
    examples=10,
    population=st.integers(1, 60),
    spread=st.sampled_from([0.1, 0.5, 1.0]),
    seed=st.integers(0, 99),
)
def test_everybody_comes_once_in_every_period(population: int, spread: float, seed: int) -> None:
    """At a moment of its own, which is the same however many there are."""
    following = Every(seconds=70.0, spread=spread).bind(Place(population=population, seed=seed))
    came = [following() for _ in range(3 * population)]
    assert [time for time, _ in came] == sorted(time for time, _ in came)
    of_each = {c: [time for time, client in came if client == c] for c in range(population)}
    for client, times in of_each.items():
        assert times[0] < 70.0 * spread
        assert np.allclose(np.diff(times), 70.0)
        assert times[0] == draws.uniform_of(seed, "moment of coming", client) * (spread * 70.0)
