"""Tables of clients and classes say what is on record of them, and whether it is of all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import polyrhythm as pr
from polyrhythm.results import fairness_tables
from polyrhythm.runs.comparison import spread
from polyrhythm.runs.spread import spread as over_clients
from small import collection, experiment, federation


def recorded(out: Path, seed: int = 0, name: str = "plain", **changes: Any) -> pr.Run:
    split = pr.federate(collection(120), pr.data.Iid(), 6, seed, local_test=0.25)
    plan = {"federation": split, "seed": seed, "name": name, "fleet": pr.Fleet(devices=pr.fleet.Tiers())}
    return pr.run(experiment(**{**plan, **changes}), out=out)


def test_each_number_is_of_the_newest_results_over_seeds(tmp_path: Path) -> None:
    runs = [recorded(tmp_path, seed) for seed in range(2)]
    table = fairness_tables.clients(pr.compare(tmp_path))
    assert table is not None
    (row,) = table.rows
    cells = dict(zip(table.head, row, strict=True))
    own = [over_clients(run.client_results.loc[3]["accuracy"].tolist()) for run in runs]
    assert all(one is not None for one in own)
    for head, name in (("mean", "mean"), ("worst tenth", "worst"), ("median", "median"), ("best tenth", "best")):
        over = spread([getattr(one, name) for one in own])
        assert cells[head].split(" ± ")[0] == f"{over['mean']:.4f}"
        assert cells[head].split(" ± ")[1] == f"{over['sd']:.4f}"
    assert cells["clients"] == "6"
    assert "sample of clients" not in table.caption
    assert "0." in cells["gap between devices"]


def test_a_sample_is_said_and_who_has_none_has_no_number(tmp_path: Path) -> None:
    few = recorded(tmp_path, name="few", evaluation=pr.Evaluation(client_results=3))
    none = pr.run(experiment(name="none", model="mlp"), out=tmp_path)
    table = fairness_tables.clients(pr.compare([few, none]))
    assert table is not None
    assert "of a sample of clients" in table.caption
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["few"][0] == "3"
    assert set(rows["none"]) == {"–"}
    assert fairness_tables.clients(pr.compare([none])) is None


def test_classes_are_recognised_as_recorded(tmp_path: Path) -> None:
    runs = [recorded(tmp_path, seed) for seed in range(2)]
    table = fairness_tables.classes(pr.compare(tmp_path))
    assert table is not None
    for label, cell in table.rows:
        means = [float(run.class_results.loc[(3, label), "accuracy"]) for run in runs]
        assert cell.startswith(f"{sum(means) / 2:.4f}")
    assert [row[0] for row in table.rows] == ["0", "1", "2"]


@pytest.mark.parametrize("ending", ["html", "md", "tex"])
def test_a_report_has_both(tmp_path: Path, ending: str) -> None:
    from polyrhythm.report import write

    recorded(tmp_path)
    write(pr.Run.all(tmp_path), tmp_path / f"report.{ending}")
    text = (tmp_path / f"report.{ending}").read_text()
    assert "worst tenth" in text
    assert "that the last evaluated version recognises" in text


def test_a_run_without_own_tests_still_has_classes(tmp_path: Path) -> None:
    run = pr.run(experiment(federation=federation()), out=tmp_path)
    assert fairness_tables.clients(pr.compare([run])) is None
    assert fairness_tables.classes(pr.compare([run])) is not None
