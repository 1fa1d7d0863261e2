"""What is said of runs in the dashboard: shown to all, changed by whoever may, and only from its own pages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dashboard.conftest import Asking, Client
from polyrhythm.dashboard.labelling import MOST
from polyrhythm.results import Run
from polyrhythm.runs.labelling import label, read_labels
from polyrhythm.runs.labels import LONGEST_NOTE, Change

HERE = {"origin": "http://127.0.0.1:8642"}


def ask(asking: Asking, told: object, headers: dict[str, str] = HERE) -> Any:
    content = told if isinstance(told, (bytes, str)) else json.dumps(told)
    return asking.post("/api/label", content=content, headers=headers)


def test_the_list_and_the_page_say_what_is_said_of_a_run(client: Client, folder: Path) -> None:
    first, second = Run.all(folder)
    label(folder, [first.id], Change(name="night", note="a" * 500, add=["paper"], archived=True, pinned=True))
    asking = client()
    rows = asking.get("/api/runs").json()["runs"]
    assert [row["id"] for row in rows] == [first.id, second.id]  # the page hides what is in the archive
    assert (rows[0]["name"], rows[0]["tags"], rows[0]["baseline"], len(rows[0]["note"])) == (
        *("night", ["paper"], True, 200),
    )
    assert rows[0]["archived"]
    assert (rows[1]["name"], rows[1]["tags"], rows[1]["note"], "archived" in rows[1]) == ("trial 1", [], "", False)
    page = asking.get("/api/run", params={"run": first.id}).json()
    assert (page["name"], page["first_name"], page["labels"]["note"]) == ("night", "trial 0", "a" * 500)


def test_a_run_page_names_what_the_run_is_made_of(client: Client, folder: Path) -> None:
    page = client().get("/api/run", params={"run": Run.all(folder)[0].id}).json()
    assert page["made_of"] == {
        **{"data": "blobs", "partition": "iid", "clients": "4, with 15 samples each"},
        **{"model": "logistic: 15 parameters", "devices": "uniform"},
    }


def test_labels_are_news(client: Client, folder: Path) -> None:
    run, asking = Run.all(folder)[0], client()
    before = asking.get("/api/runs").json()
    run.tag("fresh")
    told = asking.get("/api/news", params={"serial": before["serial"]}).text
    (news,) = [json.loads(line[6:]) for line in told.splitlines() if line.startswith("data: ")]
    assert [(one["id"], one["tags"]) for one in news["runs"]] == [(run.id, ["fresh"])]


def test_whoever_may_labels_runs(client: Client, folder: Path) -> None:
    ids = [run.id for run in Run.all(folder)]
    asking = client(control=True)
    assert ask(asking, {"runs": ids, "add": ["paper"], "archived": True}).json() == {"labelled": ids}
    assert [(found.tags, found.archived is not None) for found in read_labels(folder).values()] == [
        *[(("paper",), True)] * 2
    ]
    change = {"runs": ids[:1], "remove": ["paper"], "archived": False, "name": "<b>", "note": "n", "pinned": True}
    assert ask(asking, change).status_code == 200
    run = Run.open(ids[0], folder)
    assert (run.name, run.note, run.tags, run.is_archived, run.is_pinned) == ("<b>", "n", (), False, True)


def test_a_figure_has_the_name_that_a_run_has_now(client: Client, folder: Path) -> None:
    runs, asking = Run.all(folder), client()
    for run in runs:
        run.rename("before")
    query = {"run": [run.id for run in runs], "name": "accuracy"}
    assert "before" in asking.get("/api/figure", params=query).text
    for run in runs:
        run.rename("after")
    found = asking.get("/api/figure", params=query).text
    assert ("after" in found, "before" in found) == (True, False)


def test_who_only_looks_changes_nothing(client: Client, folder: Path) -> None:
    answer = ask(client(), {"runs": [Run.all(folder)[0].id], "add": ["x"]})
    assert (answer.status_code, answer.json()["error"]["found"]) == (400, "this dashboard only looks")
    assert client(control=True).get("/api/label").status_code == 405
    assert read_labels(folder) == {}


@pytest.mark.parametrize(
    "headers",
    [{}, {"origin": "null"}, {"origin": "http://evil.example"}, {**HERE, "sec-fetch-site": "cross-site"}],
)
def test_labels_come_from_its_own_pages_alone(client: Client, folder: Path, headers: dict[str, str]) -> None:
    told = {"runs": [Run.all(folder)[0].id], "add": ["x"]}
    assert ask(client(control=True), told, headers).status_code == 403
    assert read_labels(folder) == {}


def test_without_the_token_nothing_is_labelled(client: Client, folder: Path) -> None:
    told = {"runs": [Run.all(folder)[0].id], "add": ["x"]}
    assert ask(client(control=True, token="t" * 43), told).status_code == 401
    assert read_labels(folder) == {}


@pytest.mark.parametrize(
    "told",
    [
        b"",
        b"\xff",
        b"[" * 100_000,
        [],
        {},
        {"runs": []},
        {"runs": ["nobody"], "add": ["x"]},
        {"runs": ["../x"], "add": ["x"]},
        {"runs": [3], "add": ["x"]},
        {"runs": "{run}", "add": ["x"]},
        {"runs": ["{run}"] * (MOST + 1), "add": ["x"]},
        {"runs": ["{run}"], "add": "x"},
        {"runs": ["{run}"], "add": [3]},
        {"runs": ["{run}"], "add": ["a\nb"]},
        {"runs": ["{run}"], "name": 3},
        {"runs": ["{run}"], "archived": "yes"},
        {"runs": ["{run}"], "pinned": 1},
        {"runs": ["{run}"], "status": "finished"},
        {"runs": ["{run}"], "note": "a" * (LONGEST_NOTE + 1)},
        b'{"runs": ["x"], "note": "' + b"a" * 9 * LONGEST_NOTE + b'"}',
    ],
)
def test_what_is_no_label_is_refused_in_words(client: Client, folder: Path, told: object) -> None:
    text = told if isinstance(told, bytes) else json.dumps(told).replace("{run}", Run.all(folder)[0].id)
    answer = ask(client(control=True), text)
    assert answer.status_code == 400
    assert set(answer.json()["error"]) == {"found", "expected", "why", "fix"}
    assert read_labels(folder) == {}
