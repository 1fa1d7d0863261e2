"""Compression against its equations in numpy, visit by visit, and against numbers worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from polyrhythm.base.flat_model import FlatModel
from polyrhythm.base.vectors import Layout, Spans
from polyrhythm.methods.compression import Int8, Lossy, TopK


def flat(layout: Layout, numbers: list[float]) -> torch.Tensor:
    """A vector [P] from the entries of all parameters, one after the other."""
    vector, given = layout.zeros(), torch.tensor(numbers)
    for segment in layout.segments:
        part, given = given[: segment.size], given[segment.size :]
        vector[segment.offset : segment.offset + segment.size] = part
    return vector


def entries(layout: Layout, vector: torch.Tensor) -> list[float]:
    """The other way round."""
    return [x for s in layout.segments for x in vector[s.offset : s.offset + s.size].tolist()]


class Line(nn.Module):
    """Parameters of 4 and of 2 entries."""

    def __init__(self) -> None:
        super().__init__()
        self.long, self.short = nn.Parameter(torch.zeros(4)), nn.Parameter(torch.zeros(2))


SIX = FlatModel(Line()).layout


def test_the_two_largest_of_six_by_hand() -> None:
    part = TopK(share=0.3)  # ceil(1.8)
    state, packed = part.pack(SIX, {}, flat(SIX, [1, -4, 2, 0, 3, -3]))
    assert entries(SIX, packed.update) == [0, -4, 0, 0, 3, 0]  # of 3 and -3 the first
    assert packed.size == 2 * (4 + 4)
    assert entries(SIX, state["left"]) == [1, 0, 2, 0, 0, -3]
    state, packed = part.pack(SIX, state, flat(SIX, [1, 1, 1, 1, 1, 1]))  # 2, 1, 3, 1, 1, -2
    assert entries(SIX, packed.update) == [2, 0, 3, 0, 0, 0]
    assert entries(SIX, state["left"]) == [0, 1, 0, 1, 1, -2]


def test_what_is_idle_waits_by_hand() -> None:
    part, short = TopK(share=0.3), ((SIX.segments[1].offset, 2),)
    state, packed = part.pack(SIX, {}, flat(SIX, [1, -4, 2, 0, 3, -3]))
    state, packed = part.pack(SIX, state, flat(SIX, [1, 1, 1, 1, 0, 0]), short)  # 2, 1, 3, 1; -3 waits
    assert entries(SIX, packed.update) == [2, 0, 3, 0, 0, 0]
    assert entries(SIX, state["left"]) == [0, 1, 0, 1, 0, -3]


def test_steps_of_one_in_127_by_hand() -> None:
    # Steps of 2 and of 1/2: 127 steps, 1.5 to 2, -0.5 to 0, 0; -127 steps, 2.5 to 2.
    state, packed = Int8().pack(SIX, {}, flat(SIX, [254, 3, -1, 0, -63.5, 1.25]))
    assert entries(SIX, packed.update) == [254, 4, 0, 0, -63.5, 1]
    assert entries(SIX, state["left"]) == [0, -1, -1, 0, 0, 0.25]
    assert packed.size == 6 + 2 * 4


def _top(v: np.ndarray, share: float, idle: np.ndarray) -> np.ndarray:
    order = sorted((i for i in range(v.size) if not idle[i]), key=lambda i: (-abs(v[i]), i))
    kept = order[: math.ceil(share * v.size)]
    sent = np.zeros_like(v)
    sent[kept] = v[kept]
    return sent


def _rounded(v: np.ndarray, sizes: list[int], idle: np.ndarray) -> np.ndarray:
    sent, start = np.zeros_like(v), 0
    for size in sizes:
        part, end = v[start : start + size], start + size
        step = np.float64(np.float32(np.abs(part).max() / 127))
        sent[start:end] = np.rint(part / step) * step if step else 0.0
        start = end
    return np.where(idle, 0.0, sent)


@pytest.mark.parametrize("feedback", [True, False])
@pytest.mark.parametrize(
    "part", [TopK(share=0.01), TopK(share=0.3), TopK(share=1.0), Int8()], ids=["one", "some", "all", "int8"]
)
def test_twelve_visits_in_numpy(part: Lossy, feedback: bool) -> None:
    module = nn.Sequential(nn.Linear(5, 3), nn.Linear(3, 2)).double()
    layout, sizes = FlatModel(module).layout, [15, 3, 6, 2]
    kind: Any = type(part)
    settings = {"share": part.share} if isinstance(part, TopK) else {}
    mechanism = kind(**settings, error_feedback=feedback)
    generator = np.random.default_rng(3)
    state: Any = {}
    left = np.zeros(26)
    for visit in range(12):
        update = generator.normal(size=26)
        idle, spans = np.zeros(26, dtype=bool), Spans()
        if visit % 3 == 2:  # the second layer's weight is not touched
            idle[18:24] = True
            spans = ((layout.segments[2].offset, layout.segments[2].size),)
            update[idle] = 0.0
        wanted = update + left if feedback else update
        sent = _top(wanted, part.share, idle) if isinstance(part, TopK) else _rounded(wanted, sizes, idle)
        left = wanted - sent
        vector = layout.zeros()
        for segment, begin in zip(layout.segments, (0, 15, 18, 24), strict=True):
            own = torch.from_numpy(update[begin : begin + segment.size])
            vector[segment.offset : segment.offset + segment.size] = own
        state, packed = mechanism.pack(layout, state, vector, spans)
        np.testing.assert_allclose(entries(layout, packed.update), sent, rtol=0, atol=1e-12)
        memory = entries(layout, state["left"]) if "left" in state else [0.0] * 26
        np.testing.assert_allclose(memory, left if feedback else 0.0, rtol=0, atol=1e-12)
