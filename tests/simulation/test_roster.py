"""Who is there, seen by drawing."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyrhythm.base.streams import stream
from polyrhythm.fleet import Fleet, FleetState
from polyrhythm.simulation.roster import Answer, OpenRoster, WorldRoster

eligible = st.lists(st.integers(0, 50), min_size=1, max_size=12, unique=True)


@given(eligible, st.integers(0, 12), st.integers(0, 12), st.integers(0, 99), st.sets(st.integers(0, 50), max_size=6))
def test_a_draw_is_distinct_eligible_and_a_prefix_of_a_larger_one(
    clients: list[int], small: int, large: int, seed: int, busy: set[int]
) -> None:
    roster = OpenRoster(60, clients)
    small, large = sorted((small, large))
    few = roster.draw(small, stream(seed, "cohort", 0), frozenset(busy))
    many = roster.draw(large, stream(seed, "cohort", 0), frozenset(busy))
    assert many[: len(few)] == few
    assert len(set(many)) == len(many) == min(large, len(set(clients) - busy))
    assert set(many) <= set(clients) - busy


def test_everybody_is_drawn_equally_often() -> None:
    roster = OpenRoster(10, range(10))
    counts = np.zeros(10)
    for version in range(4000):
        counts[list(roster.draw(3, stream(0, "cohort", version), frozenset()))] += 1
    # A client's count is binomial (4000, 0.3): sd 29. Six of them is one in half a billion.
    assert np.abs(counts - 1200).max() < 6 * 29


def test_a_draw_costs_what_it_draws_not_the_population() -> None:
    class Counting:
        """A generator that counts what is asked of it."""

        def __init__(self) -> None:
            self.asked, self._generator = 0, stream(0, "cohort", 0)

        def integers(self, low: int, high: int) -> int:
            self.asked += 1
            return int(self._generator.integers(low, high))

    generator = Counting()
    drawn = OpenRoster(10**9, range(10**9)).draw(100, cast(np.random.Generator, generator), frozenset())
    assert len(set(drawn)) == generator.asked == 100


@pytest.mark.parametrize("kind", ["open", "world"])
def test_a_draw_by_samples_goes_by_what_clients_declared(kind: str) -> None:
    held = [0, 1, 2, 7, 0]
    roster = (
        OpenRoster(5, [1, 2, 3], held)
        if kind == "open"
        else WorldRoster(FleetState(Fleet(), 5, 0, [1, 2, 3], num_samples=held))
    )
    counts = np.zeros(5)
    for version in range(4000):
        drawn = roster.draw_by_samples(2, stream(0, "cohort", version), frozenset())
        assert roster.draw_by_samples(1, stream(0, "cohort", version), frozenset()) == drawn[:1]
        counts[drawn[0]] += 1
        assert 3 not in roster.draw_by_samples(3, stream(0, "cohort", version), {3})
    # Binomial (4000, 0.7): sd 29.
    assert np.abs(counts - np.array(held) * 400).max() < 6 * 29
    if isinstance(roster, WorldRoster):
        roster.answers()
        drawn = roster.draw_by_samples(2, stream(0, "cohort", 0), frozenset())
        assert roster.answers() == (Answer(question="draw", clients=drawn),)


def test_all_and_present() -> None:
    roster = OpenRoster(5, [4, 0, 2])
    assert roster.all() == (4, 0, 2)
    assert roster.present((2, 4)) == (2, 4)
    assert (roster.population, roster.eligible) == (5, 3)
