"""Commands that look at a run say what its record lacks, and none that makes one ends well with a hole."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path

import pytest

from polyrhythm.results import Run
from polyrhythm.runs.checkpoints import checkpoints
from polyrhythm.runs.database import FILE
from terminal import Command

QUICK = ("--model", "logistic", "--method", "fedavg(cohort=3)", "--rounds", "4", "--set", "checkpoint.every=1")
WORDS = "versions 1 to 2 are missing from the record"


@pytest.fixture
def holed(polyrhythm: Command, tmp_path: Path) -> Run:
    """A finished run without two of its versions."""
    assert polyrhythm("run", *QUICK, "--name", "mine", "--out", str(tmp_path)).code == 0
    alter(tmp_path, "DELETE FROM versions WHERE version IN (1, 2)")
    (run,) = Run.all(tmp_path)
    return run


def alter(out: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(out / FILE, isolation_level=None)) as database:
        database.execute(statement)


def in_one_line(text: str) -> str:
    return " ".join(text.replace("│", " ").split())


def test_commands_that_look_name_it(polyrhythm: Command, holed: Run, tmp_path: Path) -> None:
    out = ("--out", str(tmp_path))
    assert WORDS in in_one_line(polyrhythm("show", "mine", *out).out)
    assert json.loads(polyrhythm("show", "mine", *out, "--json").out)["missing"] == ["versions 1 to 2"]
    assert "with holes" in in_one_line(polyrhythm("runs", *out).out)
    assert json.loads(polyrhythm("runs", *out, "--json").out)["missing"] == ["versions 1 to 2"]
    assert WORDS in in_one_line(polyrhythm("compare", *out).out)
    assert polyrhythm("report", *out, "--output", str(tmp_path / "report.md")).code == 0
    assert WORDS in in_one_line((tmp_path / "report.md").read_text())


def test_verify_and_replay_end_with_1_in_words(polyrhythm: Command, holed: Run, tmp_path: Path) -> None:
    for command in ("verify", "replay"):
        found = polyrhythm(command, "mine", "--out", str(tmp_path))
        assert found.code == 1
        assert f"{holed.id}: {WORDS}; 3 versions, 0 to 4, all equal to the last bit" in in_one_line(found.out)
        told = json.loads(polyrhythm(command, "mine", "--out", str(tmp_path), "--json").out)
        assert (told["equal"], told["missing"], told["compared"]) == (False, ["versions 1 to 2"], 3)


@pytest.mark.parametrize("command", [("resume", "mine"), ("run", *QUICK, "--name", "mine", "--resume", "auto")])
def test_a_run_that_goes_on_says_so_everywhere(
    polyrhythm: Command, holed: Run, tmp_path: Path, command: tuple[str, ...]
) -> None:
    digest = holed.summary["digest"]
    newest = checkpoints(holed.path)[0].name
    found = polyrhythm(*command, "--out", str(tmp_path), "--json")
    assert found.code == 0, found.err
    told = json.loads(found.out)
    for said in (f"{WORDS}: what was lost is made again", f"{newest} is of a record that had more ({WORDS})"):
        assert said in in_one_line(found.err)
        assert any(said in notice for notice in told["notices"])
        assert any(said in notice for notice in Run.open("mine", tmp_path).notices)
    assert (told["digest"], told["missing"], told["status"]) == (digest, [], "finished")
    assert polyrhythm("verify", "mine", "--out", str(tmp_path)).code == 0
    assert len(Run.all(tmp_path)) == 1


def test_a_record_that_lost_a_run_says_so(polyrhythm: Command, holed: Run, tmp_path: Path) -> None:
    alter(tmp_path, "DELETE FROM runs")
    refused = polyrhythm("resume", holed.id, "--out", str(tmp_path))
    assert refused.code == 2
    assert "its folder is there, but its rows are missing from" in in_one_line(refused.err)
    begun = polyrhythm("run", *QUICK, "--resume", "auto", "--out", str(tmp_path), "--json")
    said = f"there is a folder of the run {holed.id}, but its rows are missing from"
    assert said in in_one_line(begun.err)
    assert any(said in notice for notice in json.loads(begun.out)["notices"])


def test_a_database_that_is_damaged_is_refused_with_what_to_do(polyrhythm: Command, holed: Run, tmp_path: Path) -> None:
    with (tmp_path / FILE).open("r+b") as file:
        file.truncate((tmp_path / FILE).stat().st_size // 2)
    for command in (
        *(("show", "mine"), ("verify", "mine"), ("replay", "mine"), ("resume", "mine"), ("compare",), ("runs",)),
        *(("run", *QUICK), ("run", *QUICK, "--resume", "auto")),
    ):
        refused = polyrhythm(*command, "--out", str(tmp_path))
        assert refused.code == 2
        assert "is damaged" in refused.err
        assert ".recover" in refused.err
        assert "backup" in refused.err
        assert "Traceback" not in refused.err
