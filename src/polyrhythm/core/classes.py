"""Which classes a client has samples of, and the output rows of those that it lacks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import final

import numpy as np
import torch
from torch import Tensor

from polyrhythm.base.frozen import cached
from polyrhythm.base.messages import Report
from polyrhythm.base.portions import Portion
from polyrhythm.base.vectors import Layout, Segment
from polyrhythm.core.protocols import ClientData

_AT_ONCE = 1024  # samples that are read


def present_in(data: ClientData, layout: Layout) -> Tensor:
    """Whether a client has samples of each class, bool [C], of as many as a model of this layout has outputs.

    All of them where samples are not read, as in a rehearsal.
    """
    count = next(s.shape[0] for s in layout.segments if s.name in layout.head)
    found = torch.zeros(count, dtype=torch.bool)
    for targets in _targets(data):
        if targets.dim() != 1:
            return torch.ones(count, dtype=torch.bool)
        found[targets] = True
    return found


def class_means(outputs: Tensor, features: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The mean representation of each class that some samples are of, [c, F], and whether they are of each, bool [C].

    Args:
        outputs: of the samples, [n, C].
        features: their representations, [n, F].
        targets: their classes, int64 [n].
    """
    counts = torch.bincount(targets, minlength=outputs.shape[1])
    sums = torch.zeros(len(counts), features.shape[1], dtype=torch.float64).index_add_(0, targets, features.double())
    there = counts > 0
    return (sums[there] / counts[there, None]).to(features.dtype), there


def _targets(data: ClientData) -> Iterator[Tensor]:
    arrays = getattr(data, "arrays", None)
    if arrays is not None and (known := arrays()) is not None:
        _, targets, held = known
        yield targets if held is None else targets[held]
        return
    for first in range(0, len(data), _AT_ONCE):
        yield data.batch(np.arange(first, min(first + _AT_ONCE, len(data))), None)[1]


def rows_of(lacking: Tensor, layout: Layout) -> tuple[Segment, ...]:
    """The rows of the output layer for some classes, int64, neighbours together."""
    found = list[Segment]()
    for segment in (s for s in layout.segments if s.name in layout.head):
        width = segment.size // segment.shape[0]
        for first, last in _runs(lacking.tolist()):
            shape = (last - first + 1, *segment.shape[1:])
            found.append(Segment(segment.name, shape, segment.offset + first * width, shape[0] * width, segment.dtype))
    return tuple(found)


def _runs(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """Runs of neighbours among numbers in order, each by its first and its last."""
    for _, run in itertools.groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        yield members[0], members[-1]


@final
class Without(Portion):
    """A portion, or all of a model, of which the output rows of some classes count as not held.

    Args:
        inner: the portion; None for all of the model.
        whole: the model's layout.
        lacking: the classes, int64.
    """

    def __init__(self, inner: Portion | None, whole: Layout, lacking: Tensor) -> None:
        self._inner, self._layout, self._lacking = inner, whole, lacking

    @property
    def whole(self) -> Layout:
        return self._layout

    @cached
    def mask(self) -> Tensor:
        held = torch.ones(self._layout.size, dtype=torch.bool) if self._inner is None else self._inner.mask.clone()
        for row in rows_of(self._lacking, self._layout):
            held.narrow(0, row.offset, row.size).fill_(False)
        return held

    @property
    def buffer_places(self) -> tuple[Tensor | None, ...]:
        return super().buffer_places if self._inner is None else self._inner.buffer_places


def without_lacking(portion: Portion | None, layout: Layout, report: Report, key: str) -> Portion | None:
    """What counts as held in a report whose client told which classes it has, under a part's key."""
    present = report.extras.get(key, {}).get("classes")
    if present is None or bool(present.all()):
        return portion
    return Without(portion, layout, (~present).nonzero()[:, 0])
