"""What a sweep may set, and how settings are drawn."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import polyrhythm as pr
from polyrhythm.studies.space import Range, drawn, grid, size

LISTS = {"a": (1, 2, 3), "b": ("x", "y")}
MIXED = {"lr": Range(low=1e-4, high=1.0, log=True), "cohort": Range(low=2, high=9), "b": ("x", "y")}


@given(low=st.integers(1, 50), more=st.integers(1, 50), log=st.booleans(), place=st.floats(0, 1, exclude_max=True))
def test_a_range_gives_numbers_inside_of_its_kind(low: int, more: int, log: bool, place: float) -> None:
    whole, real = Range(low=low, high=low + more, log=log), Range(low=float(low), high=low + more + 0.5, log=log)
    assert isinstance(whole.at(place), int)
    assert low <= whole.at(place) <= low + more
    assert isinstance(real.at(place), float)
    assert low <= real.at(place) <= low + more + 0.5


def test_every_whole_number_is_as_likely_and_every_magnitude_by_the_logarithm() -> None:
    places = [(i + 0.5) / 3000 for i in range(3000)]
    plain = [Range(low=1, high=3).at(p) for p in places]
    assert [plain.count(v) for v in (1, 2, 3)] == [1000] * 3
    by_log = [Range(low=0.01, high=1.0, log=True).at(p) for p in places]
    assert sum(v < 0.1 for v in by_log) == pytest.approx(1500, abs=2)


def test_a_grid_has_each_setting_once() -> None:
    found = [tuple(setting.values()) for setting in grid(LISTS)]
    assert found == [(1, "x"), (1, "y"), (2, "x"), (2, "y"), (3, "x"), (3, "y")]
    assert (size(LISTS), size(MIXED)) == (6, None)


@pytest.mark.parametrize("space", [LISTS, MIXED])
def test_asking_for_more_changes_none(space: dict[str, object]) -> None:
    assert drawn(space, 6, 3)[:4] == drawn(space, 4, 3)  # type: ignore[arg-type]
    assert drawn(space, 4, 3) != drawn(space, 4, 4)  # type: ignore[arg-type]


def test_lists_are_drawn_without_replacement() -> None:
    found = [tuple(setting.values()) for setting in drawn(LISTS, 6, 0)]
    assert sorted(found) == sorted(tuple(s.values()) for s in grid(LISTS))


def test_one_more_key_moves_no_draw_of_the_others() -> None:
    more = drawn(MIXED | {"c": Range(low=0, high=9)}, 5, 0)
    assert [{k: v for k, v in s.items() if k != "c"} for s in more] == drawn(MIXED, 5, 0)


@pytest.mark.parametrize(
    "wrong", [{"low": 2, "high": 2}, {"low": 0.0, "high": 1.0, "log": True}, {"low": 1.0, "high": math.inf}]
)
def test_ranges_of_nothing_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(pr.UserError):
        Range(**wrong)  # type: ignore[arg-type]
