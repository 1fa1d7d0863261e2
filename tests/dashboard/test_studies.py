"""Studies in the dashboard: what their records say, whatever state they are in."""

from __future__ import annotations

import json
import shutil
import sqlite3
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import polyrhythm as pr
import small
from dashboard.conftest import Client
from polyrhythm.dashboard import studies as of_studies
from polyrhythm.dashboard.studies import StudyFiles
from polyrhythm.runs.database import FILE, read_runs
from polyrhythm.runs.run_lock import hold, release
from polyrhythm.studies import Search, Study, StudyResult


def make(setting: Any, seed: int) -> pr.Experiment:
    return small.experiment(
        federation=small.federation(validation=0.2), recipe=pr.fedavg(cohort=2, batch=5, **setting), seed=seed
    )


@pytest.fixture(scope="session")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("searched")
    search = Search(space={"lr": (0.01, 0.1, 1.0), "epochs": (1, 2)}, seeds=(0,))
    pr.study(Study(name="tune", rows={"": make}, search=search, seeds=(5, 6)), out=folder, workers=1)
    return folder


@pytest.fixture
def there(searched: Path, tmp_path: Path) -> Path:
    return shutil.copytree(searched, tmp_path / "searched")


def record(folder: Path, **changes: Any) -> Path:
    path = folder / "studies" / "tune" / "record.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return path


def test_studies_are_listed_with_how_far_they_are(client: Client, there: Path) -> None:
    asking = client(there)
    assert asking.get("/api/runs").json()["studies"] is True
    (study,) = asking.get("/api/studies").json()["studies"]
    assert (study["name"], study["over"], study["trials"], study["compared"], study["state"]) == (
        *("tune", 6, 6, 2, "finished"),
    )
    best = StudyResult.open("tune", there).best()
    assert best is not None
    assert study["best"] == best.score


def test_a_study_has_what_its_page_shows(client: Client, there: Path) -> None:
    found = StudyResult.open("tune", there)
    answer = client(there).get("/api/study", params={"study": "tune"}).json()
    (arm,) = answer["arms"]
    assert (arm["keys"], arm["counted"]) == (["lr", "epochs"], "6 trials")
    assert [(t["number"], t["score"], t["setting"]) for t in arm["trials"]] == [
        (t.number, t.score, dict(t.setting)) for t in found.trials
    ]
    best = found.best()
    assert best is not None
    assert [t["number"] for t in arm["trials"] if t["best"]] == [best.number]
    assert all(0 <= t["started"] < t["ended"] for t in arm["trials"])
    assert min(t["started"] for t in arm["trials"]) == 0
    assert sorted(answer["cells"][0]["runs"]) == ["5", "6"]
    assert answer["apart"] is False


def test_figures_of_a_study_are_those_of_its_trials(client: Client, there: Path) -> None:
    asking, of = client(there), {"study": "tune", "arm": ""}
    offered = [figure["name"] for figure in asking.get("/api/figures", params=of).json()]
    assert offered == ["history", "importance", "parallel", "contour", "slice-lr", "slice-epochs"]
    history = asking.get("/api/figure", params={**of, "name": "history", "theme": "dark"}).json()
    best = max(row["y"] for row in history["data"]["rows_0"])
    assert best == max(trial.score or 0.0 for trial in StudyResult.open("tune", there).trials)
    few = asking.get("/api/figure", params={**of, "name": "importance"})
    assert (few.status_code, "too few trials" in few.json()["error"]["found"]) == (400, True)
    pair = asking.get("/api/figure", params={**of, "name": "contour", "x": "epochs", "y": "lr"}).json()
    assert {row["a"] for row in pair["data"]["rows_0"]} == {"1", "2"}


@pytest.mark.parametrize(
    "path",
    [
        "/api/study",
        "/api/study?study=nobody",
        "/api/study?study=../studies/tune",
        "/api/study?study=%2Fetc",
        "/api/study?study=tune%00",
        "/api/figures?study=nobody",
        "/api/figures?study=tune&arm=nobody",
        "/api/figure?study=tune&arm=&name=nothing",
        "/api/figure?study=tune&arm=&name=history&theme=pink",
        "/api/figure?study=tune&arm=&name=history&against=bytes",
        "/api/figure?study=tune&arm=&name=contour&x=nothing",
    ],
)
def test_what_cannot_be_shown_of_a_study_is_said(client: Client, there: Path, path: str) -> None:
    answer = client(there).get(path)
    assert answer.status_code == 400
    assert set(answer.json()["error"]) == {"found", "expected", "why", "fix"}


def test_failed_and_pruned_trials_are_shown_as_such(client: Client, there: Path) -> None:
    trials = json.loads((there / "studies/tune/record.json").read_text())["trials"]
    trials[0] |= {"state": "failed", "score": None, "reason": "the loss is nan\nat line 3"}
    trials[1] |= {"state": "pruned", "score": 2.0, "reason": "pruned: behind"}
    record(there, trials=trials)
    answer = client(there).get("/api/study", params={"study": "tune"}).json()
    first, second, *_ = answer["arms"][0]["trials"]
    assert (first["state"], first["score"], first["reason"]) == ("failed", None, "the loss is nan\nat line 3")
    assert (second["state"], second["best"]) == ("pruned", False)
    assert (answer["failed"], answer["arms"][0]["counted"]) == (1, "6 trials, 1 pruned, 1 failed")


def test_a_study_that_goes_on_says_how_long_it_may_take(client: Client, there: Path) -> None:
    path = there / "studies" / "tune"
    trials = json.loads((path / "record.json").read_text())["trials"]
    for trial in trials[3:]:
        trial |= {"state": "waiting", "score": None, "scores": {}, "runs": {}}
    record(there, trials=trials)
    assert client(there).get("/api/study", params={"study": "tune"}).json()["state"] == "stopped"
    (path / ".going-on").mkdir()
    lock = hold(path / ".going-on")
    answer = client(there).get("/api/study", params={"study": "tune"}).json()
    release(path / ".going-on", lock)
    took = [t["ended"] - t["started"] for t in answer["arms"][0]["trials"] if t["ended"] is not None]
    assert (answer["state"], answer["over"], len(took)) == ("running", 3, 3)
    assert answer["left"] == pytest.approx(3 * sum(took) / 3)


def test_runs_to_be_compared_are_waited_for_like_trials(client: Client, there: Path) -> None:
    path, asking = there / "studies" / "tune", client(there)
    runs = json.loads((path / "record.json").read_text())["runs"]
    ((cell, (seed, run)),) = [(cell, next(iter(of.items()))) for cell, of in runs.items()]
    record(there, wanted=4, runs={cell: {seed: run}}, failed={cell: {"9": "the loss is nan"}})
    answer = asking.get("/api/study", params={"study": "tune"}).json()
    assert (answer["state"], answer["compared"], answer["without"], answer["wanted"]) == ("stopped", 1, 1, 4)
    (path / ".going-on").mkdir()
    lock = hold(path / ".going-on")
    left = asking.get("/api/study", params={"study": "tune"}).json()["left"]
    release(path / ".going-on", lock)
    (row,) = [row for row in read_runs(there) if row["run_id"] == run]
    took = datetime.fromisoformat(row["ended"]) - datetime.fromisoformat(row["started"])
    assert left == pytest.approx(2 * took.total_seconds(), abs=1e-5)  # the third and the fourth
    record(there, wanted=2)
    assert asking.get("/api/study", params={"study": "tune"}).json()["state"] == "finished"


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        "[" * 100_000,
        json.dumps(
            {"name": "tune", "headline": "a", "arms": {"": {"called": "t"}}, "trials": [], "runs": {}, "failed": {}}
        ),
        json.dumps({"name": 3, "headline": None, "arms": {}, "trials": [3], "runs": {}, "failed": {}}),
    ],
)
def test_a_damaged_record_is_named_and_spoils_no_others(client: Client, there: Path, content: str) -> None:
    other = there / "studies" / "other"
    other.mkdir()
    (other / "record.json").write_text(content)
    listed = client(there).get("/api/studies").json()["studies"]
    assert [("cannot be read" in one["problem"], one["study"]) for one in listed] == [(True, "other"), (False, "tune")]
    assert client(there).get("/api/study", params={"study": "other"}).status_code == 400


def test_odd_numbers_in_a_record_make_no_error_of_ours(client: Client, there: Path) -> None:
    trials = json.loads((there / "studies/tune/record.json").read_text())["trials"]
    trials[0]["setting"]["lr"] = 10**400
    trials[1]["score"] = float("inf")
    record(there, trials=trials)
    asking = client(there)
    answer = asking.get("/api/study", params={"study": "tune"}).json()
    assert answer["arms"][0]["trials"][0]["setting"]["lr"].startswith("1000")
    assert answer["arms"][0]["trials"][1]["score"] is None
    for figure in asking.get("/api/figures", params={"study": "tune", "arm": ""}).json():
        found = asking.get("/api/figure", params={"study": "tune", "arm": "", "name": figure["name"]})
        assert found.status_code in (200, 400), figure["name"]


def test_studies_with_scales_are_found_deeper(client: Client, there: Path) -> None:
    deep = there / "studies" / "ccfl" / "table-2" / "quick"
    shutil.copytree(there / "studies" / "tune", deep)
    (deep / "tuning").mkdir()
    shutil.copy(there / FILE, deep / "tuning" / FILE)
    names = [one["study"] for one in client(there).get("/api/studies").json()["studies"]]
    assert names == ["ccfl/table-2/quick", "tune"]
    assert client(there).get("/api/study", params={"study": "ccfl/table-2/quick"}).json()["apart"] is True


def test_a_link_that_leads_elsewhere_is_no_study(client: Client, there: Path) -> None:
    away = there.parent / "away"
    (there / "studies" / "tune").rename(away)
    (there / "studies" / "tune").symlink_to(away)
    (there / "studies" / "other").mkdir()
    (there / "studies" / "other" / "record.json").symlink_to(away / "record.json")
    asking = client(there)
    assert asking.get("/api/studies").json()["studies"] == []
    assert asking.get("/api/study", params={"study": "tune"}).status_code == 400


def test_without_a_run_database_a_study_has_no_times(there: Path) -> None:
    (there / FILE).unlink()
    details = StudyFiles(there, "tune").details()
    assert all(trial["started"] is None for trial in details["arms"][0]["trials"])


def test_the_reader_and_the_study_itself_agree(there: Path) -> None:
    """What the dashboard reads without them is what the studies' own classes read."""
    ours, theirs = StudyFiles(there, "tune").trials(""), StudyResult.open("tune", there).tried()
    assert [(t.number, t.setting, t.state, t.score, dict(t.runs)) for t in ours.tried] == [
        (t.number, t.setting, t.state, t.score, dict(t.runs)) for t in theirs.tried
    ]
    assert (ours.name, ours.headline) == (theirs.name, theirs.headline)


def test_a_folder_without_studies_has_none(client: Client, folder: Path) -> None:
    asking = client(folder)
    assert asking.get("/api/runs").json()["studies"] is False
    assert asking.get("/api/studies").json()["studies"] == []


def test_queries_are_constants() -> None:
    assert "{" not in of_studies._TIMES
    with sqlite3.connect(":memory:") as connection:
        assert sqlite3.complete_statement(f"{of_studies._TIMES};")
    connection.close()
