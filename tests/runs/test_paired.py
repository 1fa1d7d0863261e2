"""Paired differences: intervals, p-values and Holm's correction are those of the books."""

from __future__ import annotations

import math

import pytest
from scipy import stats

from polyrhythm.runs.paired import Difference, corrected, difference, two_sided


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 9, 30])
@pytest.mark.parametrize("t", [0.0, 0.3, 1.0, 4.3027, 40.0])
def test_the_tail_is_students(t: float, freedom: int) -> None:
    assert two_sided(t, freedom) == pytest.approx(2 * stats.t.sf(t, freedom), rel=1e-9, abs=1e-14)
    assert two_sided(-t, freedom) == two_sided(t, freedom)


def test_three_pairs_by_hand() -> None:
    """Mean 0.02, sd 0.01; t of 2 degrees and 95 % is 4.3027, so the interval reaches 0.02484 to both sides."""
    found = difference([0.01, 0.02, 0.03])
    assert (found.low, found.high) == (pytest.approx(0.02 - 0.024841, abs=1e-6), pytest.approx(0.044841, abs=1e-6))
    assert found.holds_zero is True
    # t = 2 sqrt(3); of 2 degrees of freedom P(|T| >= t) = 1 - t / sqrt(2 + t²).
    t = 2 * math.sqrt(3)
    assert found.p == pytest.approx(1 - t / math.sqrt(2 + t * t))


def test_p_is_that_of_a_paired_t_test() -> None:
    ours, others = [0.91, 0.95, 0.93, 0.97, 0.96], [0.90, 0.91, 0.94, 0.92, 0.91]
    found = difference([a - b for a, b in zip(ours, others, strict=True)])
    assert found.p == pytest.approx(stats.ttest_rel(ours, others).pvalue)
    assert found.holds_zero is (found.p >= 0.05)


def test_holm_by_hand() -> None:
    """0.01, 0.02, 0.03, 0.4 times 4, 3, 2, 1; what would fall is kept up: 0.04, 0.06, 0.06, 0.4."""
    given = {"c": 0.03, "a": 0.01, "d": 0.4, "b": 0.02}
    found = corrected({name: Difference(mean=1.0, n=3, p=p) for name, p in given.items()})
    assert {name: round(one.holm or 0, 12) for name, one in found.items()} == {
        "c": 0.06,
        "a": 0.04,
        "d": 0.4,
        "b": 0.06,
    }
    assert [name for name, one in found.items() if one.shown] == ["a"]


def test_holm_counts_only_tests_that_were_made_and_ends_at_one() -> None:
    found = corrected(
        {"a": Difference(mean=1.0, p=0.6), "none": Difference(mean=None), "b": Difference(mean=1.0, p=0.7)}
    )
    assert (found["a"].holm, found["b"].holm, found["none"].holm) == (1.0, 1.0, None)


def test_pairs_that_all_differ_by_the_same_have_no_interval_and_equal_ones_show_nothing() -> None:
    same = difference([0.25, 0.25])
    assert (same.mean, same.low, same.p, same.holds_zero, same.n) == (0.25, None, None, None, 2)
    equal = difference([0.0, 0.0, 0.0])
    assert (equal.low, equal.high, equal.p, equal.holds_zero) == (0.0, 0.0, 1.0, True)
