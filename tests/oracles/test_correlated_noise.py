"""Noise that is correlated over versions: by hand, against dense matrices, and what one client can move at most."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from polyrhythm.methods.privacy.correlated import after, coefficients, length


def correlated(draws: Tensor, bands: int) -> Tensor:
    """y [T, P], of independent draws z [T, P], one version after the other."""
    versions, earlier, found = len(draws), list[Tensor](), list[Tensor]()
    for version in range(versions):
        fresh = after(draws[version].clone(), earlier, bands)
        earlier = [fresh, *earlier][: bands - 1]
        found.append(fresh * length(bands, version, versions))
    return torch.stack(found)


def dense(versions: int, bands: int) -> np.ndarray:
    """C [T, T], by its definition."""
    shares = np.array([math.comb(2 * k, k) / 4**k for k in range(bands)])
    matrix = np.zeros((versions, versions))
    for column in range(versions):
        rows = range(column, min(column + bands, versions))
        matrix[list(rows), column] = shares[: len(rows)]
    return matrix / np.linalg.norm(matrix, axis=0)


def test_three_versions_in_two_bands_by_hand() -> None:
    draws = torch.tensor([[1.0], [0.0], [0.0]], dtype=torch.float64)
    assert correlated(draws, 2).flatten().tolist() == pytest.approx([1.11803, -0.55902, 0.25], abs=5e-6)
    assert coefficients(4) == (1.0, 0.5, 0.375, 0.3125)


@pytest.mark.parametrize(("versions", "bands"), [(3, 2), (7, 2), (9, 3), (20, 1), (40, 13), (12, 30), (100, 20)])
def test_it_is_a_dense_solve(versions: int, bands: int) -> None:
    draws = np.random.default_rng(versions).standard_normal((versions, 5))
    solved = np.linalg.solve(dense(versions, bands), draws)
    found = correlated(torch.from_numpy(draws), bands).numpy()
    assert np.abs(found - solved).max() <= 1e-14 * np.abs(solved).max()


@pytest.mark.parametrize(("versions", "bands"), [(7, 2), (9, 3), (8, 4)])
def test_what_a_client_moves_at_most_by_trying_every_schedule(versions: int, bands: int) -> None:
    """Visits at least b apart, each of one clip in any of two directions: sqrt(k), of k = ceil(T / b) visits."""
    matrix, found, nearer = dense(versions, bands), 0.0, 0.0
    for visits in itertools.product((-1, 0, 1), repeat=versions):
        places = [t for t in range(versions) if visits[t]]
        gaps = [b - a for a, b in itertools.pairwise(places)]
        moved = float(np.linalg.norm(matrix @ np.array(visits)))
        if all(gap >= bands for gap in gaps):
            found = max(found, moved)
        if all(gap >= bands - 1 for gap in gaps):
            nearer = max(nearer, moved)
    assert found == pytest.approx(math.sqrt(-(-versions // bands)))
    assert nearer > 1.2 * found


@pytest.mark.parametrize(("versions", "bands", "here", "independent"), [(1000, 100, 12.1, 70.7), (200, 20, 10.3, 31.7)])
def test_less_of_it_is_left_in_sums(versions: int, bands: int, here: float, independent: float) -> None:
    """The root mean square over versions of what is in the sum up to each, in clips, at noise sqrt(k) and k."""
    inverse = np.linalg.inv(dense(versions, bands))
    visits = -(-versions // bands)
    sums = np.tril(np.ones((versions, versions)))
    rms = math.sqrt(float(np.square(sums @ inverse).sum()) / versions) * math.sqrt(visits)
    assert rms == pytest.approx(here, abs=0.05)
    alone = math.sqrt(float(np.square(sums).sum()) / versions) * math.sqrt(visits)
    assert alone == pytest.approx(independent, abs=0.1)
