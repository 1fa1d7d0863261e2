"""A run says whose work it could not use."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from polyrhythm.cli.run_warnings import Refused
from polyrhythm.runs import VisitRecord
from small import logged
from terminal import Command

MODEL = """
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 10)
    def forward(self, inputs):
        outputs = self.linear(inputs.flatten(1))
        return outputs * float("nan") if self.training and len(inputs) == 3 else outputs
"""


def visit(dispatch: int, client: int, reason: str = "") -> VisitRecord:
    status = "dropped" if reason else "trained"
    return VisitRecord(dispatch=dispatch, client=client, version=2, visit=0, status=status, reason=reason)


def test_nothing_is_said_if_everybody_counts() -> None:
    refused = Refused()
    refused.visit(visit(0, 1))
    assert not list(refused.notices())


def test_a_client_is_named_once_for_each_reason_and_the_rest_are_counted() -> None:
    refused = Refused()
    for dispatch, (client, reason) in enumerate(
        [(1, "late"), (1, "late"), (1, "odd"), (2, ""), (3, "late"), (4, "late")]
    ):
        refused.visit(visit(dispatch, client, reason))
    (said,) = refused.notices()
    assert said == (
        "5 of 6 client visits were dropped (client 1 on version 2: late; client 1 on version 2: odd; "
        "client 3 on version 2: late; and 1 more)"
    )


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_run_shows_it(
    polyrhythm: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: tuple[str, ...]
) -> None:
    (tmp_path / "sometimes_nan.py").write_text(MODEL)
    monkeypatch.syspath_prepend(tmp_path)
    arguments = ("--model", "sometimes_nan:Net", "--rounds", "2", "--method", "fedavg(cohort=20)")
    found = polyrhythm("run", *arguments, "--out", str(tmp_path / "runs"), *form)
    said = " ".join((found.err if form else found.out).split())
    assert found.code == 0, found.err
    assert "of 40 client visits were dropped (client" in said
    assert "not a finite number in the update of linear.weight" in said


def test_what_was_ignored_and_what_stands_out_is_said() -> None:
    refused, (_, log) = Refused(), logged()
    refused.version(replace(log.versions[-1], faults={"duplicate": 2, "not_asked": 1, "outlier": 3}), dict)
    ignored, outliers = refused.notices()
    assert ignored == "reports that nobody waited for were ignored: 2 came again, 1 not asked for"
    assert outliers.startswith("3 accepted updates were more than 10 times as long")
    assert "clip_updates" in outliers


def test_a_plan_of_faults_is_added_to_the_fleets_and_shown(polyrhythm: Command, tmp_path: Path) -> None:
    fleet = ("--fleet", "tiers | faults(dropout=0.2)", "--faults", "lost=0.2, duplicate=0.5")
    arguments = ("--rounds", "6", "--model", "logistic", "--method", "fedavg(cohort=10)", "--out", str(tmp_path))
    found = polyrhythm("run", *arguments, *fleet, "--json")
    assert found.code == 0, found.err
    faults = json.loads(found.out)["faults"]
    assert {"dropout", "transit", "duplicate"} == set(faults)
    shown = " ".join(polyrhythm("show", json.loads(found.out)["run_id"], "--out", str(tmp_path)).out.split())
    for words in ("given up", "lost on the way", "came again"):
        assert words in shown


@pytest.mark.parametrize("faults", ["crash=2", "tiers(slowdown=[1])", "crush=0.1", "crash"])
def test_a_plan_that_makes_no_sense_is_refused(polyrhythm: Command, tmp_path: Path, faults: str) -> None:
    found = polyrhythm("run", "--faults", faults, "--out", str(tmp_path))
    assert found.code == 2
    assert "Traceback" not in found.err
