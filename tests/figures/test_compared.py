"""Figures that compare: differences, what levels cost, and results against costs, from records made by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import polyrhythm as pr
from polyrhythm import figures
from polyrhythm.base.errors import UserError
from polyrhythm.figures.forest import STATES, found_differences
from polyrhythm.figures.pareto import points
from polyrhythm.figures.subject import Subject
from polyrhythm.figures.time_to import levels, reaching, shares, spent
from polyrhythm.results import Run
from polyrhythm.runs.costs import reached
from polyrhythm.runs.recorder import Recorder
from records import plan, version


def recorded(out: Path, name: str, scores: list[float], seed: int, **changes: Any) -> None:
    """A finished run with a version for each score, of which the n-th costs n times as much as the first."""
    costs = changes.pop("costs", 1.0)
    kept = Recorder(out)
    config = {"data": "digits", "clients": 4, "fleet": "tiers", "method": name, **changes}
    kept.begin(plan(name=name, seed=seed, config=config))
    for number, score in enumerate(scores):
        cost = {"time": 2.0 * number * costs, "joules": 0.5 * number * costs}
        kept.version(version(number, score, **(cost if costs else {**cost, "bytes_up": 0, "bytes_down": 0})), dict)
    kept.end("finished", "", {})


def rows(chart: Any) -> list[dict[str, Any]]:
    return [row for values in chart.to_dict()["datasets"].values() for row in values]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three seeds of four methods: `high` is above `base`, `even` is not told apart, `other` has other data."""
    for seed in range(3):
        recorded(tmp_path, "base", [0.1, 0.4, 0.5 + seed / 100], seed)
        recorded(tmp_path, "high", [0.1, 0.6, 0.7 + seed / 90], seed, costs=2.0)
        recorded(tmp_path, "even", [0.1, 0.3, 0.5 + (2 - seed) / 100], seed)
        recorded(tmp_path, "other", [0.1, 0.9, 0.9], seed, clients=200)
    return tmp_path


def test_the_forest_has_each_difference_with_its_interval_and_what_is_shown(folder: Path) -> None:
    runs = Run.all(folder)
    base, found, gains = found_differences(Subject(runs), "test")
    by = {row["method"]: row for row in found}
    assert (base, list(by)) == ("base", ["high", "even", "other"])
    expected = pr.compare(folder).differences()
    for name in by:
        assert (by[name]["mean"], by[name]["low"], by[name]["holm"]) == (
            *(expected[name].mean, expected[name].low),
            expected[name].holm,
        )
    assert gains["high"].holm == pytest.approx(2 * gains["high"].p)  # two tests: `other` is no match
    after, _, holds, none = STATES
    assert [by[name]["state"] for name in by] == [after, holds, none]
    assert by["other"]["said"].startswith("no pair")
    assert (by["even"]["n"], by["even"]["how"].count("Holm")) == (3, 1)


def test_the_forest_is_drawn_to_the_baseline_that_is_chosen(folder: Path) -> None:
    drawn = figures.draw("differences", Run.all(folder), baseline="even")
    assert {row["method"] for row in rows(drawn) if "mean" in row} == {"base", "high", "other"}
    assert drawn.to_dict()["title"]["subtitle"] == ["to even", "95 % intervals, paired by seed; Holm for 2 tests"]
    with pytest.raises(UserError, match="did you mean 'even'"):
        figures.draw("differences", Run.all(folder), baseline="evn")


def test_a_single_pair_is_drawn_without_an_interval(tmp_path: Path) -> None:
    for name, score in (("a", 0.5), ("b", 0.6)):
        recorded(tmp_path, name, [0.1, score], 0)
    drawn = figures.draw("differences", Run.all(tmp_path)).to_dict()
    intervals = [layer for layer in drawn["layer"] if "x2" in layer["encoding"]]
    assert intervals == []
    assert any(row.get("how") == "1 pair: no interval" for v in drawn["datasets"].values() for row in v)


def test_what_levels_cost_is_what_it_took_to_reach_them(folder: Path) -> None:
    runs = [run.versions for run in Run.all(folder)]
    goals = levels(runs, "accuracy", "test")
    assert (goals[0], goals[-1]) == (pytest.approx(0.12), pytest.approx(0.9))
    assert all(goal == pytest.approx(round(goal / 0.02) * 0.02) for goal in goals)
    for versions in runs:
        for axis, name in (("time", "virtual_seconds"), ("bytes", "bytes"), ("version", "rounds")):
            took = [reached(versions, "accuracy", goal) for goal in goals]
            expected = [None if one is None else one[name] for one in took]  # type: ignore[literal-required]
            assert spent(versions, "accuracy", goals, axis, "test") == expected  # type: ignore[arg-type]


def test_of_levels_that_not_all_runs_reach_it_says_how_many_and_pretends_nothing() -> None:
    runs = [
        [{"version": n, "time": float(n * pace), "test": {"accuracy": v}} for n, v in enumerate(values)]
        for pace, values in ((1, [0.0, 0.5, 0.9]), (3, [0.0, 0.5, 0.6]))
    ]
    found = reaching(runs, "accuracy", [0.5, 0.6, 0.9, 0.95], "time", "test")
    assert [(p["x"], p["y"], p["n"], p["of"], p["part"]) for p in found] == [
        (0.5, 2.0, 2, 2, 0),
        (0.6, 4.0, 2, 2, 0),
        (0.9, 2.0, 1, 2, 1),  # the quick one alone: another line, and no band
    ]
    assert [p["high"] > p["low"] for p in found] == [True, True, False]
    reached_by = shares({"a": runs}, "accuracy", [0.5, 0.9, 0.95], "test")
    assert [(p["y"], p["n"]) for p in reached_by] == [(1.0, 2), (0.5, 1), (0.0, 0)]


def test_the_front_is_of_those_that_none_beats_in_both(folder: Path) -> None:
    found = {point["method"]: point for point in points(Subject(Run.all(folder)), "joules", "test")}
    assert {name: point["front"] for name, point in found.items()} == {
        **{"base": True, "high": True, "even": True},  # equal in both: neither beats the other
        "other": None,
    }
    assert (found["high"]["x"], found["high"]["y"], found["high"]["n"]) == (2.0, pytest.approx(0.7 + 1 / 90), 3)
    assert found["high"]["high"] - found["high"]["y"] == pytest.approx(1 / 90)
    recorded(folder, "worse", [0.1, 0.2, 0.45], 0, costs=1.5)
    worse = points(Subject(Run.all(folder)), "joules", "test")[-1]
    assert (worse["method"], worse["front"]) == ("worse", False)


def test_without_costs_there_is_no_front_and_levels_are_drawn_over_rounds(tmp_path: Path) -> None:
    for name in ("a", "b"):
        recorded(tmp_path, name, [0.1, 0.5, 0.6], 0, costs=0.0)
    runs = Run.all(tmp_path)
    assert figures.why_not("pareto", runs).startswith("nothing was counted that costs; ")
    titles = [panel["title"] for panel in _vertical(figures.draw("to_accuracy", runs).to_dict())]
    assert titles == ["share of runs that get there", "rounds to get there"]


def _vertical(drawn: dict[str, Any]) -> list[dict[str, Any]]:
    return [(panel.get("layer") or [panel])[-1]["encoding"]["y"] for panel in drawn["hconcat"]]


def test_rows_of_a_figure_can_be_values_of_a_setting(tmp_path: Path) -> None:
    for rate in (0.1, 0.2):
        for seed in range(2):
            recorded(tmp_path, "same", [0.1, rate + seed / 100], seed, rate=rate)
    drawn = figures.draw("accuracy", Run.all(tmp_path), group_by="rate")
    assert {row["method"] for row in rows(drawn)} == {"rate 0.1", "rate 0.2"}
    (gain,) = (
        row for row in rows(pr.compare(tmp_path, group_by="rate").plot.differences()) if "low" in row and "p" in row
    )
    assert gain["method"] == "rate 0.2"


@pytest.mark.parametrize("name", ["accuracy", "costs", "pareto", "differences"])
def test_what_is_drawn_quickly_is_what_altair_checks(folder: Path, name: str) -> None:
    """Without a look at Vega-Lite's schema while it is drawn; which it fits nevertheless."""
    chart = figures.draw(name, Run.all(folder))
    assert chart.to_dict() == chart.to_dict(validate=False)
