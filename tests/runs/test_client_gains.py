"""Pairs of one client and one seed: what single clients gain, apart from how sure the mean is."""

from __future__ import annotations

import dataclasses
import json
import statistics
from pathlib import Path
from typing import Any

import pytest

import polyrhythm as pr
from polyrhythm import figures
from polyrhythm.base.errors import UserError
from polyrhythm.figures.own_models import gained, own_bands, points
from polyrhythm.figures.subject import Subject
from polyrhythm.figures.theme import THEMES
from polyrhythm.results import fairness_tables
from polyrhythm.runs.client_gains import client_difference, gains, mean_of, scores_used
from polyrhythm.runs.paired import difference
from polyrhythm.runs.spread import ClientResults
from small import collection, experiment

SEEDS = (0, 1, 2)


def recorded(out: Path, recipe: pr.Recipe, seed: int, **changes: Any) -> pr.Run:
    split = pr.federate(collection(120), pr.data.Dirichlet(alpha=0.3), 8, seed, local_test=0.3)
    values = {"federation": split, "recipe": recipe, "seed": seed, "model": "mlp", "rounds": 4}
    return pr.run(experiment(**{**values, **changes}), out=out)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out, small = tmp_path_factory.mktemp("gains"), {"cohort": 3, "epochs": 1, "batch": 5}
    for recipe in (pr.fedavg(**small), pr.fedavg_ft(**small, tuning=2), pr.fedper(**small)):
        for seed in SEEDS:
            recorded(out, recipe, seed)
    return out


def by_hand(found: pr.Comparison, method: str, seed: int) -> dict[int, float]:
    """From the tables of results of each run."""
    ends = []
    for name in (method, "fedavg_ft"):
        run = next(run for run in found.methods[name] if run.seed == seed)
        table = run.client_results.loc[4]
        column = "personal" if "personal" in table else "accuracy"
        ends.append({int(client): float(value) for client, value in table[column].items()})
    return {client: value - ends[1][client] for client, value in ends[0].items()}


def test_each_number_by_hand(folder: Path) -> None:
    found = pr.compare(folder)
    assert found.client_baseline == "fedavg_ft"
    for name in ("fedper", "fedavg"):
        of = {seed: by_hand(found, name, seed) for seed in SEEDS}
        got = found.client_gains()[name]
        assert got.keys() == of.keys()
        assert all(got[seed] == pytest.approx(of[seed]) for seed in SEEDS)
        one, values = found.client_differences()[name], [list(of[seed].values()) for seed in SEEDS]
        over_seeds = difference([statistics.fmean(v) for v in values])
        assert (one.mean.mean, one.mean.low, one.mean.n) == (
            *(pytest.approx(over_seeds.mean), pytest.approx(over_seeds.low)),
            3,
        )
        assert one.lose == pytest.approx(statistics.fmean(sum(x < 0 for x in v) / len(v) for v in values))
        assert one.win == pytest.approx(statistics.fmean(sum(x > 0 for x in v) / len(v) for v in values))
        assert one.sd == pytest.approx(statistics.fmean(statistics.pstdev(v) for v in values))
        assert one.worst == pytest.approx(statistics.fmean(min(v) for v in values))  # of eight clients, one
        assert one.clients == (min(map(len, values)), max(map(len, values)))
    assert found.client_differences()["fedavg"].lose


def test_the_two_spreads_are_not_each_other() -> None:
    """Every seed alike, clients far apart; and every client alike, seeds far apart."""
    clients = client_difference([{0: 0.5, 1: -0.5}] * 3)
    assert (clients.mean.mean, clients.mean.sd, clients.sd, clients.lose) == (0.0, 0.0, 0.5, 0.5)
    seeds = client_difference([{0: x, 1: x} for x in (0.1, 0.2, 0.3)])
    assert (seeds.sd, seeds.lose, seeds.win) == (0.0, 0.0, 1.0)
    assert seeds.mean.sd == pytest.approx(0.1)


def test_only_pairs_count() -> None:
    assert gains({0: 1.0, 1: 0.5}, {1: 0.25, 2: 0.0}) == {1: 0.25}
    assert mean_of([{0: 1.0, 1: 0.0}, {0: 0.0}]) == {0: 0.5}
    assert mean_of([]) == {}
    none = client_difference([{}, {}])
    assert (none.mean.mean, none.lose, none.clients) == (None, None, (0, 0))
    own = ClientResults((3, 5), ("", ""), [(2, (0.1, 0.2), (1.0, 1.0))], 2, [(2, (0.5, float("nan")))])
    assert scores_used(own) == {3: 0.5}
    assert scores_used(own._replace(personal=())) == {3: 0.1, 5: 0.2}
    assert scores_used(own._replace(personal=(), versions=())) == {}


def test_on_other_data_there_is_no_pair(folder: Path, tmp_path: Path) -> None:
    other = pr.federate(collection(120), pr.data.Iid(), 8, 0, local_test=0.3)
    run = recorded(tmp_path, pr.ditto(cohort=3), 0, federation=other)
    found = pr.compare([*pr.Run.all(folder), run])
    assert found.client_gains()["ditto"] == {}
    assert found.client_differences()["ditto"].lose is None
    with pytest.raises(UserError, match="nobody"):
        found.client_gains("nobody")
    table = fairness_tables.differences(found, found.baseline)
    assert table is not None
    assert next(row for row in table.rows if row[0] == "ditto")[3] == "–"
    assert fairness_tables.differences(pr.compare([run]), "ditto") is None


def test_gains_are_over_fine_tuning_unless_something_else_is_said(folder: Path) -> None:
    runs = pr.Run.all(folder)
    found = pr.compare(runs)
    assert (found.baseline, found.client_baseline) == ("fedavg", "fedavg_ft")
    assert found.client_gains().keys() == {"fedavg", "fedper"}
    assert gained(Subject(runs))[0] == "fedavg_ft"
    assert "to fedavg_ft, paired" in json.dumps(figures.draw("client_gains", runs).to_dict())
    chosen = pr.compare(runs, baseline="fedavg")
    assert (chosen.client_baseline, *chosen.client_gains()) == ("fedavg", "fedavg_ft", "fedper")
    assert gained(Subject(runs), "fedavg")[0] == "fedavg"
    assert "to fedavg, paired" in json.dumps(figures.draw("client_gains", runs, baseline="fedavg").to_dict())
    without = pr.compare([run for run in runs if run.recipe != "fedavg_ft"])
    assert without.client_baseline == without.baseline


def test_the_report_and_the_command_tell(folder: Path, tmp_path: Path) -> None:
    from polyrhythm.report import write

    write(pr.Run.all(folder), tmp_path / "report.md")
    assert "What clients gain over" in (tmp_path / "report.md").read_text()
    json.dumps(dataclasses.asdict(pr.compare(folder).client_differences()["fedper"]))


def test_figures_show_the_same_numbers(folder: Path) -> None:
    subject, found = Subject(pr.Run.all(folder)), pr.compare(folder)
    base, rows = gained(subject)
    assert base == "fedavg_ft"
    for seed in SEEDS:
        drawn = [row for row in rows if (row["method"], row["seed"]) == ("fedper", seed)]
        assert {row["client"]: row["gain"] for row in drawn} == found.client_gains()["fedper"][seed]
        assert [row["gain"] for row in drawn] == sorted(row["gain"] for row in drawn)
        assert (drawn[0]["share"], drawn[-1]["share"]) == (0.0, 1.0)
    runs = found.methods["fedper"]
    point = next(row for row in points(subject) if row["method"] == "fedper")
    assert point["x"] == pytest.approx(statistics.fmean(run.summary["personal_mean"] for run in runs))
    assert point["y"] == pytest.approx(statistics.fmean(run.summary["personal_worst_decile"] for run in runs))
    moving = own_bands(subject.client_results(runs[0]))
    assert [row["version"] for row in moving] == [0, 1, 2, 3, 4]
    assert moving[-1]["worst"] == pytest.approx(runs[0].summary["personal_worst_decile"])
    assert moving[-1]["q50"] == pytest.approx(runs[0].summary["personal_median"])
    for name in ("own_models", "client_gains", "worst_tenth"):
        for theme in THEMES:
            assert figures.draw(name, subject, theme=theme).to_dict()["datasets"]
    other = gained(subject, "fedper")[1]
    assert {row["method"] for row in other} == {"fedavg_ft", "fedavg"}


def test_figures_without_their_records_say_what_to_do(folder: Path, tmp_path: Path) -> None:
    runs = pr.Run.all(folder)
    tuned = [run for run in runs if run.recipe == "fedavg_ft"]
    assert "personal_every=1" in figures.why_not("own_models", tuned)
    assert "there is one method" in figures.why_not("client_gains", tuned)
    assert "no client has a model of its own" in figures.why_not(
        "own_models", [r for r in runs if r.recipe == "fedavg"]
    )
    bare = pr.run(experiment(), out=tmp_path)
    assert "local_test=0.2" in figures.why_not("worst_tenth", [bare])
    other = pr.federate(collection(120), pr.data.Iid(), 8, 0, local_test=0.3)
    alone = recorded(tmp_path, pr.ditto(cohort=3), 7, federation=other)
    assert "no client is measured by" in figures.why_not("client_gains", [tuned[0], alone])
