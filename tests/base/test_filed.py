"""Vectors that wait in files: the same numbers, of which little is resident while they are summed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from polyrhythm.base import sums
from polyrhythm.base.filed import Files, any_filed, let_go
from polyrhythm.base.sums import weighted_sum

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="what was read of a map is let go on Linux alone")


def drawn(count: int, size: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(count)
    return [torch.randn(size, generator=generator).to(dtype) for _ in range(count)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("compiled", [True, False])
def test_sums_of_vectors_in_files_have_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, compiled: bool
) -> None:
    monkeypatch.setattr(sums, "READ", 2**18)
    if not compiled:
        monkeypatch.setattr(sums, "_compiled_sum", lambda: None)
    for count, size in ((1, 2**19 + 5), (2, 2**19), (7, 700_001)):
        plain = drawn(count, size, dtype)
        waiting = [*map(Files(tmp_path).put, plain)]
        assert any_filed(waiting)
        assert not any_filed(plain)
        assert all(torch.equal(a, b) for a, b in zip(plain, waiting, strict=True))
        weights = [1 / (3 + i) for i in range(count)]
        found = weighted_sum(waiting, weights)
        assert found.dtype == weighted_sum(plain, weights).dtype
        assert torch.equal(found, weighted_sum(plain, weights))
        assert torch.equal(weighted_sum([waiting[0], *plain[1:]], weights), found)
    assert not [*tmp_path.iterdir()]  # they have no names


def resident() -> float:
    """MB of this process in memory."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) / 1024


def test_of_many_vectors_little_is_resident(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "READ", 2**22)
    size, kept = 2**20, Files(tmp_path)
    waiting = [kept.put(torch.full((size,), float(i))) for i in range(32)]  # of 4 MB each, 16 in a file
    weighted_sum(waiting[:2], [0.5, 0.5])
    Path("/proc/self/clear_refs").write_text("5")
    before = resident()
    total = weighted_sum(waiting, [1 / 32] * 32)
    assert resident() - before < 40  # of 128
    assert torch.equal(total, torch.full((size,), 15.5))
    let_go(waiting)
    assert torch.equal(waiting[7], torch.full((size,), 7.0))


def test_what_is_short_or_cannot_be_written_stays_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Files(tmp_path)
    short, table, long = torch.zeros(100), torch.zeros(1024, 1024), torch.zeros(2**20)
    assert kept.put(short) is short
    assert kept.put(table) is table
    assert Files(tmp_path / "missing").put(long) is long

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    assert kept.put(long) is long
