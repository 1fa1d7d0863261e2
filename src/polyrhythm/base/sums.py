"""Sums and differences of vectors, to the same bits whoever adds which block."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from torch import Tensor

from polyrhythm.base.compiled import extension
from polyrhythm.base.errors import UserError
from polyrhythm.base.filed import READ, any_filed, part
from polyrhythm.base.vectors import Buffers, Layout, Spans, all_finite

_AT_ONCE = 2**16
"""Elements that are summed in one operation."""


def weighted_sum(vectors: Iterable[Tensor], weights: Sequence[float]) -> Tensor:
    """Sum of weights[i] * vectors[i] over a fixed tree: the same bits whoever adds which block, in memory O(log n).

    The tree is left-complete over positions: every aligned block of 2**k neighbours is summed on its own. Half
    precision is summed in float32. The inputs are not changed. Where the native engine was compiled it sums float32
    vectors, to the same bits, and reads each of them once; but not short ones, which take longer to hand over. Of
    vectors that wait in files, a part of each is resident at a time.

    Args:
        vectors: n tensors of one shape and dtype; a sequence, or made one by one as they are asked for.
        weights: n numbers.

    Returns:
        A new tensor, float32 for half-precision inputs, otherwise of the inputs' dtype.
    """
    if isinstance(vectors, Sequence) and any_filed(vectors):
        return _sum_of_filed(vectors, weights)
    if (compiled := _compiled_sum()) and isinstance(vectors, Sequence) and 0 < len(vectors) == len(weights):
        long = len(vectors) * vectors[0].numel() > _AT_ONCE
        if long and all(map(_plain, vectors)):
            compiled(total := torch.empty_like(vectors[0]), vectors, weights)
            return total
    stack: list[tuple[int, Tensor]] = []  # (leaves in the block, its sum), blocks growing towards the bottom
    for leaves, total in _blocks(vectors, weights):
        while stack and stack[-1][0] == leaves:
            total = stack.pop()[1].add_(total)
            leaves *= 2
        stack.append((leaves, total))
    if not stack:
        raise ValueError("weighted_sum of nothing")
    _, total = stack.pop()
    while stack:
        total = stack.pop()[1].add_(total)
    return total


def _sum_of_filed(vectors: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """The same sum part by part: what one coordinate comes to depends on no other."""
    step = max(_AT_ONCE, READ // (len(vectors) * vectors[0].element_size()))
    starts = range(0, len(vectors[0]), step)
    return torch.cat([weighted_sum([part(vector, first, step) for vector in vectors], weights) for first in starts])


def _blocks(vectors: Iterable[Tensor], weights: Sequence[float]) -> Iterator[tuple[int, Tensor]]:
    """Blocks of the tree from left to right, (leaves, sum): single vectors, or as many short ones as go in one call.

    The sums are the same; for short vectors a call takes longer than its arithmetic.
    """
    pairs = zip(vectors, weights, strict=True)
    for first, weight in pairs:
        half = first.dtype in (torch.float16, torch.bfloat16)
        at_once = 1 << max(1, _AT_ONCE // max(1, first.numel())).bit_length() - 1  # so that blocks are aligned
        if at_once == 1 or not first.is_floating_point():
            yield 1, (first.float() if half else first) * weight
            continue
        many, shares = zip((first, weight), *itertools.islice(pairs, at_once - 1), strict=True)
        block = torch.stack(many)  # [leaves, ...], then level by level half as many
        block = block.float() if half else block
        block = block * torch.tensor(shares, dtype=block.dtype).view(-1, *[1] * first.dim())
        leaves, complete = 1, []
        while count := block.shape[0]:
            if count % 2:
                complete.append((leaves, block[-1]))
            block, leaves = block[0 : count - 1 : 2] + block[1::2], 2 * leaves
        yield from reversed(complete)


def _plain(vector: Tensor) -> bool:
    return vector.dtype == torch.float32 and vector.dim() == 1 and vector.is_contiguous() and vector.is_cpu


def _compiled_sum() -> Callable[[Tensor, Sequence[Tensor], Sequence[float]], None] | None:
    return getattr(extension(), "weighted_sum", None)


def difference(after: Tensor, before: Tensor) -> tuple[Tensor, float | None]:
    """after - before, and its Euclidean length where that costs nothing more, else None.

    Where the native engine was compiled, a long float32 vector is written and measured in one pass over memory, to the
    same bits as otherwise; a short one would take longer to hand over.

    Args:
        after, before: of one shape and dtype; not changed.
    """
    if after.numel() > _AT_ONCE and _plain(after) and _plain(before) and (compiled := compiled_difference()):
        update = torch.empty_like(after)
        return update, compiled(update, after, before)
    return after - before, None


@functools.cache
def compiled_difference() -> Callable[[Tensor, Tensor, Tensor], float] | None:
    """The compiled one, if it adds up as this version of torch does on this processor."""
    compiled: Callable[[Tensor, Tensor, Tensor], float] | None = getattr(extension(), "difference", None)
    if compiled is None:
        return None
    several = torch.sin(torch.arange(1003, dtype=torch.float32)), torch.zeros(1003)
    length = compiled(torch.empty(1003), *several)
    return compiled if length == torch.linalg.vector_norm(several[0]).item() else None


def mean_of_moved(updates: Sequence[Tensor], idle: Sequence[Spans]) -> Tensor:
    """The plain mean of updates [P], each parameter over those that moved it; zero where none did.

    Args:
        updates: at least one.
        idle: of each update, the parts that it never stepped.
    """
    mean = weighted_sum(updates, [1 / len(updates)] * len(updates))
    for span in sorted({span for spans in idle for span in spans}):
        moved = [u.narrow(0, *span) for u, spans in zip(updates, idle, strict=True) if span not in spans]
        if moved:
            mean.narrow(0, *span).copy_(weighted_sum(moved, [1 / len(moved)] * len(moved)))
    return mean


def combine_buffers(layout: Layout, many: Sequence[Buffers], shares: Sequence[float]) -> Buffers:
    """One set of buffers from several: floats averaged by share, integer counters by maximum, booleans must agree.

    Where all floats are the same NaN or infinity, as in a mask of attention, it stays.

    Args:
        layout: names the buffers.
        many: the clients' buffers, in layout order; at least one.
        shares: one per client, summing to 1.

    Raises:
        UserError: clients disagree on a boolean buffer.
    """
    combined = []
    for slot, tensors in zip(layout.buffers, zip(*many, strict=True), strict=True):
        if slot.dtype.is_floating_point or slot.dtype.is_complex:
            combined.append(_mean(tensors, shares).to(slot.dtype))
        elif slot.dtype == torch.bool:
            if any(not torch.equal(tensors[0], t) for t in tensors[1:]):
                raise UserError(
                    f"clients disagree on the boolean buffer {slot.name!r}",
                    expected="the same mask from every client",
                    why="there is no mean of masks",
                    fix="keep the mask fixed during training, or register it with persistent=False, to stay local",
                )
            combined.append(tensors[0].clone())
        else:
            largest = tensors[0].clone()
            for tensor in tensors[1:]:
                torch.maximum(largest, tensor, out=largest)
            combined.append(largest)
    return tuple(combined)


def _mean(tensors: Sequence[Tensor], shares: Sequence[float]) -> Tensor:
    """The weighted sum; an infinity times a share of zero would be none."""
    mean, first = weighted_sum(tensors, shares), tensors[0]
    if all_finite(first):
        return mean
    kept = ~torch.isfinite(first)
    for other in tensors[1:]:
        kept &= (other == first) | (other.isnan() & first.isnan())
    return torch.where(kept, first.to(mean.dtype), mean)
