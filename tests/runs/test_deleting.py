"""A run that is deleted leaves nothing behind, and takes nothing of others with it."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import threading
from pathlib import Path

import pytest

import polyrhythm as pr
import small
from polyrhythm.base.errors import UserError
from polyrhythm.runs import VersionRecord
from polyrhythm.runs.database import FILE
from polyrhythm.runs.deleting import delete
from polyrhythm.runs.schema import RECORDS


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    for seed in (0, 1):
        pr.run(small.experiment(name="plain", seed=seed), out=folder)
    return folder


@pytest.fixture
def folder(recorded: Path, tmp_path: Path) -> Path:
    return shutil.copytree(recorded, tmp_path / "runs")


def counted(folder: Path) -> dict[str, int]:
    """Rows by table."""
    with contextlib.closing(sqlite3.connect(folder / FILE)) as database:
        return {
            table: database.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0]
            for table in ("runs", "labels", "tags", *RECORDS)
        }


def test_nothing_is_left_of_it_and_the_other_is_as_before(folder: Path, tmp_path: Path) -> None:
    gone, other = pr.Run.all(folder)
    gone.tag("x")
    before, digest = counted(folder), other.summary["digest"]
    gone.delete()
    assert [run.id for run in pr.Run.all(folder, archived=True)] == [other.id]
    assert not (folder / gone.id).exists()
    assert counted(folder) == {table: 0 if table in ("labels", "tags") else n // 2 for table, n in before.items()}
    assert (pr.Run.open(other.id, folder).summary["digest"], other.missing) == (digest, ())
    # Its number may be given again, but nothing of it comes back.
    again = pr.run(small.experiment(name="plain"), out=folder)
    assert (again.summary["digest"], again.tags) == (gone.summary["digest"], ())


def test_a_run_that_goes_on_is_refused(tmp_path: Path) -> None:
    said = list[str]()

    def tries(record: VersionRecord) -> None:
        (run,) = pr.Run.all(tmp_path)
        with pytest.raises(UserError, match="goes on") as refused:
            run.delete()
        said.append(refused.value.fix)

    run = pr.run(small.experiment(name="plain"), out=tmp_path, observers=[small.Log(tries)])
    assert said[0] == f"polyrhythm stop {run.id}"
    assert (run.status, run.missing) == ("finished", ())


def test_of_several_all_are_deleted_or_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [run.id for run in pr.Run.all(folder)]
    monkeypatch.setattr("polyrhythm.runs.deleting.is_alive", lambda place: place.name == ids[1])
    with pytest.raises(UserError, match=ids[1]):
        delete(folder, ids)
    assert [run.id for run in pr.Run.all(folder)] == ids
    assert all((folder / run_id).is_dir() for run_id in ids)


def test_an_id_or_a_link_that_leads_elsewhere_takes_nothing_there(folder: Path, tmp_path: Path) -> None:
    kept = tmp_path / "mine"
    kept.mkdir()
    (kept / "thesis.txt").touch()
    linked, _ = pr.Run.all(folder)
    shutil.rmtree(folder / linked.id)
    (folder / linked.id).symlink_to(kept, target_is_directory=True)
    linked.delete()
    assert not (folder / linked.id).is_symlink()
    for bad in ("../mine", str(kept), "..", ".", ""):
        with contextlib.closing(sqlite3.connect(folder / FILE)) as database, database:
            database.execute("UPDATE runs SET run_id = ?", (bad,))
        with pytest.raises(UserError, match="a run with the id"):
            delete(folder, [bad])
    assert (kept / "thesis.txt").exists()


def test_a_database_that_is_held_is_waited_for(folder: Path) -> None:
    first, _ = pr.Run.all(folder)
    other = sqlite3.connect(folder / FILE, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    later = threading.Timer(0.3, lambda: other.execute("ROLLBACK"))
    later.start()
    first.delete()
    later.join()
    other.close()
    assert len(pr.Run.all(folder)) == 1
