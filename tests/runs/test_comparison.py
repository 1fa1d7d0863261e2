"""Methods side by side: seeds of one experiment are one row, and every mean says of how many."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import altair as alt
import pytest

import polyrhythm as pr
from polyrhythm.base.errors import UserError
from polyrhythm.results import Comparison, Run, result_tables
from polyrhythm.runs import Plan
from polyrhythm.runs.costs import GOALS
from polyrhythm.runs.recorder import Recorder
from small import experiment

TIERS = pr.Fleet(devices=pr.fleet.Tiers())
RECIPES = {"plain": pr.fedavg(cohort=2, epochs=1, batch=5), "slow": pr.fedavg(cohort=2, epochs=1, batch=5, lr=0.01)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods of the same name, three seeds each."""
    out = tmp_path_factory.mktemp("compared")
    for recipe in RECIPES.values():
        for seed in range(3):
            pr.run(experiment(recipe=recipe, seed=seed, fleet=TIERS, rounds=6), out=out)
    return out


def test_seeds_of_one_experiment_are_one_method(folder: Path) -> None:
    found = pr.compare(folder)
    assert [[run.seed for run in members] for members in found.methods.values()] == [[0, 1, 2]] * 2
    assert list(found.methods) == ["fedavg (lr 0.1)", "fedavg (lr 0.01)"]
    assert found.notes == ()


def test_numbers_are_means_and_sample_deviations_over_seeds(folder: Path) -> None:
    found = pr.compare(folder)
    entries = found.results(to=0.6, at_time=0.2)
    for members, entry in zip(found.methods.values(), entries, strict=True):
        finals = [run.summary["final_accuracy"] for run in members]
        expected = {"mean": pytest.approx(statistics.fmean(finals)), "sd": pytest.approx(statistics.stdev(finals))}
        assert entry["final_accuracy"] == {**expected, "n": 3}
        at = [run.accuracy_at(0.2) for run in members]
        assert entry["accuracy_at_time"]["mean"] == pytest.approx(statistics.fmean(a for a in at if a is not None))
        took = [t for run in members if (t := run.costs_to(0.6)) is not None]
        assert entry["reached"] == entry["joules"]["n"] == len(took)
        for name in GOALS:
            values: list[Any] = [value for t in took if (value := t[name]) is not None]
            assert entry[name]["mean"] == (pytest.approx(statistics.fmean(values)) if values else None)
    assert entries[0]["reached"] == 3


def test_who_never_got_there_is_counted_and_has_no_cost(folder: Path) -> None:
    for entry in pr.compare(folder).results(to=1.01, at_time=1e9):
        assert (entry["reached"], entry["n"]) == (0, 3)
        assert entry["virtual_seconds"] == entry["accuracy_at_time"] == {"mean": None, "sd": None, "n": 0}


def test_the_table_has_a_row_for_each_method(folder: Path) -> None:
    table = pr.compare(folder).table(to=0.6)
    assert list(table.index) == ["fedavg (lr 0.1)", "fedavg (lr 0.01)"]
    assert {"n", "final_accuracy", "final_accuracy_sd", "reached", "joules", "joules_sd", "bytes"} <= set(table.columns)


def test_a_name_that_the_user_gave_is_the_methods(tmp_path: Path) -> None:
    for seed in range(2):
        pr.run(experiment(seed=seed, rounds=1, name="mine"), out=tmp_path)
    found = pr.compare(tmp_path)
    assert list(found.methods) == ["mine"]
    assert len(Run.find("mine", tmp_path)) == 2


def test_methods_that_no_short_name_tells_apart_are_numbered(tmp_path: Path, make_plan: Any) -> None:
    # They differ in a fourth setting, of which a name has no room.
    for last in (1, 2, 3):
        kept = Recorder(tmp_path)
        kept.begin(make_plan(config={"a": last % 2, "b": last % 2, "c": last % 2, "d": last}))
        kept.end("finished", "", {})
    assert list(pr.compare(tmp_path).methods) == [
        "trial (a 1, b 1, c 1)",
        "trial (a 0, b 0, c 0)",
        "trial (a 1, b 1, c 1) #2",
    ]


def test_how_often_it_was_measured_makes_no_other_method_and_what_was_run_again_counts_once(tmp_path: Path) -> None:
    runs = [
        pr.run(experiment(seed=seed, rounds=2, evaluation=pr.Evaluation(every=every)), out=tmp_path)
        for seed, every in ((0, 1), (1, 2), (0, 1))
    ]
    found = Comparison(runs)
    (members,) = found.methods.values()
    assert [run.id for run in members] == [runs[2].id, runs[1].id]
    assert found.notes == (f"{runs[0].id} does not count: a later run has the same settings and seed",)


def test_runs_that_ended_otherwise_are_named(tmp_path: Path, make_plan: Any) -> None:
    kept = Recorder(tmp_path)
    kept.begin(make_plan())
    kept.end("stopped", "Ctrl-C", {})
    assert pr.compare(tmp_path).notes == (f"{kept.run_id} (seed 3) is stopped",)
    assert pr.compare(tmp_path).results()[0]["final_accuracy"]["n"] == 0


def recorded(out: Path, make_plan: Any, make_version: Any, *, score: float, seed: int = 3, **changes: Any) -> None:
    """A finished run of two versions, by its record alone."""
    name = changes.pop("name", "")
    kept = Recorder(out)
    config = {"data": "digits", "clients": 20, "partition": "iid", "fleet": "ideal", "rounds": 1, **changes}
    kept.begin(make_plan(name=name, seed=seed, config=config))
    for number in range(2):
        kept.version(make_version(number, score), dict)
    kept.end(changes.get("status", "finished"), "", {})


@pytest.mark.parametrize(
    ("other", "said", "pairs"),
    [
        ({"data": "mnist"}, "not all methods had the same data, those with another one are not paired: digits, ", 0),
        ({"clients": 200}, "clients 20, iid (a); digits, clients 200, iid (b)", 0),
        (
            {"fleet": "phones"},
            "not all methods had the same fleet, those with another one are not paired: ideal (a)",
            0,
        ),
        ({"rounds": 9}, "not all methods had the same budget, read them at equal cost: rounds 1 (a); rounds 9 (b)", 1),
        ({"method": "fedprox"}, "", 1),
        # A centralised baseline has the same samples, and Python writes out what a file says in words.
        ({"clients": 1, "partition": "none", "method": {"name": "Recipe", "regime": "centralised"}}, "", 1),
        ({"partition": {"name": "Iid"}}, "", 1),
    ],
)
def test_methods_on_other_data_or_another_fleet_are_never_paired(
    tmp_path: Path, make_plan: Any, make_version: Any, other: dict[str, Any], said: str, pairs: int
) -> None:
    recorded(tmp_path, make_plan, make_version, score=0.5, name="a")
    recorded(tmp_path, make_plan, make_version, score=0.75, name="b", **other)
    found = pr.compare(tmp_path)
    assert said in "; ".join(found.notes)
    assert bool(found.notes) is bool(said)
    assert found.differences()["b"].n == pairs
    assert found.differences()["b"].mean == (0.25 if pairs else None)


def test_the_trials_of_a_search_are_not_pooled_with_what_it_chose(
    tmp_path: Path, make_plan: Any, make_version: Any
) -> None:
    """Their seeds chose the setting: the mean over all of them would flatter it."""
    for name, seed, score in (("tune/4", 0, 0.9), ("tune/4", 1, 0.9), ("tune", 10, 0.7), ("tune", 11, 0.7)):
        recorded(tmp_path, make_plan, make_version, name=name, seed=seed, score=score)
    found = {
        entry["method"]: (entry["seeds"], entry["final_accuracy"]["mean"]) for entry in pr.compare(tmp_path).results()
    }
    assert found == {"tune/4": ([0, 1], 0.9), "tune": ([10, 11], 0.7)}


def test_a_method_of_which_a_run_failed_is_marked_wherever_it_stands(
    tmp_path: Path, make_plan: Any, make_version: Any
) -> None:
    recorded(tmp_path, make_plan, make_version, name="good", score=0.5)
    recorded(tmp_path, make_plan, make_version, name="bad", score=0.1, status="failed")
    found = pr.compare(tmp_path)
    assert [entry["unfinished"] for entry in found.results()] == [0, 1]
    table = result_tables.accuracy(found, "test")
    assert [row[0] for row in table.rows] == ["good", "bad †"]
    assert table.caption.endswith("† not all of its runs ended as planned.")
    paired = result_tables.differences(found, "good", "test", 0.95)
    assert paired is not None
    assert paired.rows[0][0] == "bad †"


def test_what_cannot_be_compared(tmp_path: Path, make_plan: Any) -> None:
    with pytest.raises(UserError, match="no run to compare"):
        pr.compare([])
    for plan in (make_plan(), make_plan(headline="r2", config={"data": "stays"})):
        kept = Recorder(tmp_path)
        kept.begin(Plan(**{f: getattr(plan, f) for f in plan.__dataclass_fields__}))
        kept.end("finished", "", {})
    with pytest.raises(UserError, match="judged by accuracy and r2"):
        pr.compare(tmp_path)


def values(chart: Any) -> list[dict[str, Any]]:
    (found,) = chart.to_dict()["datasets"].values()
    return list(found)


@pytest.mark.parametrize("ending", ["png", "html"])
def test_costs_are_three_panels(folder: Path, tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"costs.{ending}"
    chart = pr.compare(folder).plot.costs(save=path)
    assert isinstance(chart, alt.HConcatChart)
    titles = [panel["layer"][1]["encoding"]["x"]["title"] for panel in chart.to_dict()["hconcat"]]
    assert titles == ["virtual time (s)", "energy (J)", "traffic (bytes)"]
    assert path.stat().st_size > 1000


def test_a_run_is_drawn_against_what_it_cost(folder: Path) -> None:
    run = next(iter(pr.compare(folder).methods.values()))[0]
    for against in ("time", "joules", "bytes", "client_updates", "compute_seconds"):
        drawn = values(run.plot.accuracy(against=against, live=False))
        assert [v["x"] for v in drawn] == sorted(v["x"] for v in drawn)
    history = run.history
    assert [v["x"] for v in values(run.plot.accuracy(against="bytes", live=False))] == list(
        history["bytes_up"] + history["bytes_down"]
    )
