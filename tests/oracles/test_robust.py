"""Other middles than the mean: against NumPy, SciPy-free optimality, and numbers worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from polyrhythm.methods.release import robust
from polyrhythm.methods.release.robust import ClipUpdates, GeometricMedian, Median, TrimmedMean

EQUAL = [0.2] * 5
ONES = [1.0] * 5


def updates(seed: int, count: int = 5, size: int = 37) -> list[torch.Tensor]:
    rng = np.random.default_rng(seed)
    return [torch.tensor(row, dtype=torch.float64) for row in rng.normal(size=(count, size))]


def test_by_hand() -> None:
    rows = [torch.tensor([1.0, -5.0]), torch.tensor([2.0, 0.0]), torch.tensor([9.0, 1.0]), torch.tensor([3.0, 2.0])]
    alike, ones = [0.25] * 4, [1.0] * 4
    assert Median().centre(rows, alike, ones).tolist() == [2.5, 0.5]
    assert TrimmedMean(share=0.25).centre(rows, alike, ones).tolist() == [2.5, 0.5]
    assert TrimmedMean(share=0.24).centre(rows, alike, ones).tolist() == [3.75, -0.5]
    # Of the two in the middle of the first weight, 2 and 3, the second has three times the share.
    assert Median().centre(rows, [0.3, 0.1, 0.3, 0.3], ones).tolist()[0] == pytest.approx(2.75)
    # Scaled to nothing, 9 is the smallest.
    assert Median().centre(rows, alike, [1, 1, 0, 1]).tolist()[0] == 1.5


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8])
def test_with_equal_shares_the_median_is_numpys(count: int) -> None:
    rows = updates(count, count)
    found = Median().centre(rows, [1 / count] * count, [1.0] * count)
    np.testing.assert_allclose(found.numpy(), np.median(torch.stack(rows).numpy(), axis=0), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.2, 0.39, 0.4, 0.49])
def test_with_equal_shares_the_trimmed_mean_is_that_of_what_is_left(share: float) -> None:
    rows = torch.stack(updates(1)).numpy()
    drop = int(share * 5 + 1e-9)
    kept = np.sort(rows, axis=0)[drop : 5 - drop]
    found = TrimmedMean(share=share).centre([torch.tensor(r) for r in rows], EQUAL, ONES)
    np.testing.assert_allclose(found.numpy(), kept.mean(axis=0), rtol=1e-12, atol=1e-12)


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = updates(2)
    whole = Median().centre(rows, EQUAL, ONES)
    monkeypatch.setattr(robust, "_BLOCK", 17)
    assert torch.equal(Median().centre(rows, EQUAL, ONES), whole)


def test_where_nobody_left_has_a_share_they_count_alike() -> None:
    rows = [torch.tensor([float(x)]) for x in (1, 2, 3, 4)]
    assert Median().centre(rows, [0.5, 0.0, 0.0, 0.5], [1.0] * 4).tolist() == [2.5]


def test_half_precision_is_sorted_and_summed_in_single() -> None:
    rows = [torch.tensor([x], dtype=torch.float16) for x in (1.0, 2.0, 3.0)]
    found = Median().centre(rows, [1 / 3] * 3, [1.0] * 3)
    assert (found.dtype, found.tolist()) == (torch.float32, [2.0])


@pytest.mark.parametrize("shares", [EQUAL, [0.1, 0.1, 0.3, 0.3, 0.2]])
def test_the_geometric_median_is_where_unit_vectors_cancel(shares: list[float]) -> None:
    """The gradient of the sum of distances is zero there, and the sum no smaller anywhere near."""
    rows = updates(3)
    middle = GeometricMedian(iterations=400).centre(rows, shares, ONES)
    pull = sum(s * (u - middle) / torch.linalg.vector_norm(u - middle) for s, u in zip(shares, rows, strict=True))
    assert float(torch.linalg.vector_norm(torch.as_tensor(pull))) < 1e-6

    def total(at: torch.Tensor) -> float:
        return math.fsum(s * float(torch.linalg.vector_norm(u - at)) for s, u in zip(shares, rows, strict=True))

    assert all(total(middle) <= total(middle + 0.01 * torch.randn(37, generator=_generator(i))) for i in range(20))


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def newton(rows: np.ndarray, shares: Sequence[float], start: np.ndarray) -> np.ndarray:
    """Where the sum of distances is least, by Newton's method: another way, and another beginning."""
    at = start.copy()
    for _ in range(60):
        apart = at - rows
        away = np.linalg.norm(apart, axis=1)
        unit = apart / away[:, None]
        gradient = np.asarray(shares) @ unit
        bends = np.asarray(shares) / away
        curvature = bends.sum() * np.eye(len(at)) - (unit * bends[:, None]).T @ unit
        at -= np.linalg.solve(curvature, gradient)
    return at


@pytest.mark.parametrize("long", [1.0, 1e3, 1e12, 1e30])
@pytest.mark.parametrize("outliers", [1, 4, 9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_geometric_median_of_any_outliers_is_newtons(long: float, outliers: int, dtype: torch.dtype) -> None:
    rng = np.random.default_rng(outliers)
    rows = rng.normal(size=(20, 5)) + 0.5
    rows[:outliers] = long * (rng.normal(size=(outliers, 5)) + 1)
    shares = rng.dirichlet(np.full(20, 50.0)).tolist()
    given = [torch.tensor(row, dtype=dtype) for row in rows]
    found = GeometricMedian().centre(given, shares, [1.0] * 20)
    assert found is not None
    assert found.dtype == dtype
    exact = newton(rows, shares, rows[outliers:].mean(axis=0))
    np.testing.assert_allclose(found.numpy(), exact, rtol=1e-5, atol=2e-5)
    assert np.abs(found.numpy()).max() < 4


def test_the_geometric_median_by_hand() -> None:
    """It begins at a corner of a triangle with a right angle there, and must not stay: Fermat's point is inside."""
    rows = [torch.tensor(row) for row in ([0.0, 0.0], [2.0, 0.0], [0.0, 2.0])]
    assert Median().centre(rows, [1 / 3] * 3, [1.0] * 3).tolist() == [0.0, 0.0]
    found = GeometricMedian().centre(rows, [1 / 3] * 3, [1.0] * 3)
    assert found is not None
    assert found.tolist() == pytest.approx([1 - math.sqrt(1 / 3)] * 2, abs=1e-5)
    # On a line it is the median, however far away the others are.
    line = [torch.tensor([x]) for x in (0.0, 1.0, 3e38)]
    assert GeometricMedian().centre(line, [1 / 3] * 3, [1.0] * 3) == pytest.approx(1.0, abs=1e-6)  # type: ignore[operator]


def test_alike_updates_are_their_own_middle() -> None:
    row = torch.tensor([1e3, -2.0, 1e-3])
    found = GeometricMedian().centre([row] * 4, [0.25] * 4, [1.0] * 4)
    assert found is not None
    assert torch.equal(found, row)
    assert GeometricMedian().centre([row] * 4, [0.0] * 4, [1.0] * 4) is None


def test_limits_by_hand() -> None:
    clip = ClipUpdates(times=2.0)
    state: dict[str, Any] = {"norms": (), "clipped": 0}
    assert clip.limit(state) == math.inf
    assert clip.limit(state, [1.0, 0.0, 3.0]) == 4.0  # an update of nothing is not counted
    assert clip.limit({"norms": (1.0, 5.0, 2.0), "clipped": 0}, [100.0]) == 4.0
    assert ClipUpdates(norm=0.5).limit({"norms": (9.0,), "clipped": 0}) == 0.5


def test_norms_are_taken_in_double_precision() -> None:
    assert robust._norm(torch.full((4,), 1e30)) == pytest.approx(2e30)
