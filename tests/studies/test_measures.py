"""Numbers of runs that only a run's own records give."""

from __future__ import annotations

from pathlib import Path

import pytest

import polyrhythm as pr
from polyrhythm.results import Run
from polyrhythm.studies.claims import SERVED
from polyrhythm.studies.page.measures import value


def run(recipe: pr.Recipe, out: Path) -> Run:
    federation = pr.federate(pr.data.digits(), pr.data.Iid(), clients=4, seed=0)
    return pr.run(pr.Experiment(federation=federation, model="logistic", recipe=recipe, rounds=3), out=out)


@pytest.mark.parametrize(("delta", "rounds", "until"), [(1e9, 1, 1), (-1e9, 3, 3)])
def test_critical_rounds_are_counted(delta: float, rounds: int, until: int, tmp_path: Path) -> None:
    """The first round is critical whatever the threshold is; a negative one makes all of them so."""
    found = run(pr.fedavg(cohort=2) | pr.parts.critical_periods(delta=delta, act=False), tmp_path)
    assert value(found, found.versions, "critical_rounds") == rounds
    assert value(found, found.versions, "critical_until") == until


def test_results_of_clients_are_those_of_the_last_version(tmp_path: Path) -> None:
    split = pr.federate(pr.data.digits(), pr.data.Dirichlet(alpha=0.3), clients=12, seed=0, local_test=0.3)
    plan = pr.Experiment(federation=split, model="logistic", recipe=pr.fedavg(cohort=3), rounds=3)
    found = pr.run(plan, out=tmp_path)
    scores = found.client_results.loc[3]["accuracy"].sort_values()
    assert value(found, found.versions, "worst_tenth") == pytest.approx(scores.iloc[:2].mean())
    assert value(found, found.versions, "clients") == pytest.approx(scores.mean())
    assert value(found, found.versions, "rarest_quarter") == found.bias["score_rare"]
    plain = run(pr.fedavg(cohort=2), tmp_path)
    assert [value(plain, plain.versions, name) for name in SERVED] == [None] * 3


def test_where_nobody_looks_there_is_no_number(tmp_path: Path) -> None:
    found = run(pr.fedavg(cohort=2), tmp_path)
    assert value(found, found.versions, "critical_rounds") is None


STUDY = """
data = "digits"
partition = "iid"
clients = 3
local_test = 0.2
model = "logistic"
task = "classification(metrics=[f1])"
rounds = 1
seeds = "0-1"
[rows.FedAvg]
method = "fedavg(cohort=3)"
"""


MORE = (
    STUDY.replace('task = "classification(metrics=[f1])"\n', "")
    + """
[columns.more]
task = "classification(metrics=[f1, balanced_accuracy])"
[columns.less]
task = "classification"
"""
)


def test_a_row_that_has_none_of_the_other_metrics_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "more.toml").write_text(MORE)
    result = pr.study(tmp_path / "more.toml", out=tmp_path, workers=1)
    (table,) = [one for one in result.findings.tables if one.name == "metrics"]
    assert [row[0] for row in table.rows] == ["FedAvg, more"]


def test_a_page_has_the_other_metrics_of_the_task(tmp_path: Path) -> None:
    """They are those beside the headline metric, and beside the loss, which tells its own story."""
    (tmp_path / "one.toml").write_text(STUDY)
    result = pr.study(tmp_path / "one.toml", out=tmp_path, workers=1)
    (table,) = [one for one in result.findings.tables if one.name == "metrics"]
    assert table.head == ("", "accuracy, common test", "accuracy, own tests, mean")
    last = [run.history["test_accuracy"].iloc[-1] for run in result.runs("FedAvg")]
    assert table.rows[0][1].startswith(f"{sum(last) / 2:.4g} ±")
