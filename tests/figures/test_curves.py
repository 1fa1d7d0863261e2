"""A curve is the mean over seeds, step by step, and a long one keeps its extremes."""

from __future__ import annotations

import statistics
from typing import Any

import pytest

from polyrhythm.figures.bands import band, curves_of, rests
from polyrhythm.figures.marks import COUNT, LOSS, SHARE, Range, Upright, exploded, upright
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


def test_what_a_run_does_after_the_first_has_ended_is_drawn_by_itself() -> None:
    one, two = rests(curves_of([ONE, TWO], accuracy, "time"))
    assert [(v["x"], v["y"]) for v in one] == [(4.0, 0.5), (5.0, 0.7)]
    assert two == []
    assert rests(curves_of([TWO], accuracy, "time")) == [[]]
    assert rests(curves_of([ONE, [version(0.0, None)]], accuracy, "time")) == []


def points(method: str, *values: float, spread: float = 0.0) -> list[dict[str, Any]]:
    return [{"method": method, "x": x, "y": y, "low": y - spread, "high": y + spread} for x, y in enumerate(values)]


def scale(found: Upright) -> dict[str, Any]:
    return dict(found.axis.to_dict()["scale"])


@pytest.mark.parametrize(
    ("of", "values", "spread", "wanted"),
    [
        (SHARE, (0.1, 0.9), 0.0, {"zero": False}),
        (SHARE, (0.1, 0.9), 0.3, {"zero": False, "domainMin": 0, "domainMax": 1}),
        (LOSS, (2.3, 0.2), 0.1, {"zero": False}),
        (LOSS, (2.3, 0.2), 0.7, {"zero": False, "domainMin": 0}),
        (COUNT, (5, 9), 0.0, {"zero": True, "domainMin": 0}),
        (Range(least=0, most=20, zero=True), (5, 20), 4.0, {"zero": True, "domainMin": 0, "domainMax": 20}),
        (LOSS, (-2.0, -3.0), 0.5, {"zero": False}),  # of the user's own, which may be below zero
    ],
)
def test_an_axis_ends_where_values_do(of: Range, values: Any, spread: float, wanted: dict[str, Any]) -> None:
    assert scale(upright("", points("a", *values, spread=spread), of)) == wanted


def test_one_method_that_diverges_leaves_the_others_to_be_seen() -> None:
    calm, wild = points("calm", 2.3, 0.4, 0.2), points("wild", 2.3, 40.0, 2.94e33)
    assert exploded([*calm, *wild]) == {"wild": 2.94e33}
    found = upright("loss", [*calm, *wild], LOSS)
    assert scale(found)["domainMax"] == 2.3
    assert found.leaving == [{"method": "wild", "x": 1, "y": 2.3, "said": "↑ 2.9e+33"}]
    assert not found.logarithmic
    assert upright("", [*calm, *wild], SHARE).leaving == []


def test_where_all_diverge_the_axis_is_logarithmic() -> None:
    found = upright("loss", points("wild", 2.3, 40.0, 2.94e33), LOSS)
    assert found.logarithmic
    assert scale(found) == {"type": "log"}
    assert "~e" in found.axis.to_dict()["axis"]["labelExpr"]
