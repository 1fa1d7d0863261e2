"""A curve is the mean over seeds, step by step, and a long one keeps its extremes."""

from __future__ import annotations

import statistics
from typing import Any

import pytest

from polyrhythm.figures.bands import band
from polyrhythm.figures.thinning import thin
from polyrhythm.runs.costs import score


def version(time: float, accuracy: float | None) -> dict[str, Any]:
    test = None if accuracy is None else {"accuracy": accuracy}
    return {"version": 0, "time": time, "test": test, "bytes_up": 3 * time, "bytes_down": time, "joules": time / 2}


ONE = [version(0.0, 0.1), version(1.0, None), version(2.0, 0.5), version(5.0, 0.7)]
TWO = [version(0.0, 0.3), version(3.0, 0.9), version(4.0, 0.8)]


def accuracy(row: Any) -> float | None:
    return score(row, "accuracy")


def test_a_curve_is_the_mean_of_steps_and_ends_where_the_first_run_does() -> None:
    drawn = band([ONE, TWO], accuracy, "time")
    assert [v["x"] for v in drawn] == [0.0, 2.0, 3.0, 4.0]
    assert [v["y"] for v in drawn] == pytest.approx([0.2, 0.4, 0.7, 0.65])
    assert [v["high"] - v["y"] for v in drawn] == pytest.approx(
        [statistics.stdev(pair) for pair in ((0.1, 0.3), (0.5, 0.3), (0.5, 0.9), (0.5, 0.8))]
    )


def test_a_run_alone_has_no_spread() -> None:
    alone = band([TWO], accuracy, "bytes")
    assert [(v["x"], v["y"], v["low"]) for v in alone] == [(0.0, 0.3, 0.3), (12.0, 0.9, 0.9), (16.0, 0.8, 0.8)]


def test_a_method_of_which_one_run_was_never_measured_has_no_curve() -> None:
    assert band([ONE, [version(0.0, None)]], accuracy, "time") == []


def test_thinning_keeps_ends_and_extremes() -> None:
    rows = [{"x": x, "y": float(x % 7)} for x in range(10_000)]
    rows[5003]["y"], rows[7111]["y"] = 1e6, -1e6
    kept = thin(rows)
    assert len(kept) <= 400
    assert [row["x"] for row in kept] == sorted(row["x"] for row in kept)
    assert {0, 5003, 7111, 9999} <= {row["x"] for row in kept}


def test_what_is_short_is_not_thinned() -> None:
    rows = [{"x": x, "y": 0.0} for x in range(400)]
    assert thin(rows) == rows
