"""Studies that are judged by the models that clients use: what is read, and what is chosen by."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import polyrhythm as pr
from polyrhythm.base.errors import UserError
from polyrhythm.results import Run
from polyrhythm.studies.definition import Search, Study
from polyrhythm.studies.page.measures import result, result_at, value
from small import collection, experiment


def made(recipe: pr.Recipe, seed: int, lr: float = 0.1, *, tests: float = 0.3) -> pr.Experiment:
    unseen = 0.25 if tests else 0.0
    dealt = pr.federate(collection(120), pr.data.Dirichlet(alpha=0.3), 8, seed, local_test=tests, unseen=unseen)
    recipe = recipe | pr.parts.local_sgd(lr=lr)
    evaluation = pr.Evaluation(every=3)
    return experiment(federation=dealt, recipe=recipe, seed=seed, model="mlp", rounds=3, evaluation=evaluation)


def tuned(setting: Any, seed: int) -> pr.Experiment:
    return made(pr.fedper(cohort=3, epochs=1, batch=5), seed, **setting)


def untested(setting: Any, seed: int) -> pr.Experiment:
    return made(pr.fedper(cohort=3, epochs=1, batch=5), seed, **setting, tests=0.0)


def test_each_measure_is_of_the_models_that_clients_use(tmp_path: Path) -> None:
    for recipe, which in ((pr.fedavg(cohort=3), "global"), (pr.fedavg_ft(cohort=3), "personal")):
        run = pr.run(made(recipe, 0), out=tmp_path)
        rows = run.versions
        assert value(run, rows, "clients") == run.summary[f"{which}_mean"]
        assert value(run, rows, "worst_tenth") == run.summary[f"{which}_worst_decile"]
        assert value(run, rows, "unseen") == run.summary[f"unseen_{which}_mean"]
        # The initial model is no result, and nothing else was measured by then.
        assert rows[0]["spread"]
        assert result_at(rows, run.headline, "clients", "client_updates", 3) is None
        assert result(rows[:1], run.headline, "clients") is None
    alone = pr.run(made(pr.local_only(cohort=3), 0), out=tmp_path)
    assert value(alone, alone.versions, "clients") == alone.summary["personal_mean"]
    assert value(alone, alone.versions, "unseen") is None


def test_a_search_chooses_by_them(tmp_path: Path) -> None:
    rates = (1e-6, 0.1, 0.3)
    search = Search(kind="grid", space={"lr": rates}, seeds=(100,), by="clients")
    found = pr.study(
        Study(name="own", rows={"FedPer": tuned}, search=search, seeds=(0, 1), measure="clients"), out=tmp_path
    )
    scores = {t.setting["lr"]: t.score for t in found.trials}
    for trial in found.trials:
        run = next(r for r in Run.all(tmp_path, archived=True) if r.id == trial.runs[100])
        assert trial.score == run.summary["personal_mean"]
    best = max(rates, key=lambda rate: scores[rate] or 0.0)
    arm = next(iter(found.record.arms.values()))
    assert next(t.setting["lr"] for t in found.trials if t.number == arm.best) == best
    assert scores[1e-6] != scores[best]


def test_what_would_choose_by_the_result_is_refused(tmp_path: Path) -> None:
    space = {"lr": (0.1, 0.3)}
    with pytest.raises(UserError, match="with prune = 2"):
        Search(kind="random", trials=2, space=space, by="clients", prune=2)
    with pytest.raises(UserError, match="no seeds but the trials'"):
        Study(name="own", rows={"FedPer": tuned}, search=Search(space=space, by="clients"))
    search = Search(space=space, seeds=(100,), by="clients")
    with pytest.raises(UserError, match="no tests of their own"):
        pr.study(Study(name="own", rows={"FedPer": untested}, search=search, seeds=(0,)), out=tmp_path)
