"""The best method is only said to be better where that is shown."""

from __future__ import annotations

from dataclasses import replace
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

    def make(
        methods: dict[str, list[float]], spreads: dict[str, list[dict[str, float]]] | None = None, **other: Any
    ) -> pr.results.Comparison:
        for name, scores in methods.items():
            for seed, score in enumerate(scores):
                last = {} if spreads is None else {"spread": spreads[name][seed]}
                kept = Recorder(tmp_path)
                config = {"data": "digits", "clients": 4, "method": name, **other.get(name, {})}
                kept.begin(make_plan(name=name, seed=seed, config=config))
                for number in range(2):
                    made = make_version(number, score if number else 0.1, score)
                    kept.version(replace(made, **(last if number else {})), dict)
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
        ({"a": [0.5, 0.5], "b": [0.5, 0.5]}, "a and b end highest, final accuracy 0.5000 ± 0.0000 over 2 seeds. The"),
    ],
)
def test_what_cannot_be_judged_is_said(compared: Any, methods: dict[str, list[float]], said: str) -> None:
    found = compared(methods)
    assert said in found.verdict
    assert result_tables.accuracy(found, "test").marked == frozenset()


def test_where_clients_have_their_own_models_these_come_first(compared: Any) -> None:
    """The global model of "own" is the worst, and nobody uses it."""
    spreads = {
        "own": [{"global_mean": 0.2, "personal_mean": 0.8}, {"global_mean": 0.2, "personal_mean": 0.9}],
        "one": [{"global_mean": 0.6}, {"global_mean": 0.5}],
    }
    found = compared({"one": [0.6, 0.5], "own": [0.2, 0.2]}, spreads)
    first, then = found.verdict.split(" Of global models, ")
    assert first == (
        "By the models that clients use, on their own tests, own serves the mean client best, accuracy "
        "0.8500 ± 0.0707 over 2 seeds; next is one (0.5500 ± 0.0707 over 2 seeds). The paired difference is "
        "+0.3000 [−0.9706, +1.5706]° over 2 seeds; its 95 % interval holds 0, so neither is shown to be better."
    )
    assert then.startswith("one ends highest, final accuracy 0.5500 ± 0.0707 over 2 seeds; next is own")
    assert found.used("own") == {0: 0.8, 1: 0.9}
    assert (found.has_own_models("own"), found.has_own_models("one")) == (True, False)


def test_without_own_models_or_anything_to_compare_them_with_nothing_is_added(compared: Any) -> None:
    shared = {name: [{"global_mean": 0.5}] for name in "ab"}
    assert "models that clients use" not in compared({"a": [0.5], "b": [0.6]}, shared).verdict


def test_own_models_of_one_method_alone_are_no_comparison(compared: Any) -> None:
    spreads: dict[str, list[dict[str, float]]] = {"a": [{"global_mean": 0.5, "personal_mean": 0.9}], "b": [{}]}
    assert "models that clients use" not in compared({"a": [0.5], "b": [0.6]}, spreads).verdict
