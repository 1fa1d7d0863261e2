"""The best method is only said to be better where that is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import polyrhythm as pr
from polyrhythm.results import result_tables
from polyrhythm.results.verdict import best
from polyrhythm.runs.recorder import Recorder


@pytest.fixture
def compared(tmp_path: Path, make_plan: Any, make_version: Any) -> Any:
    """A comparison of methods with a final score for each seed, by their records alone."""

    def make(methods: dict[str, list[float]], **other: Any) -> pr.results.Comparison:
        for name, scores in methods.items():
            for seed, score in enumerate(scores):
                kept = Recorder(tmp_path)
                config = {"data": "digits", "clients": 4, "method": name, **other.get(name, {})}
                kept.begin(make_plan(name=name, seed=seed, config=config))
                for number in range(2):
                    kept.version(make_version(number, score if number else 0.1, score), dict)
                kept.end("finished", "", {})
        return pr.compare(tmp_path)

    return make


def test_the_best_is_bold_where_its_interval_leaves_out_zero(compared: Any) -> None:
    found = compared({"a": [0.5, 0.51, 0.52], "b": [0.7, 0.72, 0.71], "c": [0.3, 0.3, 0.3]})
    first = best(found, "final", "test")
    assert first is not None
    assert (first.method, first.second, first.shown) == ("b", "a", True)
    table = result_tables.accuracy(found, "test")
    assert table.marked == {(1, 2), (1, 3), (1, 4)}
    assert (
        "Bold: the highest mean, where the interval of its paired difference to the second leaves out 0."
        in table.caption
    )
    assert "its 95 % interval leaves out 0" in found.verdict


def test_nothing_is_bold_where_the_interval_holds_zero_and_it_is_said(compared: Any) -> None:
    found = compared({"a": [0.5, 0.6, 0.7], "b": [0.6, 0.55, 0.69]})
    table = result_tables.accuracy(found, "test")
    assert table.marked == frozenset()
    assert "that is not shown of final (b before a), best (b before a), last 20 (b before a)." in table.caption
    assert found.verdict.endswith("interval holds 0, so neither is shown to be better.")
    apart = result_tables.differences(found, "a", "test", 0.95)
    assert apart is not None
    assert apart.rows[0][2].endswith("]°")
    assert apart.marked == frozenset()


def test_other_data_are_no_candidates(compared: Any) -> None:
    found = compared({"a": [0.5, 0.51], "b": [0.9, 0.9]}, b={"clients": 200})
    assert (
        found.verdict
        == "a: final accuracy 0.5050 ± 0.0071 over 2 seeds. Left out, as on other data or another fleet: b."
    )
    assert result_tables.accuracy(found, "test").marked == frozenset()


@pytest.mark.parametrize(
    ("methods", "said"),
    [
        ({"a": [0.5], "b": [0.75]}, "The difference is +0.2500; one pair has no interval, so neither is shown"),
        ({"a": [0.5, 0.5], "b": [0.75, 0.75]}, "2 pairs that all differ by the same have no interval"),
        ({"a": [0.5, 0.5], "b": [0.5, 0.5]}, "a and b end highest, "),
    ],
)
def test_what_cannot_be_judged_is_said(compared: Any, methods: dict[str, list[float]], said: str) -> None:
    found = compared(methods)
    assert said in found.verdict
    assert result_tables.accuracy(found, "test").marked == frozenset()
