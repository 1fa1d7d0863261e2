"""What the dashboard answers: of runs, of figures, of databases in any state; and what it never does."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from dashboard.conftest import Client
from polyrhythm.dashboard import application as of_application
from polyrhythm.dashboard.drawing import apart
from polyrhythm.results import Run
from polyrhythm.runs.database import FILE
from polyrhythm.runs.run_lock import hold, release

HERE = {"origin": "http://127.0.0.1:8642"}
STATIC = Path(of_application.__file__).parent / "static"


def change(folder: Path, statement: str, *values: Any) -> None:
    with sqlite3.connect(folder / FILE) as connection:
        connection.execute(statement, values)
    connection.close()


def test_the_list_has_what_a_row_shows(client: Client, folder: Path) -> None:
    answer = client().get("/api/runs").json()
    assert (answer["folder"], answer["control"], answer["problem"]) == (str(folder), False, "")
    for run, row in zip(Run.all(folder), answer["runs"], strict=True):
        assert (row["id"], row["name"], row["status"], row["version"]) == (run.id, run.name, "finished", 3)
        assert row["curve"] == [value for _, value in run.scores]
        assert row["score"] == run.summary["final_accuracy"]


def test_a_run_has_what_its_page_shows(client: Client, folder: Path) -> None:
    run = Run.all(folder)[0]
    answer = client().get("/api/run", params={"run": run.id}).json()
    assert answer["score"] == run.summary["final_accuracy"]
    assert answer["costs"]["visits"] == "6: 0 lost, 0 late, 0 dropped"
    assert answer["config"] == json.loads(json.dumps(run.config))
    assert answer["weights"] == ["best", "final"]


def test_methods_are_compared_over_their_seeds(client: Client, folder: Path) -> None:
    ids = [run.id for run in Run.all(folder)]
    answer = client().get("/api/compare", params={"run": ids}).json()
    (method,) = answer["methods"]
    assert (method["runs"], method["n"]) == (ids, 2)
    assert method["costs"]["client_updates"] == 6
    assert re.fullmatch("#[0-9A-F]{6}", method["colour"]["dark"])


def test_a_figure_has_its_data_under_names_that_stay(client: Client, folder: Path) -> None:
    run = Run.all(folder)[0].id
    asking = client()
    offered = asking.get("/api/figures", params={"run": run}).json()
    assert [figure["name"] for figure in offered][:2] == ["accuracy", "loss"]
    answer = asking.get("/api/figure", params={"run": run, "name": "accuracy", "theme": "dark"}).json()
    assert [row["y"] for row in answer["data"]["rows_0"]] == [value for _, value in Run.open(run, folder).scores]
    assert "datasets" not in answer["specification"]


def test_data_are_taken_out_wherever_they_are() -> None:
    found = apart(
        {
            "datasets": {"data-1": [{"a": 1}]},
            "vconcat": [{"data": {"name": "data-1"}}, {"layer": [{"data": {"values": [{"b": 2}]}}]}],
        }
    )
    assert found["data"] == {"rows_0": [{"a": 1}], "rows_1": [{"b": 2}]}
    assert json.dumps(found["specification"]).count("rows_") == 2


@pytest.mark.parametrize(
    "path",
    [
        "/api/run?run=nobody",
        "/api/run",
        "/api/figure?name=accuracy",
        "/api/figure?name=nothing&run={run}",
        "/api/figure?name=accuracy&run={run}&theme=pink",
        "/api/figure?name=accuracy&run={run}&against=nothing",
        "/api/figure?name=accuracy&run={run}&on=train",
        "/api/figure?name=accuracy&run={run}&width=1e9",
        "/api/compare?run={run}&on=train",
        "/api/compare",
        "/api/compare?run={run}&group_by=nothing",
        "/api/compare?run={run}&baseline=nobody",
        "/api/figure?name=accuracy&run={run}&group_by=nothing",
        "/api/figures?" + "&".join(f"run={i}" for i in range(61)),
    ],
)
def test_what_cannot_be_shown_is_said_in_four_parts(client: Client, folder: Path, path: str) -> None:
    answer = client().get(path.format(run=Run.all(folder)[0].id))
    assert answer.status_code == 400
    assert set(answer.json()["error"]) == {"found", "expected", "why", "fix"}


@pytest.mark.parametrize("path", ["/static/../application.py", "/static/%2e%2e%2fapplication.py", "/static/page.html"])
def test_only_its_own_files_are_served(client: Client, path: str) -> None:
    assert client().get(path).status_code == 404


def news(text: str) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]


def test_news_begin_with_what_the_listener_does_not_know(client: Client) -> None:
    asking = client()
    listed = asking.get("/api/runs").json()
    assert news(asking.get("/api/news", params={"serial": listed["serial"]}).text) == []
    (first,) = news(asking.get("/api/news", params={"serial": -1}).text)
    assert first["runs"] == listed["runs"]


def test_news_of_a_run_say_how_it_stands(client: Client, folder: Path) -> None:
    answer = client().get("/api/news", params={"run": Run.all(folder)[0].id})
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert [event["status"] for event in news(answer.text)] == ["finished"]


def test_a_run_without_an_end_is_killed_unless_its_process_lives(client: Client, folder: Path) -> None:
    run = Run.all(folder)[0]
    change(folder, "UPDATE runs SET status = 'running', ended = NULL, summary = NULL WHERE run_id = ?", run.id)
    asking = client()
    assert asking.get("/api/runs").json()["runs"][0]["status"] == "killed"
    assert asking.get("/api/run", params={"run": run.id}).json()["status"] == "killed"
    lock = hold(run.path)
    assert client().get("/api/runs").json()["runs"][0]["status"] == "running"
    release(run.path, lock)


def test_a_run_is_stopped_by_whoever_may(client: Client, folder: Path) -> None:
    run = Run.all(folder)[0]
    change(folder, "UPDATE runs SET status = 'running' WHERE run_id = ?", run.id)
    lock = hold(run.path)
    refused = client().post("/api/stop", params={"run": run.id}, headers=HERE)
    assert (refused.status_code, (run.path / "stop").exists()) == (400, False)
    assert client(control=True).get("/api/stop", params={"run": run.id}).status_code == 405
    answer = client(control=True).post("/api/stop", params={"run": run.id}, headers=HERE)
    assert (answer.json(), (run.path / "stop").exists()) == ({"asked": run.id}, True)
    release(run.path, lock)
    ended = client(control=True).post("/api/stop", params={"run": run.id}, headers=HERE)
    assert "is killed" in ended.json()["error"]["found"]


# Databases in any state.


def test_a_folder_without_runs_says_so_and_goes_on(client: Client, tmp_path: Path) -> None:
    answer = client(tmp_path / "later").get("/api/runs")
    assert answer.status_code == 200
    assert "no run database" in answer.json()["problem"]


def test_a_database_that_somebody_holds_leaves_what_was_known(client: Client, folder: Path) -> None:
    asking = client()
    known = asking.get("/api/runs").json()["runs"]
    holder = sqlite3.connect(folder / FILE, isolation_level=None)
    holder.execute("PRAGMA locking_mode = EXCLUSIVE")
    holder.execute("PRAGMA journal_mode = DELETE")
    holder.execute("BEGIN EXCLUSIVE")
    holder.execute("UPDATE runs SET name = name")
    answer = asking.get("/api/runs").json()
    holder.close()
    assert "locked" in answer["problem"]
    assert answer["runs"] == known


def test_a_damaged_database_is_named(client: Client, tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / FILE).write_bytes(b"no database" * 500)
    assert "damaged" in client(tmp_path / "broken").get("/api/runs").json()["problem"]


@pytest.mark.parametrize("version", [3, 99])
def test_a_database_of_another_version_is_named(client: Client, folder: Path, version: int) -> None:
    change(folder, f"PRAGMA user_version = {version}")
    answer = client().get("/api/runs").json()
    assert f"schema {version}" in answer["problem"]


def test_rows_that_somebody_has_spoilt_spoil_no_others(client: Client, folder: Path) -> None:
    first, second = Run.all(folder)
    change(folder, "UPDATE runs SET config = 'no json', headline = 'a\"b' WHERE run_id = ?", first.id)
    change(folder, "UPDATE versions SET test = '{' WHERE run = ? AND version = 3", second.number)
    rows = client().get("/api/runs").json()["runs"]
    assert (rows[0]["data"], rows[0]["curve"], len(rows[1]["curve"])) == (None, [], 3)


def test_an_id_that_leads_elsewhere_is_refused(client: Client, folder: Path) -> None:
    change(folder, "UPDATE runs SET run_id = '../elsewhere', status = 'running' WHERE number = 1")
    asking = client(control=True)
    assert asking.get("/api/runs").json()["runs"][0]["status"] == "killed"
    answer = asking.post("/api/stop", params={"run": "../elsewhere"}, headers=HERE)
    assert answer.status_code == 400
    assert not (folder.parent / "elsewhere").exists()


# What comes from runs is text, and nothing else.


@pytest.mark.parametrize("script", sorted(STATIC.glob("*.js")), ids=lambda path: path.name)
def test_no_script_makes_markup_or_code_of_text(script: Path) -> None:
    source = script.read_text(encoding="utf-8")
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "srcdoc"):
        assert way not in source.replace("new Map(", "")


@pytest.mark.parametrize("file", sorted(STATIC.iterdir()), ids=lambda path: path.name)
def test_nothing_is_loaded_from_elsewhere(file: Path) -> None:
    addresses = set(re.findall(r"(?:https?:)?//[\w.]+\.[a-z]{2,}", file.read_text(encoding="utf-8")))
    assert addresses <= {"http://www.w3.org"}


def test_pages_hold_nothing_of_a_run(client: Client, folder: Path) -> None:
    change(folder, "UPDATE runs SET name = '<script>alert(1)</script>'")
    run = Run.all(folder)[0].id
    asking = client()
    for path in ("/", f"/run?run={run}", "/run?run=<script>alert(1)</script>", "/compare?run=<script>"):
        assert "alert" not in asking.get(path).text
    answer = asking.get("/api/runs")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["runs"][0]["name"] == "<script>alert(1)</script>"


def test_an_error_that_nobody_foresaw_is_told_in_the_terminal(
    client: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: Any) -> None:
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr(of_application, "row_of", fails)
    answer = client().get("/api/run?run=x")
    assert (answer.status_code, "secret" in answer.text) == (500, False)
    assert "ZeroDivisionError" in capsys.readouterr().err


@pytest.mark.parametrize("run", ["\0", "%00", "../x", "x" * 5000, "\ud800"])
def test_no_name_makes_an_error_of_ours(client: Client, run: str) -> None:
    asking = client()
    for path in ("/api/run", "/api/compare", "/api/figures", "/api/figure"):
        answer = asking.get(path, params={"run": run.encode(errors="surrogatepass")})
        assert answer.status_code in (400, 404), path
    for path in ("/static/" + "x" * 5000, "/static/%00", "/static/..%2fapplication.py", "/static/page.html"):
        assert asking.get(path).status_code == 404
