"""Holding samples out: for validation, for a client's own test, for a source that comes without a test set."""

from __future__ import annotations

import numpy as np

from polyrhythm.base.errors import UserError
from polyrhythm.base.settings import Share, fits


def check_share(name: str, share: float) -> None:
    """Refuses shares that would leave nothing to train on."""
    if not fits(Share, share):
        raise UserError(
            f"{name} = {share!r}",
            expected="0 <= share < 1",
            why="it is the share of samples that are held out of training",
            fix=f"{name}=0.1 holds out a tenth, {name}=0 nothing",
        )


def held_out(
    groups: np.ndarray, labels: np.ndarray | None, share: float, random: np.random.Generator, *, ordered: bool = False
) -> np.ndarray:
    """Marks `share` of each group's samples, spread over its classes; each group keeps at least one sample.

    Args:
        groups: [n] int64, e.g. the client of each sample.
        labels: [n] int64 to spread over, or None.
        share: 0 <= share < 1; each group gives round(share * size), up or down at random in between.
        random: draws which samples.
        ordered: take the end of each group in the samples' own order, for windows that overlap.

    Returns:
        [n] bool, True where held out.
    """
    if share == 0.0:
        return np.zeros(len(groups), dtype=bool)
    keys: list[np.ndarray] = [np.arange(len(groups)) if ordered else random.random(len(groups))]
    if labels is not None and not ordered:
        keys.append(labels)
    order = np.lexsort([*keys, groups])  # by group, then class, then at random
    values, sizes = np.unique(groups, return_counts=True)
    starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
    rank = np.arange(len(groups)) - starts
    offset = np.repeat(random.random(len(values)) if len(values) > 1 else np.full(1, 0.5), sizes)
    size = np.repeat(sizes, sizes)
    taken = np.floor(size * share + offset)
    if ordered:
        marked = rank >= size - np.minimum(taken, size - 1)
    else:
        # Sample r is taken where the running share passes a whole number: evenly spread over the sorted classes.
        marked = np.floor((rank + 1) * share + offset) > np.floor(rank * share + offset)
        marked &= (taken < size) | (rank < size - 1)
    out = np.zeros(len(groups), dtype=bool)
    out[order] = marked
    return out
