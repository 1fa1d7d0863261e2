"""When checkpoints are written, how many are kept, and which one is taken."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from polyrhythm.base.errors import UserError
from polyrhythm.runs.checkpointing import Keeper, Unfit, newest
from polyrhythm.runs.checkpoints import Checkpoint, checkpoint, checkpoints, reached, version_of
from polyrhythm.runs.encoding import Codec

CODEC = Codec([])


def test_every_so_many_versions() -> None:
    settings = Checkpoint(every=3)
    assert [v for v in range(8) if settings.due(v, 1e9)] == [3, 6]


@pytest.mark.parametrize(("every", "seconds"), [("30 s", 30), ("30s", 30), ("5 min", 300), ("1.5 h", 5400), ("0 s", 0)])
def test_every_so_often(every: str, seconds: float) -> None:
    settings = Checkpoint(every=every)
    assert settings.due(1, seconds)
    assert not settings.due(1, seconds - 0.1)
    assert not settings.due(1, seconds, took=seconds / 20 + 0.1)


def test_never() -> None:
    settings = Checkpoint(every="never")
    assert not settings.due(5, 1e9)
    assert not Keeper(settings, CODEC).due(5, surely=True)
    assert Keeper(Checkpoint(every=100), CODEC).due(5, surely=True)


@pytest.mark.parametrize("every", [0, -1, "", "5", "often", "5 days", True, 2.5])
def test_anything_else_is_refused(every: object) -> None:
    with pytest.raises(UserError, match="every ="):
        Checkpoint(every=every)  # type: ignore[arg-type]


def test_the_newest_are_kept(tmp_path: Path) -> None:
    keeper = Keeper(Checkpoint(every=1, keep=2), CODEC)
    for version in (1, 2, 11, 100):
        keeper.write(tmp_path, version, lambda version=version: {"v": version})
    assert [version_of(path) for path in checkpoints(tmp_path)] == [100, 11]
    assert newest(tmp_path, CODEC) == ({"v": 100}, [])
    assert newest(tmp_path, CODEC, before=100) == ({"v": 11}, [])
    assert newest(tmp_path, CODEC, before=11) == (None, [])


def test_a_damaged_one_gives_way_to_the_one_before_it(tmp_path: Path) -> None:
    keeper = Keeper(Checkpoint(every=1, keep=3), CODEC)
    for version in (1, 2, 3):
        keeper.write(tmp_path, version, lambda version=version: version)
    for path in checkpoints(tmp_path)[:2]:
        path.write_bytes(path.read_bytes()[:-1])
    value, notes = newest(tmp_path, CODEC)
    assert value == 1
    assert [note.partition(" is damaged")[0] for note in notes] == [path.name for path in checkpoints(tmp_path)[:2]]


def test_one_that_lies_in_the_wrong_place_gives_way_to_the_one_before_it(tmp_path: Path) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    for folder in (mine, other):
        folder.mkdir()
        for version in (1, 2):
            Keeper(Checkpoint(every=1), CODEC).write(folder, version, lambda: str(folder.name))  # noqa: B023
    shutil.copy(checkpoint(other, 2), checkpoint(mine, 4))
    checkpoint(mine, 2).rename(checkpoint(mine, 3))
    assert reached(mine) == 1
    assert newest(mine, CODEC) == (
        "mine",
        [
            "checkpoint-00000004.safetensors is one of the run other, so the one before it is used",
            "checkpoint-00000003.safetensors is the one of version 2, so the one before it is used",
        ],
    )


def test_one_that_does_not_fit_gives_way_with_its_reason(tmp_path: Path) -> None:
    for version in (1, 2):
        Keeper(Checkpoint(every=1), CODEC).write(tmp_path, version, lambda version=version: version)

    def look(value: Any, folder: Path) -> Any:
        if value == 2:
            raise Unfit("is of another day")
        return value

    said = "checkpoint-00000002.safetensors is of another day, so the one before it is used"
    assert newest(tmp_path, CODEC, look=look) == (1, [said])


@pytest.mark.parametrize("content", [b"", b"1234567", b"\xff" * 40, b"\x02" + bytes(7) + b"[]"])
def test_how_far_checkpoints_reach_is_not_asked_of_what_is_none(tmp_path: Path, content: bytes) -> None:
    assert reached(tmp_path) == -1
    checkpoint(tmp_path, 7).write_bytes(content)
    assert reached(tmp_path) == -1
