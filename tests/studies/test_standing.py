"""Pages of studies whose runs are not over."""

from __future__ import annotations

from pathlib import Path

import pytest

import polyrhythm as pr
from polyrhythm.experiments.prepared import Planned
from polyrhythm.results import Run
from polyrhythm.studies import Claim, Search, Study
from polyrhythm.studies.space import Setting
from studies.test_executing import Stops
from study_makers import made

CLAIMS = (
    Claim(says="as many", of="A", against="B", measure="samples", ratio_above=0.99, ratio_below=1.01),
    Claim(says="C, too", of="A", against="C"),
)
WHAT = Study(name="s", rows={"A": made, "B": made, "C": made}, seeds=(0,), claims=CLAIMS)


def test_runs_are_read_as_far_as_the_shortest_of_them_and_nothing_is_run(tmp_path: Path) -> None:
    whole = pr.study(WHAT, out=tmp_path / "whole", workers=1)
    rounds = Run.all(tmp_path / "whole")[0].versions[-1]["version"]
    assert rounds > 2
    with pytest.raises(KeyboardInterrupt):
        pr.study(WHAT, out=tmp_path, workers=1, listener=Stops(rounds + 1 + 3))  # A is over, B has made two, C none
    before = {run.name: run.versions[-1]["version"] for run in Run.all(tmp_path)}
    assert before == {"s/A": rounds, "s/B": 2}
    found = pr.study(WHAT, out=tmp_path, workers=1, so_far=True)
    assert {run.name: run.versions[-1]["version"] for run in Run.all(tmp_path)} == before
    assert [(claim.says, claim.verdict) for claim in found.findings.claims] == [("as many", "holds, one seed")]
    assert found.findings.so_far == (f"2 of {rounds} rounds",)
    assert found.page is not None
    page = found.page.read_text()
    assert f"Not all runs were over: A, seed 0: {rounds}; B, seed 0: 2 rounds." in page
    same = {row[0]: row[1] for table in found.findings.tables if table.name == "ours" for row in table.rows}
    assert same["A"] == same["B"] != "–"
    assert same["C"] == "–"
    ended = pr.study(WHAT, out=tmp_path, workers=1)
    assert ended.findings.so_far == ()
    assert ended.findings.tables[0] == whole.findings.tables[0]
    assert pr.study(WHAT, out=tmp_path, so_far=True).findings.tables[0] == whole.findings.tables[0]


def diverging(setting: Setting, seed: int) -> Planned:
    """Of which no update is finite."""
    return made({**setting, "lr": 1e30}, seed)


def test_runs_that_failed_are_no_runs_that_go_on(tmp_path: Path) -> None:
    claims = (Claim(says="as high", of="D", against="A", more_than=-100),)
    what = Study(name="s", rows={"A": made, "D": diverging}, seeds=(0,), claims=claims)
    whole, so_far = (pr.study(what, out=tmp_path, workers=1, so_far=only) for only in (False, True))
    assert whole.record.failed["D"]
    assert whole.findings == so_far.findings
    assert so_far.findings.so_far == ()
    assert [claim.verdict for claim in so_far.findings.claims] == ["not decided"]


def test_trials_that_are_over_and_compared_themselves_are_there_so_far(tmp_path: Path) -> None:
    what = Study(name="s", rows={"": made}, search=Search(space={"lr": (0.1, 0.2)}))
    whole, so_far = (pr.study(what, out=tmp_path, workers=1, so_far=only) for only in (False, True))
    assert whole.findings == so_far.findings


def test_a_study_of_which_nothing_was_made_is_refused(tmp_path: Path) -> None:
    with pytest.raises(pr.UserError, match="nothing has been made of s"):
        pr.study(WHAT, out=tmp_path, so_far=True)
