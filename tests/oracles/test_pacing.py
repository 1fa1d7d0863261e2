"""Pacing functions against exact arithmetic: rationals, and decimals with fifty places."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyrhythm.base.errors import UserError
from polyrhythm.methods.order.pacing import Family, Pacing

FAMILIES: tuple[Family, ...] = ("linear", "quadratic", "root", "step", "exponential", "log")
HUNDREDTHS = st.integers(1, 100).map(lambda k: k / 100)


def exact(pacing: Pacing, total: int, step: int, steps: int) -> int:
    """The formulas of the module's docstring, in exact numbers: a setting of 0.29 means 29 / 100."""
    a, b = Fraction(str(pacing.a)), Fraction(str(pacing.b))
    if a == 0:
        return total
    way = Fraction(step) / (a * steps)
    room = total - b if pacing.printed else total * (1 - b)
    if pacing.family == "linear":
        raw = math.floor(total * b + room * way)
    elif pacing.family == "quadratic":
        raw = math.floor(total * b + room * way**2)
    elif pacing.family == "step":
        raw = math.floor(total * b + total * math.floor(way))
    else:
        raw = _transcendental(pacing.family, total * b, room, way)
    return max(1, min(total, raw))


def _transcendental(family: Family, start: Fraction, room: Fraction, way: Fraction) -> int:
    with localcontext(prec=50):
        s, r, w = (Decimal(x.numerator) / Decimal(x.denominator) for x in (start, room, min(way, Fraction(2))))
        if family == "root":
            shape = w.sqrt()
        elif family == "exponential":
            shape = ((10 * w).exp() - 1) / (Decimal(10).exp() - 1)
        else:
            shape = 1 + (w + Decimal(-10).exp()).ln() / 10
        return math.floor(s + r * shape + Decimal("1e-30"))


@given(
    st.sampled_from(FAMILIES),
    st.integers(0, 150).map(lambda k: k / 100),
    HUNDREDTHS,
    st.integers(1, 5000),
    st.integers(1, 600),
    st.floats(0, 1.2),
    st.booleans(),
)
def test_counts_are_those_of_exact_arithmetic(
    family: Family, a: float, b: float, total: int, steps: int, place: float, printed: bool
) -> None:
    # As printed, the exponential has a row of its own below, and there is no logarithm.
    pacing = Pacing(family=family, a=a, b=b, printed=printed and family not in ("exponential", "log"))
    at_the_end = math.floor(Fraction(str(a)) * steps)
    for step in (0, int(place * steps), max(0, at_the_end - 1), at_the_end, at_the_end + 1):
        assert pacing.count(total, step, steps) == exact(pacing, total, step, steps)


@given(st.sampled_from(FAMILIES), HUNDREDTHS, HUNDREDTHS, st.integers(1, 3000), st.integers(1, 20))
def test_where_it_begins_and_ends(family: Family, a: float, b: float, total: int, hundreds: int) -> None:
    pacing, steps = Pacing(family=family, a=a, b=b), 100 * hundreds
    counts = [pacing.count(total, step, steps) for step in range(0, steps + 1, hundreds)]
    end = round(100 * a)  # a * steps, in hundreds
    assert counts[0] == max(1, math.floor(total * Fraction(str(b))))
    assert counts == sorted(counts)
    assert all(1 <= count <= total for count in counts)
    assert counts[end:] == [total] * (101 - end)
    if family == "step":
        assert set(counts[:end]) == {counts[0]}


@pytest.mark.parametrize("family", FAMILIES)
def test_by_hand(family: Family) -> None:
    """N = 1000, T = 100, a = 0.8, b = 0.2: s = 0, a quarter and a half of the way, and its end."""
    by_hand = {
        "linear": [200, 400, 600, 1000],
        "quadratic": [200, 250, 400, 1000],
        "root": [200, 600, 765, 1000],
        "step": [200, 200, 200, 1000],
        "exponential": [200, 200, 205, 1000],
        "log": [200, 889, 944, 1000],
    }
    pacing = Pacing(family=family, a=0.8, b=0.2)
    assert [pacing.count(1000, step, 100) for step in (0, 20, 40, 80)] == by_hand[family]


def test_no_time_to_grow_is_everything_at_once() -> None:
    for family in FAMILIES:
        for a, steps in ((0.0, 10), (0.8, 0)):
            assert Pacing(family=family, a=a, b=0.1).count(50, 0, steps) == 50


def test_a_share_of_one_is_everything_at_once() -> None:
    assert all(Pacing(family=f, b=1.0).count(7, step, 10) == 7 for f in FAMILIES for step in range(11))


def test_the_printed_slips() -> None:
    """N - b in place of N(1 - b) is everything after (1 - b) a of the steps; the exponential is everything always."""
    printed = Pacing(family="linear", a=0.8, b=0.2, printed=True)
    assert [printed.count(500, s, 500) for s in (0, 319, 321, 400)] == [100, 498, 500, 500]
    exponential = Pacing(family="exponential", a=0.8, b=0.2, printed=True)
    assert {exponential.count(500, s, 500) for s in range(0, 501, 50)} == {500}


@pytest.mark.parametrize("settings", [{"a": -0.1}, {"b": 0.0}, {"b": 1.1}, {"family": "cubic"}])
def test_what_has_no_meaning_is_refused(settings: dict[str, float]) -> None:
    with pytest.raises(UserError, match="pacing"):
        Pacing(**settings)  # type: ignore[arg-type]
