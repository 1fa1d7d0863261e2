"""What is missing from a record is named: on its own, against its checkpoints, and when a run ends."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import polyrhythm as pr
import small
from polyrhythm.experiments.prepared import Prepared
from polyrhythm.runs import VersionRecord, VisitRecord, holes
from polyrhythm.runs.checkpoints import checkpoints, version_of
from polyrhythm.runs.database import FILE
from polyrhythm.runs.updates import file_of
from small import Log
from surviving import scenarios


def altered(out: Path, *statements: str) -> None:
    with contextlib.closing(sqlite3.connect(out / FILE, isolation_level=None)) as database:
        for statement in statements:
            database.execute(statement)


def trial(**changes: Any) -> Prepared:
    """Six versions of two visits each, one event a visit."""
    values: dict[str, Any] = {"rounds": 6, "recipe": pr.fedavg(cohort=2, epochs=1, batch=5)}
    return small.prepared(**values | {"checkpoint": pr.Checkpoint(every=2, keep=3)} | changes)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of such a run."""
    return small.run(trial(), out=tmp_path_factory.mktemp("whole"), log_updates=True).folder


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> pr.Run:
    """A copy of it."""
    (run,) = pr.Run.all(shutil.copytree(whole, tmp_path, dirs_exist_ok=True))
    return run


HOLES = {
    "DELETE FROM versions WHERE version = 3": ("version 3",),
    "DELETE FROM versions WHERE version > 4": ("versions 5 to 6",),
    "DELETE FROM versions WHERE version = 6": ("version 6",),
    "DELETE FROM versions": ("versions 0 to 6",),
    "DELETE FROM versions WHERE version % 2 = 0": ("versions 0, 2, 4 and 1 other",),
    "DELETE FROM visits WHERE dispatch IN (2, 3, 7)": ("visits 2 to 3 and 7",),
    "DELETE FROM visits": ("visits 0 to 11",),
    "DELETE FROM events WHERE event = 12": ("the event of visit 11",),
    "DELETE FROM events WHERE event = 5": ("event 5",),
    "DELETE FROM events": ("the events of visits 0 to 11",),
    "DELETE FROM answers WHERE event = 0": ("1 of 6 answers",),
    "DELETE FROM answers": ("6 of 6 answers",),
}


@pytest.mark.parametrize("statement", HOLES)
def test_what_is_missing_is_named(run: pr.Run, statement: str) -> None:
    assert run.missing == ()
    altered(run.folder, statement)
    assert run.missing == HOLES[statement]
    assert holes.in_words(run.missing) in " ".join(str(run).replace("│", " ").split())
    assert "finished, with holes: all rounds made" in str(run)
    assert any(holes.in_words(run.missing) in note for note in pr.compare([run]).notes)
    assert "missing from the record" in run._repr_html_()


@pytest.mark.parametrize("statement", HOLES)
def test_they_are_filled_on_going_on(run: pr.Run, tmp_path: Path, statement: str) -> None:
    digest, rows = run.summary["digest"], [{**row, "wall": 0} for row in run.versions]
    altered(run.folder, statement)
    words = holes.in_words(run.missing)
    found = small.run(trial(), out=tmp_path, resume="auto")
    assert (found.id, found.missing, found.summary["digest"]) == (run.id, (), digest)
    assert [{**row, "wall": 0} for row in found.versions] == rows
    assert found.notices[0] == f"{words}: what was lost is made again"


@pytest.mark.parametrize("statement", [s for s in HOLES if s != "DELETE FROM versions"])
def test_a_verdict_on_a_record_with_holes_is_none_of_equality(run: pr.Run, statement: str) -> None:
    altered(run.folder, statement)
    verdict = small.verify(run, trial())
    assert not verdict.equal
    assert (verdict.differs_at, verdict.missing) == (None, HOLES[statement])
    assert verdict.compared == len(run.versions)
    assert f"{holes.in_words(run.missing)}; {verdict.compared} versions, " in str(verdict)


@pytest.mark.parametrize("from_updates", [False, True])
@pytest.mark.parametrize("statement", [s for s in HOLES if s != "DELETE FROM events"])
def test_a_replay_says_what_it_lacked(run: pr.Run, statement: str, from_updates: bool) -> None:
    altered(run.folder, statement)
    verdict = small.replay(run, trial(), from_updates=from_updates)
    assert not verdict.equal
    assert holes.in_words(HOLES[statement]) in str(verdict)


def test_rows_that_are_lost_while_a_run_goes_on_fail_it(tmp_path: Path) -> None:
    def lose(record: VisitRecord | VersionRecord) -> None:
        if isinstance(record, VersionRecord) and record.version == 6:
            altered(tmp_path, "DELETE FROM versions WHERE version = 1")

    slow = trial(checkpoint=pr.Checkpoint(every=1))  # so that each version is committed
    with pytest.raises(pr.RunFailed, match="all rounds made, but version 1 is missing from the record"):
        small.run(slow, out=tmp_path, observers=[Log(lose)])
    (run,) = pr.Run.all(tmp_path)
    assert run.status == "failed"
    assert small.resume(slow, run).missing == ()


def test_a_log_of_updates_that_is_too_short_is_made_again(run: pr.Run, tmp_path: Path) -> None:
    """A checkpoint whose reports are all there is gone on from, though a later one has a whole record."""
    for dispatch in (9, 10):
        (run.path / file_of(dispatch)).unlink()
    with pytest.raises(pr.RunFailed, match="the reports of visits 9 to 10 in the log of updates are missing"):
        small.replay(run, trial(), from_updates=True)
    found = small.resume(trial(rounds=8), run)
    assert "is of a record that had more (the report of visit 9 in the log of updates" in found.notices[0]
    assert "from its checkpoint of version 4" in found.notices[-1]
    assert small.replay(found, trial(rounds=8), from_updates=True).equal


def test_one_that_no_checkpoint_has_whole_is_said(run: pr.Run, tmp_path: Path) -> None:
    (run.path / file_of(0)).unlink()
    found = small.resume(trial(rounds=8), run)
    assert "the report of visit 0 in the log of updates is missing" in " ".join(found.notices)
    assert "from its checkpoint of version 5" in found.notices[-1]


def test_a_run_on_its_way_or_broken_off_has_no_holes(tmp_path: Path) -> None:
    """Whatever the recipe: visits that are late, lost, refused, under way; its checkpoints agree with its record."""

    def look(record: VisitRecord | VersionRecord) -> None:
        (run,) = pr.Run.all(out)
        assert run.missing == ()
        if isinstance(record, VisitRecord) and record.version >= 2:
            raise KeyboardInterrupt

    alone: dict[str, Any] = {"driver": "inline", "workers": None, "checkpoint": pr.Checkpoint(every=1)}
    for name in scenarios.MAKE:
        out, made = tmp_path / name, scenarios.prepared(name, rounds=5, **alone)
        run = small.run(made, out=out, observers=[Log(look)])
        assert (run.status, run.missing) == ("stopped", ()), name
        newest = version_of(checkpoints(run.path)[0])
        found = small.resume(made, run)
        assert (found.status, found.missing) == ("finished", ()), name
        assert [note for note in found.notices if "checkpoint" in note] == [
            f"the run went on from its checkpoint of version {newest}"
        ]


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        (("version 7",), "version 7 is missing from the record"),
        (("versions 7 to 9",), "versions 7 to 9 are missing from the record"),
        (("version 7", "3 of 12 answers"), "version 7 and 3 of 12 answers are missing from the record"),
        (("all of it",), "all of it is missing from the record"),
    ],
)
def test_in_words(missing: tuple[str, ...], words: str) -> None:
    assert holes.in_words(missing) == words
