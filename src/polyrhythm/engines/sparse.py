"""An engine of single weights of a model: in its passes all others are zeros."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, final

import numpy as np
import torch
from torch import Tensor

from polyrhythm.base.frozen import replace_unchecked
from polyrhythm.base.magnitudes import Sparser
from polyrhythm.base.vectors import Buffers, Layout
from polyrhythm.core.local_step import Computed, LocalSteps
from polyrhythm.core.protocols import ClientData, Engine, Opening
from polyrhythm.methods.correction import Term
from polyrhythm.methods.mechanism import Model
from polyrhythm.methods.order.base import Lens


class Whole(Engine, Protocol):
    """An engine of the whole model that computes gradients."""

    @property
    def gradient(self) -> Tensor: ...

    def compute(
        self,
        inputs: Tensor,
        targets: Tensor,
        positions: np.ndarray,
        terms: Sequence[Term] = (),
        watch: str | None = None,
        squares: bool = False,
    ) -> Computed: ...

    def stepped(self) -> None: ...


@final
class SparseEngine(LocalSteps):
    """Gradients of those weights that a client holds, [Q], which have to reach a threshold in each pass.

    Args:
        whole: computes the whole model; every visit opens it anew.
        portion: what the client holds.
    """

    def __init__(self, whole: Whole, portion: Sparser) -> None:
        self._engine, self._portion = whole, portion
        self._weights, self._gradient = portion.layout.zeros(), portion.layout.zeros()

    @property
    def layout(self) -> Layout:
        return self._portion.layout

    @property
    def weights(self) -> Tensor:
        return self._weights

    @property
    def gradient(self) -> Tensor:
        return self._gradient

    @property
    def single_sample_fails(self) -> bool:
        return self._engine.single_sample_fails

    @property
    def one_mode(self) -> bool:
        return self._engine.one_mode

    @property
    def forward_samples(self) -> int:
        return self._engine.forward_samples

    def open(self, visit: Opening) -> None:
        self._weights.copy_(visit.start.weights)
        previous = None if visit.previous is None else self._spread(visit.previous)
        start, received = self._spread(visit.start), self._spread(visit.received)
        self._engine.open(replace_unchecked(visit, start=start, received=received, previous=previous))

    def compute(
        self,
        inputs: Tensor,
        targets: Tensor,
        positions: np.ndarray,
        terms: Sequence[Term] = (),
        watch: str | None = None,
        squares: bool = False,
    ) -> Computed:
        engine, (there, here) = self._engine, self._portion.places
        used, factor = self._used(self._weights)
        engine.weights[there] = torch.where(used, self._weights, 0.0)[here]
        engine.stepped()
        computed = engine.compute(inputs, targets, positions, terms, watch, squares)
        self._gradient[here] = (engine.gradient[there] * factor[here]).to(self._gradient.dtype)
        numbers = {(s.offset, s.size): n for n, s in enumerate(engine.layout.segments)}
        own = tuple(self.layout.segments[numbers[s.offset, s.size]] for s in computed.unused)
        return replace_unchecked(computed, unused=own)

    def _used(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Which weights a pass uses, bool [Q], and what their gradients are multiplied by, [Q]."""
        return masking(weights, self._portion.ranked, self._portion.threshold)

    def _spread(self, model: Model) -> Model:
        """A model of the whole's length, as its passes use it."""
        shown = torch.where(self._used(model.weights)[0], model.weights, 0.0)
        return Model(weights=self._portion.spread(shown), buffers=model.buffers)

    def buffers(self) -> Buffers:
        return self._engine.buffers()

    def evaluate(self, model: Model, data: ClientData, positions: np.ndarray | None = None) -> Mapping[str, float]:
        return self._engine.evaluate(self._spread(model), data, positions)

    def lens(self) -> Lens:
        return self._engine.lens()

    def fisher(self, model: Model, data: ClientData, *, labels: np.random.Generator | None = None) -> float:
        raise NotImplementedError("the gradients of single samples are those of the whole model")


def masking(weights: Tensor, ranked: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """Which weights a pass uses, and what their gradients are multiplied by: 1 + 2θ|w| / (|w| + θ)², or 0.

    Args:
        weights: w, of any shape.
        ranked: whether each has to reach the threshold, bool; all others are used, with a factor of 1.
        threshold: θ.
    """
    sizes = weights.abs()
    inside = ~ranked | (sizes >= threshold)
    rise = 2 * threshold * sizes / (sizes + threshold).square() if threshold else torch.zeros_like(sizes)
    return inside, torch.where(ranked, 1 + rise, 1.0) * inside
