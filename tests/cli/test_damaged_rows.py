"""A row that cannot be read is named, and the runs beside it are shown."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import warnings
from pathlib import Path
from typing import Any

import pytest

import polyrhythm as pr
from crews import first_only
from polyrhythm.dashboard.listing import Listing
from polyrhythm.results import Run
from polyrhythm.runs import database, decoding
from polyrhythm.runs.database import FILE
from polyrhythm.runs.recorder import Recorder
from records import plan, version, visit
from terminal import Command

RUNS = {
    "no JSON": ("summary", b"{", "summary: a text in it cannot be read"),
    "no UTF-8": ("notices", b"[\xff]", "notices: a text in it cannot be read"),
    "something else": ("config", b"[1]", "config: a text in it cannot be read"),
    "a number for a text": ("recipe", 3, "recipe: it holds 3"),
    "no status": ("status", b"runnjng", "status: it holds 'runnjng'"),
    "a text for a number": ("summary", b'{"rounds": "x"}', "summary: rounds holds 'x'"),
}
RECORDS = {
    "versions": ("test", "version 1, test: a text in it cannot be read"),
    "visits": ("measures", "visit 1 has a text that is none of JSON"),
}


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, "ill" and "well"."""
    folder = tmp_path_factory.mktemp("damaged")
    for name in ("ill", "well"):
        kept = Recorder(folder)
        kept.begin(plan(name=name, rounds=2))
        for number in range(3):
            kept.visit(visit(number))
            kept.version(version(number, 0.5), dict)
        kept.end("finished", "all rounds made", {"rounds": 2, "final_accuracy": 0.5, "wall_seconds": 1.0})
    return folder


@pytest.fixture
def out(recorded: Path, tmp_path: Path) -> Path:
    shutil.copytree(recorded, tmp_path / "runs")
    return tmp_path / "runs"


def alter(out: Path, statement: str, *values: object) -> None:
    with contextlib.closing(sqlite3.connect(out / FILE, isolation_level=None)) as database:
        database.execute(statement, values)


def in_one_line(text: str) -> str:
    return " ".join(text.split())


def check(polyrhythm: Command, out: Path, words: str) -> None:
    where = ("--out", str(out))
    ill, well = ids(out)
    found = polyrhythm("runs", *where)
    assert found.code == 0
    assert words in in_one_line(found.out + found.err)
    assert all(run_id in found.out for run_id in (ill, well))
    lines = [json.loads(line) for line in polyrhythm("runs", *where, "--json").out.splitlines()]
    assert [(line["run_id"], line["status"]) for line in lines] == [(well, "finished"), (ill, "damaged")]
    compared = polyrhythm("compare", *where, "--json")
    assert [json.loads(line)["runs"] for line in compared.out.splitlines()] == [[well]]
    assert words in in_one_line(compared.err)
    reported = polyrhythm("report", *where, "--output", str(out / "report.md"))
    assert (reported.code, "1 run reported" in reported.out) == (0, True)
    assert words in in_one_line(reported.err)
    assert polyrhythm("show", well, *where).code == 0
    assert polyrhythm("resume", well, *where).code == 2
    assert [run["id"] for run in Listing(out).runs()] == [ill, well]


def ids(out: Path) -> tuple[str, str]:
    with contextlib.closing(sqlite3.connect(out / FILE)) as database:
        ill, well = (run_id for (run_id,) in database.execute("SELECT run_id FROM runs ORDER BY number"))
    return ill, well


@pytest.mark.parametrize("damage", first_only(RUNS))
def test_a_damaged_row_of_a_run_is_named_and_the_others_are_shown(polyrhythm: Command, out: Path, damage: str) -> None:
    column, value, words = RUNS[damage]

    ill, well = ids(out)
    text = "CAST(? AS TEXT)" if isinstance(value, bytes) else "?"
    if isinstance(value, int):  # a column of text would make a text of it
        alter(out, "CREATE TABLE other AS SELECT * FROM runs")
        alter(out, "DROP TABLE runs")
        alter(out, "ALTER TABLE other RENAME TO runs")
        alter(out, "UPDATE runs SET recipe = CAST(3 AS BLOB) WHERE number = 1")
        words = "recipe: it holds b'3'"
    else:
        alter(out, f"UPDATE runs SET {column} = {text} WHERE number = 1", value)
    check(polyrhythm, out, words)
    for command in ("show", "resume", "verify", "stop"):
        for reference in (ill, "ill"):  # by its id and by its name
            found = polyrhythm(command, reference, "--out", str(out))
            assert found.code == 2
            assert words in in_one_line(found.err)
            assert ill in found.err
    with pytest.warns(UserWarning, match=ill):
        assert [run.id for runs in pr.compare(out).methods.values() for run in runs] == [well]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [run.id for run in Run.all(out)] == [well]


@pytest.mark.parametrize("table", RECORDS)
def test_a_damaged_row_of_a_record_is_named_and_the_other_runs_are_shown(
    polyrhythm: Command, out: Path, table: str
) -> None:
    column, words = RECORDS[table]
    key = {"versions": "version", "visits": "dispatch"}[table]
    alter(out, f"UPDATE {table} SET {column} = '{{' WHERE run = 1 AND {key} = 1")
    check(polyrhythm, out, words)


def test_a_summary_with_other_keys_ends_nothing(polyrhythm: Command, out: Path) -> None:
    alter(out, """UPDATE runs SET summary = '{"roundz": 2, "final_accurac": 0.5, "recorded": {}}' WHERE number = 1""")
    ill, _ = ids(out)
    for command in (["runs"], ["show", ill], ["compare"], ["report", "--output", str(out / "report.md")]):
        assert polyrhythm(*command, "--out", str(out)).code == 0


def test_of_runs_with_one_name_the_damaged_one_is_said_to_be_left_out(polyrhythm: Command, out: Path) -> None:
    ill, well = ids(out)
    alter(out, "UPDATE runs SET name = 'both', notices = CASE number WHEN 1 THEN '{' ELSE notices END")
    compared = polyrhythm("compare", "both", "--json", "--out", str(out))
    assert [json.loads(line)["runs"] for line in compared.out.splitlines()] == [[well]]
    assert f"the run {ill} is left out: its record is damaged" in in_one_line(compared.err)


@pytest.mark.parametrize(
    "command",
    [["compare", "--output", "costs.svg"], ["report", "--output", "report.html"], ["plot", "--figure", "accuracy"]],
    ids=lambda command: command[0],
)
def test_versions_are_read_once(
    polyrhythm: Command, out: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    """Though they are looked through for damage first; the last one may be asked for again, as it is quick to find."""
    seen: list[int] = []

    def decoded(row: sqlite3.Row) -> dict[str, Any]:
        if "version" in row.keys() and "digest" in row.keys():  # noqa: SIM118
            seen.append(row["version"])
        return decoding.decoded(row)

    monkeypatch.setattr(database, "decoded", decoded)
    monkeypatch.chdir(out.parent)
    assert polyrhythm(*command, "--out", str(out)).code == 0
    assert (seen.count(0), seen.count(1)) == (2, 2)  # once for each run
