"""How a run goes, in the dashboard: what it has written, whatever somebody has put in its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dashboard.conftest import Client
from dashboard.test_application import change
from polyrhythm.dashboard import live as of_live
from polyrhythm.results import Run
from polyrhythm.runs.live import LOG, NOW
from polyrhythm.runs.run_lock import hold, release

TOLD = {
    "wall": 1.0,
    "time": 5.0,
    "many": 3,
    "clients": [[7, 30, 2, 4.5], [8, 31, 2, 5.0]],
    "load": [[5.0, 1.5, 2e8], [10.0, 1.7, 3e8]],
}


@pytest.fixture
def run(folder: Path) -> Run:
    return Run.all(folder)[0]


def ask(client: Client, run: Run, **more: Any) -> Any:
    return client().get("/api/live", params={"run": run.id, **more})


def test_a_log_is_read_from_its_end_and_then_what_is_new(client: Client, run: Run) -> None:
    first = ask(client, run).json()
    assert first["log"] == (run.path / LOG).read_text()
    assert first["now"] is None  # it has ended
    with (run.path / LOG).open("a") as log:
        log.write("2026  version  4: <script>alert(1)</script>\n2026  half a li")
    news = ask(client, run, **{"from": first["next"]}).json()
    assert news["log"] == "2026  version  4: <script>alert(1)</script>\n"
    assert ask(client, run, **{"from": news["next"]}).json()["log"] == ""


def test_of_a_long_log_the_last_lines_are_read(client: Client, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    (run.path / LOG).write_text("".join(f"line {n}\n" for n in range(1000)))
    monkeypatch.setattr(of_live, "MOST", 100)
    found = ask(client, run).json()["log"]
    assert found.startswith("line ")
    assert found.endswith("line 999\n")
    assert len(found) <= 100


def test_who_is_at_work_is_said_while_a_run_goes_on(client: Client, folder: Path, run: Run) -> None:
    (run.path / NOW).write_text(json.dumps(TOLD))
    assert ask(client, run).json()["now"] is None
    change(folder, "UPDATE runs SET status = 'running' WHERE run_id = ?", run.id)
    assert ask(client, run).json()["now"] is None  # killed
    lock = hold(run.path)
    found = ask(client, run).json()
    release(run.path, lock)
    assert found["now"]["many"] == 3
    assert found["now"]["clients"] == [
        {"client": 7, "version": 2, "since": 4.5},
        {"client": 8, "version": 2, "since": 5.0},
    ]
    assert found["load"] == TOLD["load"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"[" * 100_000,
        b'{"clients": 3, "load": {}}',
        b'{"clients": [[1], ["a", 2, 3, 4], null], "load": [[1, 2], ["a", 1, 2], [1, 2, 1e999], 7], "many": 1e999}',
        b'{"clients": [], "many": "x", "time": [], "wall": {}}',
        b'{"clients": [[NaN, 1, 2, NaN]], "many": NaN, "time": NaN, "wall": -1e999, "load": [[NaN, NaN, NaN]]}',
    ],
)
def test_spoilt_files_are_passed_over(client: Client, folder: Path, run: Run, content: bytes) -> None:
    (run.path / NOW).write_bytes(content)
    (run.path / LOG).write_bytes(content)
    change(folder, "UPDATE runs SET status = 'running' WHERE run_id = ?", run.id)
    lock = hold(run.path)
    answer = ask(client, run)
    release(run.path, lock)
    assert answer.status_code == 200
    assert answer.json()["load"] == []


@pytest.mark.parametrize("name", [LOG, NOW])
def test_a_link_that_leads_elsewhere_is_not_followed(client: Client, folder: Path, run: Run, name: str) -> None:
    secret = folder.parent / "secret"
    secret.write_text('{"load": [[1, 2, 3]]}\n')
    (run.path / name).unlink(missing_ok=True)
    (run.path / name).symlink_to(secret)
    answer = ask(client, run).json()
    assert (answer["load"], "load" in answer["log"]) == ([], False)


def test_a_folder_that_leads_elsewhere_is_not_followed(client: Client, folder: Path, run: Run) -> None:
    (run.path / LOG).write_text("a line\n")
    run.path.rename(folder.parent / "away")
    run.path.symlink_to(folder.parent / "away")
    assert ask(client, run).json()["log"] == ""


@pytest.mark.parametrize("start", ["-1", "x", "1e3", "99999999999", ""])
def test_a_place_that_is_none_is_refused(client: Client, run: Run, start: str) -> None:
    assert ask(client, run, **{"from": start}).status_code == 400


def test_an_id_that_leads_elsewhere_has_no_log(client: Client, folder: Path) -> None:
    change(folder, "UPDATE runs SET run_id = '../elsewhere' WHERE number = 1")
    (folder.parent / "elsewhere").mkdir()
    (folder.parent / "elsewhere" / LOG).write_text("a line\n")
    answer = client().get("/api/live", params={"run": "../elsewhere"})
    assert (answer.status_code, "a line" in answer.text) == (400, False)
