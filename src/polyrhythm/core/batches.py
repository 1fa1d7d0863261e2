"""Batches of a pass over a client's samples."""

from __future__ import annotations

from itertools import accumulate


def batch_sizes(num_samples: int, batch: int, drop_last: bool, fold_single: bool) -> tuple[int, ...]:
    """Samples in the batches of a pass over `held` samples, `batch` in each.

    The last one is smaller, or left out with `drop_last`, but never the only one: a client with less than a batch
    trains on what it has. With `fold_single` (BatchNorm cannot train on one sample) a last batch of one joins the batch
    before it; a client that holds a single sample then has no batch at all.

    >>> batch_sizes(5, 2, False, False)
    (2, 2, 1)
    >>> batch_sizes(5, 2, False, True)
    (2, 3)
    """
    full, rest = divmod(num_samples, batch)
    sizes = (batch,) * full
    if rest and not (drop_last and full):
        sizes = (*sizes, rest)
    if fold_single and sizes and sizes[-1] == 1:
        sizes = (*sizes[:-2], sizes[-2] + 1) if len(sizes) > 1 else ()
    return sizes


def cut(num_samples: int, batch: int, drop_last: bool, fold_single: bool) -> list[slice]:
    """The same as slices of the pass.

    >>> cut(5, 2, False, True)
    [slice(0, 2, None), slice(2, 5, None)]
    """
    sizes = batch_sizes(num_samples, batch, drop_last, fold_single)
    return [slice(end - size, end) for size, end in zip(sizes, accumulate(sizes), strict=True)]
