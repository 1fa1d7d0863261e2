"""A smallest size for random parts: bounded redraws, a clear refusal, or a repair that is reported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import numpy as np
from annotated_types import Ge

from polyrhythm.base.errors import UserError
from polyrhythm.base.streams import stream
from polyrhythm.data.partitions.base import Deal, deal_counts

Minimum = Annotated[int, Ge(0)]
DEFAULT = 10


def until_large_enough(
    draw: Callable[[np.random.Generator], np.ndarray],
    codes: np.ndarray,
    *,
    label: str,
    what: str,
    parts: int,
    seed: int,
    min_size: int | None,
    tries: int,
    repair: bool,
) -> Deal:
    """Draws whole partitions until every part holds at least `min_size` samples.

    Args:
        draw: one table of counts [C, parts] for one generator.
        codes: [n] class of each sample.
        label: name of the partition, which names its streams.
        what: the partition with its setting, for messages.
        parts: number of parts.
        seed: the experiment's seed.
        min_size: None means 10 (as NIID-Bench, FedCL and ALT have it), but no more than a tenth of the mean size.
        tries: most draws.
        repair: after the last draw, move samples from the largest parts to those that are short, and say so.

    Raises:
        UserError: impossible (at once), or not reached (with the best minimum that was).
    """
    samples = len(codes)
    wanted = min(DEFAULT, samples // (10 * parts)) if min_size is None else min_size
    if wanted * parts > samples:
        raise UserError(
            f"{what}: {parts:,} parts of at least {wanted:,} samples need {wanted * parts:,}, there are {samples:,}",
            expected=f"at most {samples // max(wanted, 1):,} parts, or min_size of at most {samples // parts:,}",
            why="samples are handed out once",
            fix=f"min_size={samples // parts // 10} or fewer clients",
        )
    best, counts, kept = -1, np.zeros((0, parts), dtype=np.int64), stream(seed, "partition", label, 0)
    for attempt in range(tries):
        random = stream(seed, "partition", label, attempt)
        drawn = draw(random)
        smallest = int(drawn.sum(axis=0).min())
        if smallest > best:
            best, counts, kept = smallest, drawn, random
        if best >= wanted:
            break
    owner = deal_counts(codes, counts, kept)
    if best >= wanted:
        return Deal(owner=owner, parts=parts)
    if not repair:
        raise UserError(
            f"{what}: in {tries:,} draws the smallest of {parts:,} parts held {best:,} samples at most",
            expected=f"at least {wanted:,} in every part",
            why="redrawing without end would hang; this combination rarely or never gives such sizes",
            fix=f"min_size={best}, a larger alpha or beta, fewer clients, or repair=True "
            "(moves samples from the largest parts and says how many)",
        )
    owner, moved, filled = _repaired(owner, parts, wanted, kept)
    note = f"repaired: {moved:,} samples moved to {filled:,} parts that held fewer than {wanted:,}"
    return Deal(owner=owner, parts=parts, notes=(note,))


def _repaired(owner: np.ndarray, parts: int, wanted: int, random: np.random.Generator) -> tuple[np.ndarray, int, int]:
    """Cuts the largest parts down to one level, just low enough to fill the short ones up to `wanted`."""
    sizes = np.bincount(owner, minlength=parts)
    short = np.maximum(wanted - sizes, 0)
    needed = int(short.sum())
    low, high = wanted, int(sizes.max())
    while low < high:  # the highest level that frees enough samples
        level = (low + high + 1) // 2
        low, high = (level, high) if np.maximum(sizes - level, 0).sum() >= needed else (low, level - 1)
    shuffled = random.permutation(len(owner))
    grouped = shuffled[np.argsort(owner[shuffled], kind="stable")]
    starts = np.cumsum(sizes) - sizes
    rank = np.arange(len(owner)) - np.repeat(starts, sizes)
    free = grouped[rank >= low]  # random samples above the level
    moved = random.permutation(free)[:needed]
    repaired = owner.copy()
    repaired[moved] = np.repeat(np.arange(parts), short)
    return repaired, needed, int(np.count_nonzero(short))
