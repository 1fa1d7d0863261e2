"""Results against epsilon: what differs in its privacy alone is one line; what has no guarantee is not on it."""

from __future__ import annotations

from pathlib import Path

import pytest

import polyrhythm as pr
from polyrhythm import figures
from polyrhythm.figures.privacy import results_by_epsilon
from polyrhythm.figures.subject import Subject


def test_methods_that_differ_in_privacy_alone_are_one_line(tmp_path: Path) -> None:
    plain = pr.fedavg(cohort=4, epochs=1) | pr.parts.equal()
    other = plain | pr.parts.server_adam(lr=0.01)
    hidden = [base | pr.parts.dp(noise=z, delta=0.01) for base in (plain, other) for z in (0.0, 1.0, 2.0)]
    runs = []
    for seed in (0, 1):
        federation = pr.federate(pr.data.digits(), pr.data.Iid(), clients=20, seed=seed)
        for recipe in (plain, *hidden):
            made = pr.Experiment(federation=federation, model="logistic", recipe=recipe, rounds=1, seed=seed)
            runs.append(pr.run(made, out=tmp_path))
    rows = results_by_epsilon(Subject(runs), "test")
    assert len(rows) == 7
    lines = {row["method"] for row in rows}
    assert len(lines) == 2
    for line in lines:
        costs = [row["x"] for row in rows if row["method"] == line and row["x"] is not None]
        assert len(costs) == 2
        assert costs == sorted(costs)
        of = {run.summary.get("epsilon") for run in runs}
        assert all(any(cost == pytest.approx(one) for one in of if one is not None) for cost in costs)
    assert all(row["n"] == 2 and row["low"] <= row["y"] <= row["high"] for row in rows)
    bare = [row for row in rows if row["x"] is None]
    assert len(bare) == 3
    assert figures.why_not("results_by_epsilon", runs) == ""
    assert "privacy statement" in figures.why_not("results_by_epsilon", runs[:1])
