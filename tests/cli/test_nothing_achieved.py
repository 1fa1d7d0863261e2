"""A run that achieved nothing does not end well, and versions that changed nothing are counted and said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from polyrhythm.results import Run
from terminal import Command

QUICK = ("--model", "logistic", "--rounds", "3", "--clients", "6")


@pytest.mark.parametrize("fault", ["dropout=1", "crash=1", "nan=1"])
def test_a_run_without_any_update_fails_with_the_first_reason(polyrhythm: Command, tmp_path: Path, fault: str) -> None:
    found = polyrhythm(
        "run", *QUICK, "--faults", fault, "--method", "fedavg(cohort=2)", "--out", str(tmp_path), "--json"
    )
    assert found.code == 1
    told = json.loads(found.out)
    assert told["status"] == "failed"
    assert "client" in told["reason"]
    (run,) = Run.all(tmp_path)
    assert (run.status, run.reason) == ("failed", told["reason"])
    if not fault.startswith("nan"):
        assert "no update was accepted in 3 versions; the first: nobody reported (client" in run.reason
        assert run.summary["skipped"] == 3


def test_more_reports_than_there_are_clients_are_refused(polyrhythm: Command, tmp_path: Path) -> None:
    method = "fedavg(cohort=10) | min_reports(count=8)"
    found = polyrhythm("run", *QUICK, "--method", method, "--out", str(tmp_path))
    assert found.code == 2
    assert "a version needs 8 reports, and 6 clients hold data" in " ".join(found.err.split())
    assert polyrhythm("check", *QUICK, "--method", method, "--out", str(tmp_path)).code == 2


def test_a_model_that_never_moved_is_said(polyrhythm: Command, tmp_path: Path) -> None:
    """Of two reports one is always refused, and the other is not enough."""
    method = "fedavg(cohort=6) | min_reports(count=6)"
    faults = ("--faults", "dropout=0.5")
    found = polyrhythm("run", *QUICK, *faults, "--method", method, "--out", str(tmp_path), "--json")
    told = json.loads(found.out)
    assert (told["status"], told["skipped"], told["client_updates"] > 0) == ("finished", 3, True)
    assert "all rounds made; 3 of 3 versions changed nothing, the first: reports: " in told["reason"]
    assert told["reason"].endswith("; the model never moved")


@pytest.mark.parametrize(
    ("method", "why"),
    [
        (
            "fedavg(cohort=3) | rolling(concurrency=3) | staleness(rule=cutoff, b=0) | buffer(size=1)",
            "2 of 3 versions changed nothing, the first: every update was scaled to 0: staleness",
        ),
        ("fedavg(cohort=3, lr=1e-30)", "3 of 3 versions changed nothing, the first: the updates moved no weight"),
    ],
    ids=["scaled away", "too small"],
)
def test_a_step_that_moves_nothing_is_counted_and_said(
    polyrhythm: Command, tmp_path: Path, method: str, why: str
) -> None:
    """Also where reports were accepted: only the first version of the stale ones is of a fresh update."""
    told = json.loads(polyrhythm("run", *QUICK, "--method", method, "--out", str(tmp_path), "--json").out)
    assert (told["status"], told["skipped"], told["client_updates"]) == ("finished", int(why[0]), told["visits"])
    assert why in told["reason"]
    assert told["reason"].endswith("; the model never moved") == (why[0] == "3")
