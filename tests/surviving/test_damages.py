"""Files that were damaged after a kill: the record becomes whole again, or the run is refused in words."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyrhythm as pr
import small
from polyrhythm.experiments.prepared import Prepared
from polyrhythm.runs.checkpoints import checkpoints
from polyrhythm.runs.database import FILE, LOG

from . import scenarios
from .killing import Ground, assert_equal, record

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="runs to be killed are forked")
NAME = "rolling, coming and going"
PAGE = 4096
Damage = Callable[[Path], None]


def trial(**changes: Any) -> Prepared:
    return scenarios.prepared(NAME, checkpoint=pr.Checkpoint(every=1, keep=3), **changes)


def go_on(out: Path, **changes: Any) -> pr.Run:
    return small.run(trial(**changes), out=out, resume="auto")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The record of a run that nothing happened to."""
    out = tmp_path_factory.mktemp("whole")
    small.run(trial(), out=out)
    return record(out)


@pytest.fixture(scope="module")
def dead(killing: Ground, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that was killed when its record had 14 versions and checkpoints of versions 10 to 12."""
    out = tmp_path_factory.mktemp("dead") / "runs"
    said, _ = killing.run(NAME, out, step="after the rows are durable", call=13)
    assert said == "begun", said
    assert (out / LOG).stat().st_size > 20 * PAGE
    return out


@pytest.fixture
def out(dead: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(dead, tmp_path / "runs"))


def settled(out: Path) -> Path:
    """Brings what is in the log into the main file, as SQLite does by itself every 1,000 pages."""
    with contextlib.closing(sqlite3.connect(out / FILE)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return out / FILE


def flipped(file: str, share: float, bit: int) -> Damage:
    def damage(out: Path) -> None:
        content = bytearray((out / file).read_bytes())
        content[int(share * len(content))] ^= 1 << bit
        (out / file).write_bytes(content)

    return damage


def cut(file: str, share: float) -> Damage:
    def damage(out: Path) -> None:
        os.truncate(out / file, int(share * (out / file).stat().st_size))

    return damage


def removed(file: str) -> Damage:
    return lambda out: (out / file).unlink()


def rubbish(file: str) -> Damage:
    return lambda out: (out / file).write_bytes(np.random.default_rng(0).bytes(3 * PAGE))


def deleted(statement: str, fewest: int = 1) -> Damage:
    def damage(out: Path) -> None:
        with contextlib.closing(sqlite3.connect(out / FILE, isolation_level=None)) as database:
            assert database.execute(statement).rowcount >= fewest or not fewest

    return damage


def main_file(damage: Damage) -> Damage:
    """A damage to the main file when all is in it."""

    def both(out: Path) -> None:
        settled(out)
        damage(out)

    return both


def older_record(out: Path) -> None:
    """The database of an earlier day in the place of the present one, with newer checkpoints beside it."""
    deleted("DELETE FROM versions WHERE version > 5")(out)
    deleted("DELETE FROM visits WHERE version > 3")(out)
    deleted("DELETE FROM events WHERE event > 12")(out)
    deleted("DELETE FROM answers WHERE event > 12")(out)


def folder_of(out: Path) -> Path:
    return next(path for path in out.iterdir() if path.is_dir())


def from_anothers(out: Path) -> None:
    """A checkpoint of another run of the same experiment."""
    small.run(trial(rounds=20, seed=1), out=out.parent / "other")
    (other,) = pr.Run.all(out.parent / "other")
    newest = checkpoints(folder_of(out))[0]
    shutil.copy(checkpoints(other.path)[0], newest.with_name("checkpoint-00000013.safetensors"))


def of_another_version(out: Path) -> None:
    newest, *_ = checkpoints(folder_of(out))
    newest.rename(newest.with_name("checkpoint-00000017.safetensors"))


def damaged_checkpoints(out: Path) -> None:
    for path in checkpoints(folder_of(out)):
        cut(str(path.relative_to(out)), 0.9)(out)


ANEW = "there is no whole checkpoint, so the run begins anew"
LOST = "its rows are missing from"
MENDED: dict[str, tuple[Damage, str]] = {
    "nothing": (lambda out: None, "from its checkpoint of version 12"),
    "a bit in the last of the log": (flipped(LOG, 0.99, 3), "from its checkpoint of version 12"),
    "a bit in the middle of the log": (flipped(LOG, 0.5, 0), "is of a record that had more (versions "),
    "a bit at the beginning of the log": (flipped(LOG, 0.2, 7), ANEW),
    "a bit in its header": (flipped(LOG, 0.0, 2), LOST),
    "half of the log": (cut(LOG, 0.5), ANEW),
    "a log without its last bytes": (cut(LOG, 0.999), "from its checkpoint of version 12"),
    "an empty log": (cut(LOG, 0.0), LOST),
    "no log": (removed(LOG), LOST),
    "no index of the log": (removed(f"{FILE}-shm"), "from its checkpoint of version 12"),
    "rubbish for an index": (rubbish(f"{FILE}-shm"), "from its checkpoint of version 12"),
    "no database": (removed(FILE), LOST),
    "a version": (deleted("DELETE FROM versions WHERE version = 3"), "version 3 is missing from the record"),
    "the last versions": (deleted("DELETE FROM versions WHERE version > 10"), "from its checkpoint of version 10"),
    "versions from the middle on": (deleted("DELETE FROM versions WHERE version > 6"), "versions 7 to 11 are missing"),
    "every third visit": (deleted("DELETE FROM visits WHERE dispatch % 3 = 0"), "visits 0, 3, 6 and "),
    "an event": (deleted("DELETE FROM events WHERE event = 4"), "event 4 is missing from the record"),
    "all events": (deleted("DELETE FROM events"), "the events of visits 0 to "),
    "an answer": (deleted("DELETE FROM answers WHERE event = 0"), " answers are missing from the record"),
    "the newest rows of all": (older_record, "is of a record that had more (versions 6 to 11"),
    "a digest": (deleted("UPDATE versions SET digest = 'x' WHERE version = 12"), "version 12 has another digest"),
    "what a visit took": (deleted("UPDATE visits SET samples = samples + 1 WHERE dispatch = 1"), "samples of its"),
    "a checkpoint of another run": (from_anothers, "checkpoint-00000013.safetensors is one of the run "),
    "a checkpoint with another name": (of_another_version, "is the one of version 12"),
    "all checkpoints": (damaged_checkpoints, ANEW),
    "the folder of the run": (lambda out: shutil.rmtree(folder_of(out)), ANEW),
}


@pytest.mark.parametrize("name", MENDED)
def test_a_damaged_record_becomes_whole_again_and_says_so(out: Path, whole: dict[str, Any], name: str) -> None:
    damage, word = MENDED[name]
    damage(out)
    run = go_on(out)
    assert word in " | ".join(run.notices), run.notices
    assert_equal(record(out, run.id), whole)
    assert run.missing == ()
    assert len(checkpoints(run.path)) == 3
    assert small.run(trial(), out=out, resume="auto").id == run.id


def test_a_killed_run_says_what_its_checkpoints_know_and_its_record_lacks(out: Path) -> None:
    cut(LOG, 0.7)(out)
    (run,) = pr.Run.all(out)
    last = run.versions[-1]["version"]
    assert 0 <= last < 12
    assert run.missing == (f"versions {last + 1} to 12",)
    assert f"versions {last + 1} to 12 are missing from the record" in " ".join(str(run).replace("│", " ").split())


REFUSED: dict[str, tuple[Damage, str]] = {
    "half of the main file": (main_file(cut(FILE, 0.5)), "is damaged (database disk image is malformed)"),
    "an empty main file": (cut(FILE, 0.0), f"it is empty, and {LOG} beside it is not"),
    "rubbish for a main file": (main_file(rubbish(FILE)), "is damaged (file is not a database)"),
    "a table": (main_file(deleted("DROP TABLE answers", 0)), "is damaged (no table answers)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_damaged_database_is_refused_in_words_and_left_alone(out: Path, name: str) -> None:
    damage, word = REFUSED[name]
    damage(out)
    before = (out / FILE).read_bytes()
    for attempt in (lambda: go_on(out), lambda: small.run(trial(seed=3), out=out), lambda: pr.compare(out)):
        with pytest.raises(pr.UserError) as refused:
            attempt()
        assert word in refused.value.found
        assert "backup" in refused.value.fix
    assert (out / FILE).read_bytes() == before


def zeroed(page: int) -> Damage:
    def damage(out: Path) -> None:
        content = bytearray(settled(out).read_bytes())
        assert len(content) > page * PAGE
        content[page * PAGE : (page + 1) * PAGE] = bytes(PAGE)
        (out / FILE).write_bytes(content)

    return damage


def log_of_another(out: Path) -> None:
    """The log of a run in another folder, in the place of this one's."""
    settled(out)
    other = out.parent / "other"
    small.run(trial(seed=2, rounds=1), out=other)
    with contextlib.closing(sqlite3.connect(other / FILE)) as database:
        database.execute("SELECT * FROM runs").fetchall()  # as long as somebody reads the log is not brought in
        small.run(trial(seed=3), out=other)
        shutil.copy(other / LOG, out / LOG)


def test_a_text_that_is_none_is_said_by_whoever_reads_it(out: Path) -> None:
    deleted("UPDATE runs SET config = '{'")(out)
    with pytest.raises(pr.UserError, match="a text in it cannot be read"):
        pr.compare(out)
    begun = go_on(out)  # anew, and the other one is named
    assert begun.status == "finished"
    assert any("is damaged" in note and "a text in it cannot be read" in note for note in begun.notices)


@pytest.mark.parametrize("damage", [*map(zeroed, range(10)), log_of_another])
def test_whatever_page_is_lost_nothing_is_finished_with_a_hole(
    out: Path, whole: dict[str, Any], damage: Damage
) -> None:
    damage(out)
    refusals: list[pr.UserError] = []
    try:
        run = go_on(out)
    except pr.UserError as refused:
        refusals.append(refused)
    else:
        assert_equal(record(out, run.id), whole)
    assert all("is damaged" in refused.found and "backup" in refused.fix for refused in refusals)
