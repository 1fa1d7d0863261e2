"""When checkpoints are written, how many are kept, and which one is taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from polyrhythm.errors import UserError
from polyrhythm.runs.checkpoints import Checkpoint, checkpoints, version_of
from polyrhythm.runs.encoding import Codec
from polyrhythm.runs.keeping import Keeper, newest

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
