"""Readers and writers do not disturb each other, and a database that cannot be used is refused before any work."""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from polyrhythm.base.errors import RunFailed, UserError
from polyrhythm.results import Run
from polyrhythm.runs import AnswerRecord, Plan, VersionRecord, disk_faults
from polyrhythm.runs.database import FILE, read_runs
from polyrhythm.runs.database_writer import Writer
from polyrhythm.runs.recorder import Recorder

MakePlan = Callable[..., Plan]
MakeVersion = Callable[..., VersionRecord]


def record(folder: Path, plan: Plan) -> None:
    kept = Recorder(folder)
    kept.begin(plan)
    kept.end("finished", "", {})


@pytest.fixture
def started(tmp_path: Path, make_plan: MakePlan) -> Iterator[Recorder]:
    kept = Recorder(tmp_path)
    kept.begin(make_plan())
    yield kept
    kept.end("finished", "", {})


def version(kept: Recorder, record: VersionRecord) -> None:
    kept.version(record, dict)
    assert kept._writer is not None
    assert kept._writer.commit()


def test_a_reader_in_the_middle_blocks_no_writer(started: Recorder, tmp_path: Path, make_version: MakeVersion) -> None:
    with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM versions").fetchone() == (0,)
        version(started, make_version(0))
        assert reader.execute("SELECT count(*) FROM versions").fetchone() == (0,)
        reader.execute("COMMIT")
        assert reader.execute("SELECT count(*) FROM versions").fetchone() == (1,)


def test_a_writer_in_the_middle_blocks_no_reader(started: Recorder, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        assert [run.id for run in Run.all(tmp_path)] == [started.run_id]
        writer.execute("ROLLBACK")


def test_a_locked_database_is_refused_before_the_run(tmp_path: Path, make_plan: MakePlan) -> None:
    record(tmp_path, make_plan())
    with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(UserError, match="locked by another process"):
            Writer(tmp_path, patience=0.05)


def test_a_lock_in_the_middle_of_a_run_loses_nothing(
    started: Recorder, tmp_path: Path, make_version: MakeVersion
) -> None:
    writer = started._writer
    assert writer is not None
    with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        writer.add(make_version(0))
        assert not writer.commit(patience=0.05)
        writer.add(make_version(1))
    assert writer.commit()
    assert not any(writer._pending.values())
    assert list(Run.open(started.run_id, tmp_path).history.index) == [0, 1]


def test_a_lock_that_stays_fails_the_run_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_plan: MakePlan
) -> None:
    monkeypatch.setattr(disk_faults, "PATIENCE", 0.05)
    kept = Recorder(tmp_path)
    kept.begin(make_plan())
    with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(RunFailed, match=r"database is locked.*no version yet"):
            kept.end("finished", "", {})
    assert Run.open(kept.run_id, tmp_path).status == "killed"


def test_many_runs_may_start_in_an_empty_folder_at_once(tmp_path: Path, make_plan: MakePlan) -> None:
    together = threading.Barrier(6)
    problems: list[BaseException] = []

    def start() -> None:
        try:
            together.wait()
            record(tmp_path / "new", make_plan())
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=start) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert len(Run.all(tmp_path / "new")) == 6


def rubbish(path: Path) -> None:
    path.write_bytes(b"these are not the rows you are looking for" * 200)


def damaged(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[100:] = b"\xff" * (len(content) - 100)
    path.write_bytes(content)


def foreign(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE contacts (name TEXT)")


def newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA user_version = 99")


def older(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA user_version = 3")


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        (rubbish, "is damaged"),
        (damaged, "is damaged"),
        (foreign, "not of runs"),
        (newer, "has schema 99"),
        (older, "has schema 3"),
    ],
)
def test_a_database_that_cannot_be_used_is_refused_and_left_alone(
    spoil: Callable[[Path], None], found: str, tmp_path: Path, make_plan: MakePlan
) -> None:
    record(tmp_path, make_plan())
    spoil(tmp_path / FILE)
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(UserError, match=found):
        Recorder(tmp_path).begin(make_plan())
    with pytest.raises(UserError, match=found):
        read_runs(tmp_path)
    assert (tmp_path / FILE).read_bytes() == before


def test_answers_are_kept_in_order_and_take_four_bytes_a_client(tmp_path: Path, make_plan: MakePlan) -> None:
    kept = Recorder(tmp_path)
    kept.begin(make_plan())
    many = tuple(range(0, 2_000_000, 2_000))
    told = [(0, 0, "draw", many), (0, 1, "all", None), (3, 0, "present", (4, 2)), (4, 0, "draw", ())]
    for event, place, question, clients in told:
        kept.answer(AnswerRecord(event=event, place=place, question=question, clients=clients))
    kept.end("finished", "", {})
    answers = Run.open(kept.run_id, tmp_path).answers
    assert [(*index, *row) for index, row in zip(answers.index, answers.itertuples(index=False), strict=True)] == told
    with closing(sqlite3.connect(tmp_path / FILE)) as file:
        assert file.execute("SELECT length(clients) FROM answers").fetchall() == [(4000,), (None,), (8,), (0,)]


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path, make_plan: MakePlan) -> None:
    (tmp_path / "runs").write_text("")
    for folder in (tmp_path / "runs", tmp_path / "runs" / "below"):
        with pytest.raises(UserError, match="cannot be used"):
            Recorder(folder).begin(make_plan())


def test_a_folder_without_runs_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no run database"):
        Run.all(tmp_path / "nowhere")
    (tmp_path / FILE).touch()  # as another process leaves it that is just starting
    assert Run.all(tmp_path) == []


@pytest.fixture
def protected() -> Iterator[Path]:
    """A folder that this process may fill now and may not write once it has no rights of root."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions")
def test_a_folder_that_may_only_be_read(protected: Path, make_plan: MakePlan) -> None:
    record(protected, make_plan())
    protected.chmod(0o555)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        assert len(Run.all(protected)) == 1
        with pytest.raises(UserError, match="cannot be used"):
            Recorder(protected).begin(make_plan())
        with pytest.raises(UserError, match="Permission denied"):
            Recorder(protected / "new").begin(make_plan())
    finally:
        os.seteuid(user)
