"""What it took to get there, read from the record, and how numbers are put into words."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import polyrhythm as pr
from polyrhythm.base.errors import UserError
from polyrhythm.results import Run
from polyrhythm.runs import Plan, VersionRecord
from polyrhythm.runs.costs import TOTALS, amount, lines, seconds
from polyrhythm.runs.recorder import Recorder
from small import experiment

MakePlan = Callable[..., Plan]
MakeVersion = Callable[..., VersionRecord]


@pytest.fixture
def run(tmp_path: Path, make_plan: MakePlan, make_version: MakeVersion) -> Run:
    """Version k has taken 2k s, k/2 J, 84k bytes and 2k updates; versions 2 and 4 were not measured."""
    kept = Recorder(tmp_path)
    kept.begin(make_plan())
    scores = {0: (0.1, 0.2), 1: (0.5, 0.6), 3: (0.4, 0.3), 5: (0.8, 0.7), 6: (0.7, 0.9), 7: (math.nan, 0.9)}
    for number in range(8):
        test, held = scores.get(number, (None, None))
        kept.version(make_version(number, test, held, cohort=number), dict)
    kept.end("finished", "", {})
    return Run.open(kept.run_id, tmp_path)


def test_the_first_evaluated_version_that_is_as_good_counts(run: Run) -> None:
    assert (run.rounds_to(0.5), run.rounds_to(0.51), run.rounds_to(0.8)) == (1, 5, 5)
    assert (run.time_to(0.6), run.energy_to(0.6), run.bytes_to(0.6), run.updates_to(0.6)) == (10.0, 2.5, 420, 10)
    assert run.mean_cohort_to(0.6) == 3.0  # of cohorts 1, 2, 3, 4, 5
    assert run.costs_to(0.6) == {
        **{"rounds": 5, "virtual_seconds": 10.0, "joules": 2.5, "bytes": 420, "client_updates": 10},
        **{"mean_cohort": 3.0, "flops": 5000, "reached": 0.8},
    }


@pytest.mark.parametrize("goal", ["0.8", None, math.nan, True])
def test_a_goal_is_a_number(run: Run, goal: Any) -> None:
    with pytest.raises(UserError, match="goal = "):
        run.time_to(goal)


def test_a_goal_that_was_never_reached_has_no_cost(run: Run) -> None:
    for ask in (run.rounds_to, run.time_to, run.energy_to, run.bytes_to, run.updates_to, run.mean_cohort_to):
        assert ask(0.81) is None
    assert run.costs_to(0.81) is None


def test_what_the_initial_model_could_cost_nothing(run: Run) -> None:
    assert (run.rounds_to(0.1), run.time_to(0.1), run.bytes_to(0.1), run.mean_cohort_to(0.1)) == (0, 0.0, 0, None)


def test_validation_data_may_judge_it(run: Run, tmp_path: Path, make_plan: MakePlan, make_version: MakeVersion) -> None:
    assert (run.rounds_to(0.6, on="validation"), run.rounds_to(0.9, on="validation")) == (1, 6)
    kept = Recorder(tmp_path / "other")
    kept.begin(make_plan())
    kept.version(make_version(0, 0.5), dict)
    kept.end("finished", "", {})
    with pytest.raises(UserError, match="no version was judged on validation data"):
        Run.open(kept.run_id, tmp_path / "other").rounds_to(0.5, on="validation")


def test_accuracy_at_a_time_is_that_of_the_last_version_measured_by_then(run: Run) -> None:
    assert [run.accuracy_at(t) for t in (0.0, 1.9, 2.0, 5.0, 10.0, 13.9)] == [0.1, 0.1, 0.5, 0.5, 0.8, 0.7]
    assert run.accuracy_at(14.0) == 0.7
    assert run.accuracy_at(14.1) is None  # nobody knows what it would have been


def test_costs_are_the_summarys_by_the_same_names(tmp_path: Path) -> None:
    run = pr.run(experiment(), out=tmp_path)
    table = run.costs()
    assert list(table.index) == [cost.name for cost in TOTALS]
    for name, total in table["total"].items():
        assert total == run.summary[name]
    assert table.loc["compute_seconds", "unit"] == "s"
    for part in ("clients' time", "energy", "fairness", "lost"):
        assert part in str(run)


def test_a_run_without_a_version_has_no_costs_yet(tmp_path: Path, make_plan: MakePlan) -> None:
    kept = Recorder(tmp_path)
    kept.begin(make_plan())
    run = Run.open(kept.run_id, tmp_path)
    assert run.costs()["total"].isna().all()
    assert run.rounds_to(0.5) is None
    assert run.accuracy_at(0.0) is None
    kept.end("failed", "", {})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((0, "0 J"), (1, "1 J"), (999, "999 J"), (999.9, "1 kJ"), (1000, "1 kJ"), (12345, "12.3 kJ")),
        *((0.5, "500 mJ"), (1e-7, "100 nJ"), (1e-12, "0.001 nJ"), (3e15, "3 PJ"), (5e20, "500 EJ"), (2**63, "9.22 EJ")),
    ],
)
def test_amounts_have_three_digits_and_a_prefix(value: float, text: str) -> None:
    assert amount(value, "J") == text


def test_times_are_in_seconds_or_hours() -> None:
    assert [seconds(t) for t in (0.0, 12.34, 1071.4, 9999.0, 36_000.0)] == [
        "0 s",
        "12.3 s",
        "1,071 s",
        "9,999 s",
        "10 h",
    ]


def test_before_there_is_a_version_nothing_is_said() -> None:
    assert lines({}) == {}
