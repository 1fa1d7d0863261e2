"""A full disk and a locked database are borne for a while, and nothing that was committed is lost."""

from __future__ import annotations

import errno
import math
import sqlite3
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import final

import pytest
import torch

import polyrhythm as pr
from polyrhythm.base.errors import RunFailed
from polyrhythm.results import Run
from polyrhythm.runs import Plan, VersionRecord, database_writer, disk_faults, recorder
from polyrhythm.runs.database import FILE
from polyrhythm.runs.database_writer import Writer
from polyrhythm.runs.disk_faults import Patience
from polyrhythm.runs.recorder import Recorder
from polyrhythm.runs.records import ModelView
from small import experiment

MakePlan = Callable[..., Plan]
MakeVersion = Callable[..., VersionRecord]


def writer_of(kept: Recorder) -> Writer:
    assert kept._writer is not None
    return kept._writer


def fill_the_disk(writer: Writer) -> None:
    """Lets SQLite itself say that the disk is full: its file may not grow."""
    pages = writer._connection.execute("PRAGMA page_count").fetchone()[0]
    writer._connection.execute(f"PRAGMA max_page_count = {pages}")


def empty_the_disk(writer: Writer) -> None:
    writer._connection.execute("PRAGMA max_page_count = 1000000")


def put(writer: Writer, record: VersionRecord) -> None:
    """Adds a row without a try to commit it."""
    writer._committed = writer._heard = math.inf
    writer.add(record)


def many(make_version: MakeVersion, numbers: range) -> list[VersionRecord]:
    return [make_version(number, note="x" * 3000) for number in numbers]


def test_rows_wait_for_room_on_the_disk(tmp_path: Path, make_plan: MakePlan, make_version: MakeVersion) -> None:
    kept = Recorder(tmp_path)
    kept.begin(make_plan())
    writer = writer_of(kept)
    for record in many(make_version, range(3)):
        writer.add(record)
    assert writer.commit()
    fill_the_disk(writer)
    for record in many(make_version, range(3, 20)):
        writer.add(record)
    assert not writer.commit()
    assert writer.waits
    assert list(Run.open(kept.run_id, tmp_path).history.index) == [0, 1, 2]
    empty_the_disk(writer)
    assert writer.commit()
    kept.end("finished", "all rounds made", {})
    run = Run.open(kept.run_id, tmp_path)
    assert list(run.history.index) == list(range(20))
    assert "the record had to wait" in run.reason


def test_a_disk_that_stays_full_ends_the_run_and_says_what_is_kept(
    tmp_path: Path, make_plan: MakePlan, make_version: MakeVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_faults, "PATIENCE", 0.0)
    kept = Recorder(tmp_path)
    kept.begin(make_plan())
    writer = writer_of(kept)
    for record in many(make_version, range(3)):
        writer.add(record)
    assert writer.commit()
    fill_the_disk(writer)
    for record in many(make_version, range(3, 20)):
        put(writer, record)
    assert not writer.commit()  # for the first time
    time.sleep(0.01)
    with pytest.raises(RunFailed, match=r"full.*all versions up to 2"):
        writer.commit()
    with pytest.raises(RunFailed, match="full"):
        kept.end("failed", "", {})
    run = Run.open(kept.run_id, tmp_path)
    assert list(run.history.index) == [0, 1, 2]
    assert run.status == "killed"  # its end could not be written


def test_weights_wait_for_room_on_the_disk(
    tmp_path: Path, make_plan: MakePlan, make_version: MakeVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    room, write, tried = [False] * 3, recorder.write_whole, []

    def sometimes(path: Path, content: bytes) -> None:
        tried.append(path.name)
        if room and not room.pop():
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, content)

    monkeypatch.setattr(recorder, "write_whole", sometimes)
    monkeypatch.setattr(recorder, "_PAUSE", 0.0)
    kept = Recorder(tmp_path)
    kept.begin(make_plan())
    kept.version(make_version(1, 0.5), lambda: {"weight": torch.ones(2)})
    kept._write_best()
    kept.end("finished", "", {})
    assert tried == ["best.safetensors"] * 4 + ["final.safetensors"]
    run = Run.open(kept.run_id, tmp_path)
    assert run.status == "finished"
    assert torch.equal(run.weights("best")["weight"], torch.ones(2))


def test_patience_is_with_what_lasts_and_not_with_what_comes_back() -> None:
    now = [0.0]
    patience = Patience(lambda: now[0])
    assert patience.bears()
    now[0] = disk_faults.PATIENCE
    assert patience.bears()
    now[0] += 1
    assert not patience.bears()
    patience.over()
    assert patience.bears()
    assert patience.times == 4


@final
class Disk:
    """A disk that is full and a database that is locked for a while after some versions; to a record it looks real.

    Args:
        patch: puts it in the place of the real ones.
        lasts: seconds.
        full: says of a version whether the disk is full from then on.
        locked: likewise whether the database is locked.
    """

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        *,
        lasts: float,
        full: Callable[[int], bool],
        locked: Callable[[int], bool] = lambda version: False,
    ) -> None:
        self._full_until = self._locked_until = -1.0
        version, commit, write = Recorder.version, Writer._transaction, recorder.write_whole

        def versions(kept: Recorder, record: VersionRecord, model: ModelView) -> None:
            until = time.monotonic() + lasts
            self._full_until = until if full(record.version) else self._full_until
            self._locked_until = until if locked(record.version) else self._locked_until
            version(kept, record, model)

        def transaction(writer: Writer) -> AbstractContextManager[None]:
            if time.monotonic() < self._locked_until:
                raise failing("database is locked", sqlite3.SQLITE_BUSY)
            if time.monotonic() < self._full_until:
                raise failing("database or disk is full", sqlite3.SQLITE_FULL)
            return commit(writer)

        def file(path: Path, content: bytes) -> None:
            if time.monotonic() < self._full_until:
                raise OSError(errno.ENOSPC, "No space left on device")
            write(path, content)

        patch.setattr(Recorder, "version", versions)
        patch.setattr(Writer, "_transaction", transaction)
        patch.setattr(recorder, "write_whole", file)


def failing(words: str, code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(words)
    error.sqlite_errorcode = code
    return error


def test_a_run_with_such_a_disk_has_the_numbers_and_the_record_of_one_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = pr.run(experiment(rounds=20), out=tmp_path)
    Disk(monkeypatch, lasts=0.05, full=lambda version: version % 3 == 1, locked=lambda version: version % 4 == 2)
    # Seldom by itself in a run of a few milliseconds; so it tries to commit at every version.
    monkeypatch.setattr(database_writer, "_HALF_A_SECOND", 0.0)
    troubled = pr.run(experiment(rounds=20), out=tmp_path)
    monkeypatch.undo()
    same = [c for c in plain.history if c != "wall"]
    assert troubled.history[same].equals(plain.history[same])
    assert troubled.visits.equals(plain.visits)
    assert troubled.summary["digest"] == plain.summary["digest"]
    assert troubled.status == "finished"
    assert "the record had to wait" in troubled.reason
    assert {"final.safetensors", "best.safetensors"} <= {f.name for f in troubled.path.iterdir()}


def test_a_disk_that_is_full_for_ever_ends_a_run_with_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_faults, "PATIENCE", 0.2)
    Disk(monkeypatch, lasts=3600.0, full=lambda version: version == 3)
    with pytest.raises(RunFailed, match=r"full|No space left"):
        pr.run(experiment(rounds=200), out=tmp_path)
    monkeypatch.undo()
    (run,) = Run.all(tmp_path)
    assert run.status in ("failed", "killed")
    with closing(sqlite3.connect(tmp_path / FILE)) as file:
        assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)
