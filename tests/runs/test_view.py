"""How a run stands and what it has come to are the same wherever one looks."""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
from pathlib import Path

import pytest

import polyrhythm as pr
from polyrhythm.cli.columns import USUAL, Entry
from polyrhythm.dashboard.listing import Listing
from polyrhythm.dashboard.views import Standings, row_of
from polyrhythm.results.tables import score
from polyrhythm.runs import VersionRecord
from polyrhythm.runs.costs import COSTS, TOTALS
from polyrhythm.runs.database import FILE
from polyrhythm.runs.labels import NONE
from polyrhythm.runs.result_rule import NUMBERS
from polyrhythm.runs.summary import Best, Summary
from polyrhythm.runs.view import RunView
from small import experiment, logged


@pytest.fixture
def run(tmp_path: Path) -> pr.Run:
    return pr.run(experiment(rounds=6), out=tmp_path)


def _cells(run: pr.Run) -> dict[str, str]:
    """What the list of runs says of one."""
    entry = Entry(run, NONE)
    return {name: entry.cell(value) for name, value in USUAL.items()}


def altered(run: pr.Run, statement: str) -> pr.Run:
    """The run as it is found after a change of its record."""
    with contextlib.closing(sqlite3.connect(run.folder / FILE, isolation_level=None)) as database:
        database.execute(statement)
    return pr.Run.open(run.id, run.folder)


def test_a_run_whose_process_has_gone_is_killed_everywhere(run: pr.Run) -> None:
    """Its lock is free, and its row says that it goes on."""
    run = altered(run, "UPDATE runs SET status = 'running', ended = NULL, summary = NULL")
    assert run.status == "killed"
    assert _cells(run)["status"] == "killed"
    assert row_of(run.folder, run.id)["status"] == "killed"
    assert Listing(run.folder).runs()[0]["status"] == "killed"
    assert "killed" in str(run)
    assert "killed" in run._repr_html_()


def test_its_numbers_so_far_are_those_of_a_summary(run: pr.Run) -> None:
    wanted = {name: run.summary[name] for name in NUMBERS}
    assert run.view.numbers == wanted
    run = altered(run, "UPDATE runs SET status = 'running', ended = NULL, summary = NULL")
    assert run.view.numbers == pytest.approx(wanted)
    final = score(wanted["final_accuracy"])
    assert _cells(run)["final"] == final
    assert final in str(run)
    assert final in run._repr_html_()
    told = Standings(run.folder).of(row_of(run.folder, run.id))
    assert told["score"] == wanted["final_accuracy"]
    assert told["best_version"] == wanted["best_version"]


def test_holes_are_said_of_a_finished_run_alone(run: pr.Run) -> None:
    run = altered(run, "DELETE FROM versions WHERE version = 3")
    assert (run.status, run.view.standing) == ("finished", "finished, with holes")
    assert _cells(run)["status"] == "finished, with holes"
    for text in (str(run), run._repr_html_()):
        assert "finished, with holes" in text
    assert RunView(run.folder, {**run._row, "status": "stopped"}).standing == "stopped"


def test_every_cost_is_a_field_of_a_version() -> None:
    fields = {field.name for field in dataclasses.fields(VersionRecord)}
    assert {cost.column or cost.name for cost in COSTS.values() if cost.name != "bytes"} <= fields


def test_a_summary_has_every_total() -> None:
    _, log = logged()
    summary = Summary(Best("accuracy"))
    for empty in (True, False):
        found = summary.fields(digest="", wall_seconds=0.0)
        assert [cost.name for cost in TOTALS if cost.name not in found] == []
        assert not empty or not any(found[cost.name] for cost in TOTALS)
        summary.add(log.versions[-1])
