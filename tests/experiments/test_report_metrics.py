"""What is measured of updates is what their formulas say, and changes no bit of any weight."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import polyrhythm as pr
from polyrhythm.base.messages import Assignment, Report
from polyrhythm.experiments import report_metrics
from polyrhythm.experiments.report_metrics import EstimationError, Gauge, UpdateSimilarity
from polyrhythm.runs.portrait import samples_of
from small import experiment

ALL = pr.Evaluation(measure=("update_similarity", "estimation_error", "sample_losses"))
RECIPES = {
    "fedavg": pr.fedavg(cohort=3, epochs=1, batch=5),
    "ccfl": pr.ccfl(cohort=4, batch=5),
    "fedbuff": pr.fedbuff(concurrency=3, buffer=2, batch=5),
    "compressed": pr.fedavg(cohort=3, epochs=1, batch=5) | pr.parts.compress_int8(),
}


def heard(gauge: Gauge, client: int, weights: list[float], update: list[float], *, counts: bool = True) -> Any:
    """What a gauge says of one visit."""
    common: dict[str, Any] = {"dispatch": 0, "client": client, "visit": 0, "version": 0, "kind": "train", "recipe": ""}
    sent = {"accepted": -1, "total_rounds": None, "weights": torch.tensor(weights), "buffers": (), "briefs": {}}
    report = Report(**common, num_samples=1, update=torch.tensor(update))
    return gauge.visit(Assignment(**common, **sent), report, counts=counts)


def test_similarity_is_the_mean_cosine_over_all_pairs() -> None:
    gauge, updates = UpdateSimilarity(), [[1.0, 0.0], [0.0, 2.0], [3.0, 3.0]]
    for client, update in enumerate(updates):
        assert heard(gauge, client, [0.0, 0.0], update) == {}
    heard(gauge, 3, [0.0, 0.0], [0.0, 0.0])
    heard(gauge, 4, [0.0, 0.0], [-9.0, 0.0], counts=False)
    pairs = [
        np.dot(a, b) / (np.linalg.norm(a) * np.linalg.norm(b)) for a, b in itertools.combinations(np.array(updates), 2)
    ]
    assert gauge.version() == {"update_similarity": pytest.approx(np.mean(pairs))}
    assert gauge.version() == {}  # it has begun anew


def test_estimation_errors_are_those_of_figure_2() -> None:
    """By hand: the client was at (1, 0) + (1, 0) = (2, 0), and is now sent (2, 1) and moves by (0, 2) to (2, 3)."""
    gauge = EstimationError()
    assert heard(gauge, 0, [1.0, 0.0], [1.0, 0.0]) == {}
    assert heard(gauge, 1, [0.0, 0.0], [5.0, 5.0]) == {}
    assert heard(gauge, 0, [2.0, 1.0], [0.0, 2.0]) == {
        "estimate_model_error": pytest.approx(9.0),  # |(2, 0) - (2, 3)|^2
        "estimate_model_cosine": pytest.approx(-1.0),  # of (2, 0) - (2, 1) and (0, 2)
        "estimate_movement_error": pytest.approx(5.0),  # |(1, 0) - (0, 2)|^2
        "estimate_movement_cosine": pytest.approx(0.0),
    }


def models(out: Path, recipe: pr.Recipe, evaluation: pr.Evaluation) -> list[str]:
    run = pr.run(experiment(recipe=recipe, rounds=4, evaluation=evaluation), out=out)
    return list(run.history["digest"])


@pytest.mark.parametrize("name", RECIPES)
def test_measuring_changes_no_bit(tmp_path: Path, name: str) -> None:
    assert models(tmp_path, RECIPES[name], ALL) == models(tmp_path, RECIPES[name], pr.Evaluation())


def test_a_measure_that_changed_an_update_would_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Meddles(Gauge):
        def visit(self, assignment: Assignment, report: Report, *, counts: bool) -> dict[str, float]:
            assert report.update is not None
            assignment.weights.add_(1.0)
            return {}

    plain = models(tmp_path, RECIPES["fedbuff"], pr.Evaluation())
    monkeypatch.setattr(report_metrics, "GAUGES", {"update_similarity": Meddles})
    monkeypatch.setattr("polyrhythm.experiments.version_records.GAUGES", {"update_similarity": Meddles})
    assert models(tmp_path, RECIPES["fedbuff"], pr.Evaluation(measure=("update_similarity",))) != plain


def test_what_was_measured_is_on_record(tmp_path: Path) -> None:
    run = pr.run(experiment(recipe=RECIPES["fedavg"], rounds=4, evaluation=ALL), out=tmp_path)
    assert run.history["measures_update_similarity"].iloc[1:].between(-1, 1).all()
    again = run.visits.groupby("client").cumcount() > 0
    known = run.visits["measures_estimate_movement_error"].notna()
    assert known.any()
    assert (known == again).all()
    found = samples_of(run.path)
    assert found is not None
    assert [row["version"] for row in found["versions"]] == [0, 1, 2, 3, 4]
    assert all(row["losses"] == sorted(row["losses"]) for row in found["versions"])
    assert found["images"] == {}  # blobs are no images


def test_nothing_is_measured_unless_it_is_asked_for(tmp_path: Path) -> None:
    run = pr.run(experiment(), out=tmp_path)
    assert samples_of(run.path) is None
    assert not [c for c in (*run.history, *run.visits) if "similarity" in c or "estimate" in c]


def test_the_hardest_samples_are_shown(tmp_path: Path) -> None:
    split = pr.federate(pr.data.digits(), pr.data.Iid(), clients=4, seed=0)
    asked = pr.Evaluation(measure=("sample_losses",), every=2)
    run = pr.run(experiment(federation=split, model="mlp", rounds=2, evaluation=asked), out=tmp_path)
    found = samples_of(run.path)
    assert found is not None
    easy, hard = ([image["loss"] for image in found["images"][kind]] for kind in ("easiest", "hardest"))
    assert easy == sorted(easy)
    assert hard == sorted(hard, reverse=True)
    assert easy[-1] <= found["versions"][-1]["losses"][0] < found["versions"][-1]["losses"][-1] <= hard[-1]
    assert all(image["url"].startswith("data:image/png;base64,iVBOR") for image in found["images"]["hardest"])
    assert len(run.plot.samples().to_dict()["vconcat"]) == 2
