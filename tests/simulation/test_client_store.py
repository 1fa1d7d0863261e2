"""Vectors in files: what is written, what is written over, and what is removed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from polyrhythm.base.errors import RunFailed
from polyrhythm.core.client_state import ClientState, Memory
from polyrhythm.experiments.runstate import CODEC
from polyrhythm.simulation.client_store import vector_files as files
from polyrhythm.simulation.client_store.store import Spilling
from polyrhythm.simulation.client_store.vector_files import StoredTensor, VectorFiles


def in_files(folder: Path, vectors: int = 0, there: Callable[[], Iterable[int]] = lambda: ()) -> Spilling:
    """A store with room for so many vectors of 128 bytes in memory."""
    return Spilling(VectorFiles(lambda: folder, there), vectors * 128, least=1)


def test_a_checkpoint_names_what_lies_in_files(tmp_path: Path) -> None:
    kept = in_files(tmp_path / "there", vectors=3, there=lambda: (1, 2))
    for client in range(5):
        kept.put(client, Memory(accepted=ClientState(parts={"c": {"own": torch.full((32,), float(client))}})))
    _, inside = CODEC.encode(kept.snapshot(1))
    assert inside == []
    (file,) = (tmp_path / "there").iterdir()
    assert file.stat().st_size == 5 * 128
    kept.put(0, Memory(accepted=ClientState(parts={"c": {"own": torch.zeros(32)}})))
    kept.snapshot(2)
    assert file.stat().st_size == 6 * 128  # what did not change was not written again


def test_what_nobody_needs_is_written_over(tmp_path: Path) -> None:
    kept = in_files(tmp_path / "there")
    for number in range(20):
        kept.put(number % 3, Memory(accepted=ClientState(parts={"c": {"own": torch.full((32,), float(number))}})))
    (file,) = (tmp_path / "there").iterdir()
    assert file.stat().st_size <= 4 * 128
    assert kept.get(1).accepted.parts["c"]["own"].tolist() == [19.0] * 32


def test_files_that_only_old_checkpoints_need_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LARGEST", 256)
    there = {1}
    kept = in_files(tmp_path, there=lambda: there)
    for version in (1, 2, 3):
        for client in range(4):
            vector = torch.full((32,), float(10 * version + client))
            kept.put(client, Memory(accepted=ClientState(parts={"c": {"own": vector}})))
        kept.snapshot(version)
        there |= {version}
    assert len(list(tmp_path.iterdir())) == 6
    there -= {1, 2}
    kept.snapshot(4)
    assert len(list(tmp_path.iterdir())) <= 3  # those of version 3, and the one that is written to


def test_no_room_on_the_disk_ends_the_run_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: VectorFiles, tensor: Tensor) -> StoredTensor:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(VectorFiles, "_written", full)
    with pytest.raises(RunFailed, match=r"cannot be written.*No space left"):
        in_files(tmp_path).put(0, Memory(accepted=ClientState(optimiser={"m": torch.zeros(32)})))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)])
def test_every_kind_of_tensor_comes_back(tmp_path: Path, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    kept = VectorFiles(lambda: tmp_path / "there", lambda: ())
    tensor = torch.arange(6)[: torch.Size(shape).numel()].reshape(shape).to(dtype)
    place = kept.put(tensor)
    found = kept.read(place)
    assert found.dtype == dtype
    assert torch.equal(found, tensor)
    assert found.data_ptr() % 64 == 0 or not found.numel()
    assert kept.put(found) == place
