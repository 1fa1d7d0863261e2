"""How a run stands is looked at every second, so a look costs as much after a thousand rounds as after ten."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

import polyrhythm as pr
import small
from polyrhythm.dashboard.views import Standings, compared, row_of
from polyrhythm.experiments import run
from polyrhythm.results import tables
from polyrhythm.runs import database
from polyrhythm.runs.view import RunView

GOES_ON = "UPDATE runs SET status = 'running', ended = NULL, summary = NULL"
ALL = "SELECT * FROM versions ORDER BY version"


@pytest.fixture
def going(tmp_path: Path) -> tuple[Path, str]:
    """A run of 30 versions that has not ended."""
    found = run.run(small.experiment(rounds=30), out=tmp_path)
    change(tmp_path, GOES_ON)
    return tmp_path, found.id


def change(folder: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(folder / database.FILE, isolation_level=None)) as connection:
        connection.execute(statement)


def test_a_look_reads_what_is_new(going: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """However many versions there are: the run's row, its newest version, and those since the last look."""
    folder, run_id = going
    read, decoded = [0], database.decoded

    def counted(row: sqlite3.Row) -> dict[str, object]:
        read[0] += 1
        return decoded(row)

    change(folder, "CREATE TABLE later AS SELECT * FROM versions WHERE version > 8")
    change(folder, "DELETE FROM versions WHERE version > 8")
    standings, needed = Standings(folder), []
    monkeypatch.setattr(database, "decoded", counted)
    for last in (10, 12, 14, 28, 30):
        change(folder, f"INSERT OR REPLACE INTO versions SELECT * FROM later WHERE version <= {last}")
        read[0] = 0
        told = standings.of(row_of(folder, run_id))
        needed.append(read[0])
        whole = RunView(folder, row_of(folder, run_id)).numbers
        assert told["version"] == last
        assert (told["score"], told["best_version"], told["last20_mean"]) == (
            *(whole["final_accuracy"], whole["best_version"], whole["last20_mean"]),
        )
    assert needed[1] == needed[2] == needed[4] < 12


def test_a_run_that_was_resumed_is_read_anew(going: tuple[Path, str]) -> None:
    """It has made versions again that were looked at before, if on another machine with other numbers."""
    folder, run_id = going
    standings = Standings(folder)
    standings.of(row_of(folder, run_id))
    change(folder, "UPDATE versions SET wall = wall + 60, test = json_set(test, '$.accuracy', 0.125) WHERE version > 3")
    change(folder, "DELETE FROM versions WHERE version > 27")
    told, whole = standings.of(row_of(folder, run_id)), RunView(folder, row_of(folder, run_id)).numbers
    assert (told["score"], told["version"]) == (0.125, 27)
    assert told["best_version"] == whole["best_version"]
    change(folder, "UPDATE versions SET wall = wall + 60, test = json_set(test, '$.accuracy', 0.25) WHERE version > 3")
    assert standings.of(row_of(folder, run_id))["score"] == 0.25


def test_a_comparison_tells_the_same_as_in_python(tmp_path: Path) -> None:
    for epochs in (1, 3):
        for seed in range(2):
            recipe = pr.fedavg(cohort=2, epochs=epochs, batch=5)
            run.run(small.experiment(recipe=recipe, seed=seed, rounds=3), out=tmp_path)
    runs, expected = pr.Run.all(tmp_path), pr.compare(tmp_path)
    found = compared(runs, "test")
    assert (found["verdict"], found["baseline"]) == (expected.verdict, expected.baseline)
    assert {key: values for key, *values in found["settings"]} == {
        key: list(values.values()) for key, values in expected.settings.items()
    }
    base, other = found["methods"]
    assert base["gain"] is None
    gain = expected.differences()[other["method"]]
    assert (other["gain"]["mean"], other["gain"]["holm"], other["gain"]["told"]) == (
        *(gain.mean, gain.holm),
        tables.gain(gain),
    )
    assert found["keys"] == ["recipe.work.epochs"]
    grouped = compared(runs, "test", group_by="recipe.work.epochs", baseline="epochs 3")
    assert [row["method"] for row in grouped["methods"]] == ["epochs 1", "epochs 3"]
    assert grouped["methods"][1]["gain"] is None
