"""The curve fits the terminal, and says the same in braille and in ASCII."""

from __future__ import annotations

import io
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyrhythm.results.chart import curve, takes_unicode

values = st.lists(st.floats(-1e6, 1e6) | st.just(math.nan) | st.just(math.inf), max_size=60)


@settings(max_examples=60)
@given(values=values, width=st.integers(24, 120), height=st.integers(1, 20), unicode=st.booleans())
def test_fits_and_has_all_rows(values: list[float], width: int, height: int, unicode: bool) -> None:
    text = curve(list(enumerate(values)), title="loss", width=width, height=height, unicode=unicode)
    lines = text.splitlines()
    assert unicode or text.isascii()
    if any(map(math.isfinite, values)):
        assert len(lines) == height + 4
        assert max(map(len, lines)) <= width
    else:
        assert lines == ["loss: nothing to draw yet"]


def drawn(values: list[float]) -> list[str]:
    return curve(list(enumerate(values)), title="", height=5, width=40, unicode=False).splitlines()[1:6]


def test_rising_and_falling_are_mirror_images() -> None:
    rising, falling = drawn([0.0, 1.0]), drawn([1.0, 0.0])
    bars = [row.index("|") for row in rising]
    assert rising[0][bars[0] + 1 :].strip()
    assert rising[0].endswith("*")
    assert falling[4].endswith("*")
    assert rising != falling


def test_a_gap_breaks_the_line() -> None:
    joined, broken = "".join(drawn([1.0, 1.0, 1.0, 0.0])), "".join(drawn([1.0, math.nan, 1.0, 0.0]))
    assert broken.count("*") < joined.count("*")


def test_labels_name_the_ends() -> None:
    lines = curve([(0, 0.1), (30, 0.93)], title="accuracy", axis="round").splitlines()
    assert "0.93" in lines[1]
    assert "0.10" in lines[10]
    assert lines[-2].split() == ["0", "30"]


@pytest.mark.parametrize(("encoding", "expected"), [("utf-8", True), ("ascii", False), ("latin-1", False)])
def test_terminals_that_take_braille(encoding: str, expected: bool) -> None:
    assert takes_unicode(io.TextIOWrapper(io.BytesIO(), encoding=encoding)) is expected


def test_small_changes_look_small_where_the_axis_has_a_least_span() -> None:
    from polyrhythm.results.chart import curve

    points = [(x, 0.1 + 0.001 * (x % 2)) for x in range(5)]
    assert "0.126 |" in curve(points, title="accuracy", height=5, least=0.05, unicode=False)
    assert "0.125 |" in curve([(0, 0.1), (1, 0.1)], title="accuracy", height=5, least=0.05, unicode=False)
    assert "0.126" not in curve(points, title="accuracy", height=5, unicode=False)
