"""When clients are there, by hand."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyrhythm.base.errors import UserError
from polyrhythm.fleet import AvailabilityTrace, ByLabels, Markov, Periodic, Place
from polyrhythm.fleet.behaviour import toggles_of
from polyrhythm.fleet.cycles import cycle_span
from polyrhythm.fleet.draws import uniform_of

PLACE = Place(population=100, seed=0)


def test_periodic_by_hand() -> None:
    """Zones of 250 s, all clients of one at its beginning."""
    presence = Periodic(period=1000.0, on=0.2, zones=4, spread=0.0).bind(PLACE)
    for client in range(20):
        comes = 250.0 * math.floor(4 * uniform_of(0, "zone", client))
        assert presence.span(client, comes) == (True, comes + 200)
        assert presence.span(client, comes + 199) == (True, comes + 200)
        assert presence.span(client, comes + 200) == (False, comes + 1000)
        assert presence.span(client, comes + 7000) == (True, comes + 7200)


def test_one_zone_comes_and_goes_together() -> None:
    presence = Periodic(zones=1, spread=0.0, on=0.5).bind(PLACE)
    assert {presence.span(client, 10.0) for client in range(100)} == {(True, 43_200.0)}


def test_a_cycle_holds_for_negative_shifts_and_large_times() -> None:
    assert cycle_span((5.0, 7.0), 10.0, -3.0, 0.0) == (False, 2.0)
    assert cycle_span((5.0, 7.0), 10.0, -3.0, 2.0) == (True, 4.0)
    assert cycle_span((5.0, 12.0), 10.0, 0.0, 1.0) == (True, 2.0)  # reaches into the next repetition
    assert cycle_span((), 10.0, 0.0, 1.0) == (False, math.inf)
    there, until = cycle_span((0.1, 0.4), 0.7, 0.3, 1e9)
    assert until > 1e9
    assert cycle_span((0.1, 0.4), 0.7, 0.3, until)[0] is not there


intervals = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=5)


@given(intervals)
def test_a_recording_is_read_as_from_each_coming_to_the_next_going(pairs: list[tuple[int, int]]) -> None:
    """Second by second over the third of four repetitions."""
    length = 24
    came, went = [float(a) for a, _ in pairs], [float(b) for _, b in pairs]
    toggles = toggles_of(came, went, float(length))
    assert len(toggles) % 2 == 0
    assert all(a < b for a, b in itertools.pairwise(toggles))
    assert not toggles or toggles[-1] <= toggles[0] + length
    events = [(a, b) for a, b in pairs if a != b and a < length]
    goings = [min(b, length) + k * length for _, b in events for k in range(4)]
    there = set()
    for a, _ in events:
        for k in range(3):
            start = a + k * length
            there |= set(range(start, min(b for b in goings if b > start)))
    for second in range(2 * length, 3 * length):
        assert cycle_span(toggles, float(length), 0.0, float(second))[0] == (second in there)


def test_oddities_of_recordings() -> None:
    assert toggles_of([10, 60, 90], [30, 60, 100], 120) == (10, 30, 90, 100)  # went at the moment it came
    assert toggles_of([50, 80], [20, 70], 100) == (50, 70, 80, 120)  # the list of goings begins first
    assert toggles_of([0, 40], [40, 100], 100) == (0, 100)  # always there
    assert toggles_of([0, 90], [10, 200], 100) == (90, 110)  # there over the end; the rest is cut off
    assert toggles_of([300], [400], 100) == ()
    assert toggles_of([], [], 100) == ()


def test_a_trace_repeats_and_may_begin_later(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"1": {"active": [10, 40], "inactive": [20, 60], "finish_time": 100, "model": "x"}}))
    presence = AvailabilityTrace(path=path).bind(PLACE)
    assert [presence.span(7, now) for now in (0, 10, 20, 60, 110, 1045)] == [
        (False, 10), (True, 20), (False, 40), (False, 110), (True, 120), (True, 1060)
    ]  # fmt: skip
    assert AvailabilityTrace(path=path, start=45.0).bind(PLACE).span(7, 0.0) == (True, 15.0)
    later = AvailabilityTrace(path=path, spread=30.0).bind(PLACE)
    assert len({later.span(client, 0.0) for client in range(10)}) == 10


def test_rows_of_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    entries = {str(i): {"active": [i], "inactive": [i + 1], "finish_time": 1000} for i in range(1, 51)}
    path.write_text(json.dumps(entries))
    in_file, drawn = (AvailabilityTrace(path=path, rows=rows).bind(PLACE) for rows in ("file", "drawn"))
    assert [in_file.span(client, 0.0)[1] for client in range(50)] == list(range(1, 51))
    assert [drawn.span(client, 0.0)[1] for client in range(50)] != list(range(1, 51))


def test_markov_durations_are_exponential_with_their_means() -> None:
    presence = Markov(mean_on=30.0, mean_off=70.0).bind(PLACE)
    stays: dict[bool, list[float]] = {True: [], False: []}
    for client in range(100):
        now = 0.0
        for _ in range(60):
            there, until = presence.span(client, now)
            stays[there].append(until - now)
            now = until
    for there, mean in ((True, 30.0), (False, 70.0)):
        assert abs(np.mean(stays[there]) / mean - 1) < 0.08
        assert abs(np.std(stays[there]) / mean - 1) < 0.1


def test_by_labels_goes_by_the_smallest_class() -> None:
    """p = 0.2 + 0.8 * smallest / 4; who holds only class 4 never leaves."""
    held = {0: [1, 0, 0, 0, 1], 1: [0, 1, 1, 0, 0], 2: [0, 0, 0, 1, 0], 3: [0, 0, 0, 0, 1], 4: [0, 0, 0, 0, 0]}
    place = Place(population=5, seed=0, labels=lambda client: np.array(held[client], dtype=float))
    presence = ByLabels(lowest=0.2, cycle=100.0).bind(place)
    moments = np.linspace(0, 50_000, 20_001)
    shares = [np.mean([presence.span(client, now)[0] for now in moments.tolist()]) for client in range(5)]
    assert np.allclose(shares, [0.2, 0.4, 0.8, 1.0, 0.2], atol=0.04)
    assert presence.span(3, 5.0) == (True, math.inf)


def test_by_labels_refuses() -> None:
    with pytest.raises(UserError, match="samples without classes"):
        ByLabels().bind(PLACE)
    with pytest.raises(UserError, match=r"lowest = 0.9 above highest = 0.5"):
        ByLabels(lowest=0.9, highest=0.5)
