"""Lengths of updates: those of the compiled engine are torch's, to the last bit, and clips are exact enough."""

from __future__ import annotations

import math

import pytest
import torch

from polyrhythm.base.compiled import extension
from polyrhythm.methods.release import lengths
from polyrhythm.methods.release.lengths import compiled_lengths, length_of, lengths_of

SIZES = (1, 7, 8, 1023, 1024, 1025, 4096, 4097, 55_210)


def vectors(dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    draws = torch.Generator().manual_seed(0)
    return [torch.randn(size, generator=draws).mul_(10.0 ** (size % 5 - 2)).to(dtype) for size in SIZES]


@pytest.mark.skipif(not hasattr(extension(), "lengths"), reason="needs the compiled engine as it is now")
def test_compiled_lengths_are_those_of_torch_to_the_last_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert compiled_lengths() is not None
    found = lengths_of(vectors())
    monkeypatch.setattr(lengths, "compiled_lengths", lambda: None)
    assert found == lengths_of(vectors())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_length_is_exact_to_a_millionth(dtype: torch.dtype) -> None:
    for vector in vectors(dtype):
        assert length_of(vector) == pytest.approx(float(vector.double().norm()), rel=1e-6)
    assert lengths_of([]) == []
    assert length_of(torch.zeros(2000)) == 0


def test_what_has_no_length_in_single_precision() -> None:
    """Squares beyond its range, and entries that are no numbers."""
    assert length_of(torch.full((1500,), 1e30)) == pytest.approx(1e30 * math.sqrt(1500))
    assert math.isnan(length_of(torch.tensor([1.0, math.nan])))
    assert length_of(torch.tensor([1.0, math.inf])) == math.inf
