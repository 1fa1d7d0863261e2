"""What people say of runs stands beside the record: it is found again, and changes nothing of the runs."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import polyrhythm as pr
import small
from polyrhythm.base.errors import UserError
from polyrhythm.fleet import Fleet
from polyrhythm.runs.database import FILE, read_runs
from polyrhythm.runs.labelling import baseline_of, label, read_labels
from polyrhythm.runs.labels import LONGEST_NAME, LONGEST_NOTE, LONGEST_TAG, NONE, Change, Labels
from polyrhythm.runs.search import Search
from polyrhythm.runs.settings_text import USUAL_FLEET, settings_lines


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds of each of two methods."""
    folder = tmp_path_factory.mktemp("recorded")
    for seed in (0, 1):
        for name, recipe in (("plain", pr.fedavg(cohort=2)), ("other", pr.fedprox(mu=0.1, cohort=2))):
            pr.run(small.experiment(name=name, seed=seed, recipe=recipe), out=folder)
    return folder


@pytest.fixture
def folder(recorded: Path, tmp_path: Path) -> Path:
    return shutil.copytree(recorded, tmp_path / "runs")


def rows(folder: Path) -> str:
    """Everything that the run itself has written, and what is in its folders."""
    with contextlib.closing(sqlite3.connect(folder / FILE)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        found = [(t, database.execute(f"SELECT * FROM {t}").fetchall()) for t in tables if t not in ("labels", "tags")]
    files = [(p.name, p.read_bytes()) for p in sorted(folder.glob("*/*"))]
    return hashlib.sha256(repr((found, files)).encode()).hexdigest()


def test_what_is_said_of_a_run_is_found_again(folder: Path) -> None:
    run, other, *_ = pr.Run.all(folder)
    before = rows(folder)
    run.tag("paper", "good")
    run.tag("to redo", remove=["good"])
    run.note = "first line\nsecond: <b>"
    run.rename("night")
    run.pin()
    run.archive()
    again = pr.Run.open(run.id, folder)
    for found in (run, again):
        assert (found.name, found.first_name, found.note) == ("night", "plain", "first line\nsecond: <b>")
        assert (found.tags, found.is_pinned, found.is_archived) == (("paper", "to redo"), True, True)
    assert read_labels(folder).keys() == {run.id}
    assert (other.tags, other.note, other.is_pinned, other.is_archived) == ((), "", False, False)
    assert rows(folder) == before


def test_what_is_taken_back_leaves_nothing(folder: Path) -> None:
    run = pr.Run.all(folder)[0]
    run.tag("a")
    run.note = "b"
    run.rename("c")
    run.archive()
    run.pin()
    run.tag(remove="a")
    run.note = ""
    run.rename("")
    run.archive(undo=True)
    run.pin(undo=True)
    assert run.name == "plain"
    assert read_labels(folder) == {}


def test_a_changed_label_changes_neither_the_digest_nor_what_a_run_is_resumed_as(folder: Path) -> None:
    run = pr.Run.all(folder)[0]
    digest, config = run.summary["digest"], run.config_digest
    run.rename("called otherwise")
    run.tag("x")
    run.archive()
    experiment = small.experiment(name="plain", recipe=pr.fedavg(cohort=2))
    assert pr.verify(run, experiment).differs_at is None
    again = pr.run(experiment, out=folder, resume="auto")  # the same one, though lists leave it out
    assert (again.id, again.summary["digest"], again.config_digest) == (run.id, digest, config)
    assert again.name == "called otherwise"
    assert again.tags == ("x",)


def test_a_resumed_run_keeps_its_labels(folder: Path) -> None:
    run = pr.Run.all(folder)[0]
    run.rename("night")
    run.tag("x")
    longer = small.experiment(name="plain", recipe=pr.fedavg(cohort=2), rounds=5)
    found = pr.resume(longer, "night", out=folder)
    assert (found.id, found.name, found.tags, found.summary["rounds"]) == (run.id, "night", ("x",), 5)


def test_a_run_in_the_archive_is_found_by_its_id_and_left_out_of_lists(folder: Path) -> None:
    run, *others = pr.Run.all(folder)
    run.archive()
    assert [found.id for found in pr.Run.all(folder)] == [other.id for other in others]
    assert len(pr.Run.all(folder, archived=True)) == 4
    assert [found.seed for found in pr.Run.find("plain", folder)] == [1]
    assert pr.Run.open(run.id, folder).id == run.id
    assert sum(map(len, pr.compare(folder).methods.values())) == 3
    pr.Run.find("plain", folder)[0].archive()
    assert [found.seed for found in pr.Run.find("plain", folder)] == [0, 1]  # nobody else is called that


def test_the_method_of_the_baseline_comes_first(folder: Path) -> None:
    other = pr.Run.find("other", folder)[1]
    assert list(pr.compare(folder).methods) == ["plain", "other"]
    other.pin()
    assert list(pr.compare(folder).methods) == ["other", "plain"]
    assert list(pr.compare(folder).differences()) == ["plain"]
    pr.Run.find("plain", folder)[0].pin()  # in place of the other
    assert (baseline_of(folder), other.is_pinned) == (pr.Run.find("plain", folder)[0].id, False)
    assert list(pr.compare(folder).methods) == ["plain", "other"]


def test_a_trial_that_was_renamed_is_a_trial_still(tmp_path: Path) -> None:
    trial = pr.run(small.experiment(name="s/1"), out=tmp_path)
    pr.run(small.experiment(name="s/best", seed=7), out=tmp_path)
    assert len(pr.compare(tmp_path).methods) == 2
    trial.rename("the good one")
    assert len(pr.compare(tmp_path).methods) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"add": [""]},
        {"add": ["a" * (LONGEST_TAG + 1)]},
        {"add": ["two\nlines"]},
        {"add": [" a"]},
        {"remove": ["\x1b[31m"]},
        {"add": [3]},
        {"name": "a\0b"},
        {"name": "a" * (LONGEST_NAME + 1)},
        {"note": "a" * (LONGEST_NOTE + 1)},
        {"note": 3},
    ],
)
def test_what_is_no_label_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(UserError, match=r"the tag|the name|a note"):
        Change(**change)  # type: ignore[arg-type]


def test_of_several_runs_all_are_changed_or_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from polyrhythm.runs import labelling

    ids = [run.id for run in pr.Run.all(folder)]
    plain = labelling._apply

    def breaks(connection: sqlite3.Connection, run_id: str, change: Change) -> None:
        if run_id == ids[2]:
            raise KeyboardInterrupt
        plain(connection, run_id, change)

    monkeypatch.setattr(labelling, "_apply", breaks)
    with pytest.raises(KeyboardInterrupt):
        label(folder, ids, Change(add=["x"]))
    assert read_labels(folder) == {}


def test_nobody_can_be_labelled_who_is_not_there(folder: Path) -> None:
    label(folder, ["nobody"], Change(note="x", archived=True))
    assert read_labels(folder) == {}


def test_what_somebody_has_spoilt_is_passed_over(folder: Path) -> None:
    run = pr.Run.all(folder)[0]
    with contextlib.closing(sqlite3.connect(folder / FILE, isolation_level=None)) as database:
        database.execute("INSERT INTO labels (run_id, name, note, archived) VALUES (?, x'61', x'ff', x'00')", (run.id,))
        database.execute("INSERT INTO tags VALUES (?, x'00ff')", (run.id,))
        database.execute("INSERT INTO tags VALUES ('gone', 'a')")
        database.execute("INSERT INTO tags VALUES (?, CAST(x'ff' AS TEXT))", (run.id,))
    assert len(read_runs(folder)) == 4
    assert (run.tags, run.note, pr.Run.open(run.id, folder).name) == ((), "", "plain")


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions")
def test_an_archive_that_may_only_be_read_says_so(recorded: Path) -> None:
    folder = Path(tempfile.mkdtemp())
    shutil.copytree(recorded, folder, dirs_exist_ok=True)
    run = pr.Run.all(folder)[0]
    folder.chmod(0o555)
    (folder / FILE).chmod(0o444)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        assert run.tags == ()
        with pytest.raises(UserError, match="may only be read"):
            run.tag("x")
    finally:
        os.seteuid(user)
        folder.chmod(0o755)
        shutil.rmtree(folder)


@pytest.fixture
def busy(folder: Path) -> Iterator[sqlite3.Connection]:
    """A writer that is in the middle of something."""
    with contextlib.closing(sqlite3.connect(folder / FILE, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield other


def test_a_database_that_is_held_is_waited_for_and_then_named(
    folder: Path, busy: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("polyrhythm.runs.labelling._PATIENCE", 0.05)
    run = pr.Run.all(folder)[0]
    with pytest.raises(UserError, match="locked by another process"):
        run.tag("x")
    busy.execute("ROLLBACK")
    run.tag("x")
    assert run.tags == ("x",)


def test_a_run_that_goes_on_is_not_disturbed(tmp_path: Path) -> None:
    def labels_itself(record: pr.runs.VersionRecord) -> None:  # type: ignore[name-defined]
        (run,) = pr.Run.all(tmp_path, archived=True)
        run.tag(f"version {record.version}")
        run.archive()
        run.rename(f"at {record.version}")

    run = pr.run(small.experiment(name="plain"), out=tmp_path, observers=[small.Log(labels_itself)])
    alone = pr.run(small.experiment(name="plain"), out=tmp_path / "alone")
    assert run.summary["digest"] == alone.summary["digest"]
    assert (run.status, run.missing, run.name) == ("finished", (), "at 3")
    assert run.tags == ("version 0", "version 1", "version 2", "version 3")


def test_labels_in_words() -> None:
    assert NONE.lines("night") == {}
    said = Labels(name="b", tags=("x", "y"), note="n", archived="2026", pinned=True).lines("a")
    assert said == {
        **{"first name": "a", "tags": "x, y", "note": "n", "archived": "since 2026", "baseline": "of this folder"}
    }


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("scaffold seed 2", True),
        ("scaffold seed 0", False),
        ("seed 2", True),
        ("seed 20", False),
        ("2", False),
        ("20260301", True),
        ("7kx3", True),
        ("kx3", False),
        ("PAPER digits", True),
        ("fedavg", False),
        ("", True),
    ],
)
def test_words_that_are_searched_for(text: str, fits: bool) -> None:
    words = ["scaffold(cohort=4)", "digits", "finished", "paper"]
    assert Search(text).fits("19960301-142530-7kx3" if text == "2" else "20260301-142530-7kx3", 2, words) == fits


def test_the_fleet_that_nobody_chose_is_known_without_loading_one() -> None:
    described = Fleet().describe()
    assert {key: value for key, value in described.items() if key != "name" and value is not None} == USUAL_FLEET
    assert settings_lines({"fleet": described}) == {"devices": "uniform"}
    assert settings_lines({"fleet": None}) == {"devices": "uniform"}
    assert settings_lines({"fleet": {**described, "availability": {"name": "Markov", "on": 60}}}) == {
        "devices": "markov(on=60)"
    }
