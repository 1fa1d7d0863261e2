"""A record that somebody removes under a run ends it in words, and what only looks like a part of it is left alone."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from polyrhythm.base.errors import RunFailed, UserError
from polyrhythm.results import Run
from polyrhythm.runs import Plan, VersionRecord
from polyrhythm.runs.checkpoints import checkpoint, checkpoints, reached
from polyrhythm.runs.database import FILE
from polyrhythm.runs.database_writer import Cut
from polyrhythm.runs.disk_faults import PATIENCE, Patience
from polyrhythm.runs.recorder import Recorder, TakenUp

MakePlan = Callable[..., Plan]
MakeVersion = Callable[..., VersionRecord]


def of_the_database(folder: Path) -> None:
    for path in folder.glob(f"{FILE}*"):
        path.unlink()


def of_the_main_file(folder: Path) -> None:
    (folder / FILE).unlink()


def all_of_it(folder: Path) -> None:
    shutil.rmtree(folder)


def for_another(folder: Path) -> None:
    (folder / FILE).rename(folder / "old")
    shutil.copy(folder / "old", folder / FILE)


@pytest.mark.parametrize("removed", [of_the_database, of_the_main_file, all_of_it, for_another])
@pytest.mark.parametrize("committing", [True, False])
def test_a_database_that_is_removed_under_a_run_ends_it_in_words(
    tmp_path: Path,
    make_plan: MakePlan,
    make_version: MakeVersion,
    removed: Callable[[Path], None],
    committing: bool,
) -> None:
    folder = tmp_path / "runs"
    kept = Recorder(folder)
    kept.begin(make_plan())
    kept.version(make_version(0), dict)
    removed(folder)
    assert kept._writer is not None
    kept.version(make_version(1), dict)
    if committing:
        with pytest.raises(RunFailed, match="somebody has"):
            kept._writer.commit()
    with pytest.raises(RunFailed, match=r"somebody has (removed|been put in the place of) .*runs\.sqlite"):
        kept.end("finished", "all rounds made", {})


def test_a_log_that_is_removed_loses_nothing(tmp_path: Path, make_plan: MakePlan, make_version: MakeVersion) -> None:
    kept = Recorder(tmp_path)
    kept.begin(make_plan())
    kept.version(make_version(0), dict)
    assert kept._writer is not None
    kept._writer.commit()
    (tmp_path / f"{FILE}-wal").unlink()
    kept.version(make_version(1), dict)
    kept.end("finished", "all rounds made", {"rounds": 1})
    (run,) = Run.all(tmp_path)
    assert (run.status, run.missing, len(run.versions)) == ("finished", (), 2)


def test_the_folder_of_a_run_that_is_removed_is_named(
    tmp_path: Path, make_plan: MakePlan, make_version: MakeVersion
) -> None:
    kept = Recorder(tmp_path)
    kept.begin(make_plan())
    kept.version(make_version(0), dict)
    shutil.rmtree(kept.path)
    with pytest.raises(RunFailed, match=f"{kept.run_id} has been removed"):
        kept.end("finished", "all rounds made", {})
    (run,) = Run.all(tmp_path)
    assert (run.status, len(run.versions)) == ("failed", 1)


STRAY = [
    "checkpoint-zzz.safetensors",
    "checkpoint-.safetensors",
    "checkpoint-3.safetensors",
    "checkpoint-²²²²²²²².safetensors",
]


def test_stray_names_are_no_checkpoints(tmp_path: Path) -> None:
    for name in STRAY:
        (tmp_path / name).touch()
    checkpoint(tmp_path, 7).mkdir()
    for version in (9, 123_456_789):
        checkpoint(tmp_path, version).touch()
    assert checkpoints(tmp_path) == [checkpoint(tmp_path, 123_456_789), checkpoint(tmp_path, 9)]
    assert reached(tmp_path) == -1
    assert checkpoints(tmp_path / "missing") == []


@pytest.mark.parametrize("damage", ["no folder", "a file in its place", "a folder of that name", "stray names"])
def test_a_run_is_shown_and_taken_up_whatever_lies_in_its_folder(
    tmp_path: Path, make_plan: MakePlan, make_version: MakeVersion, damage: str
) -> None:
    kept = Recorder(tmp_path)
    kept.begin(make_plan())
    kept.version(make_version(0), dict)
    kept.end("stopped", "Ctrl-C", {})
    (run,) = Run.all(tmp_path)
    refused = damage in ("a file in its place", "a folder of that name")
    if damage in ("no folder", "a file in its place"):
        shutil.rmtree(run.path)
    if damage == "a file in its place":
        run.path.touch()
    if damage == "a folder of that name":
        (run.path / "final.safetensors").unlink()
        (run.path / "final.safetensors").mkdir()
    if damage == "stray names":
        for name in STRAY:
            (run.path / name).touch()
    assert "stopped" in repr(run)
    if damage != "stray names":
        with pytest.raises(UserError, match=r"final\.safetensors"):
            run.weights()
    again = Recorder(tmp_path, taken_up=TakenUp(run_id=run.id, config=run.config, kept=None, cut=Cut(), notes=()))
    if refused:
        with pytest.raises(UserError, match="cannot be written"):
            again.begin(make_plan())
        assert not again.began
    else:
        again.begin(make_plan())
        again.end("finished", "all rounds made", {})
        assert Run.all(tmp_path)[0].status == "finished"


def test_two_waits_in_a_row_last_as_long_as_one() -> None:
    now = 0.0
    first, second = Patience(lambda: now), Patience(lambda: now)
    assert first.bears()
    now = PATIENCE + 1
    assert not first.bears()
    second.share(first)
    assert not second.bears()
    first.over()
    third = Patience(lambda: now)
    third.share(first)
    assert third.bears()
