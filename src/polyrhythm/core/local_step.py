"""A local step, by any engine that computes gradients: the one place where their order is written down.

Gradient, clip, corrections, weight decay, momentum, step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from polyrhythm.base.frozen import replace_unchecked
from polyrhythm.base.vectors import Buffers, Segment, clear_
from polyrhythm.methods.capacity.base import Penalty
from polyrhythm.methods.correction import Push, Term
from polyrhythm.methods.local.optimisers import LocalOptimiser, clip_
from polyrhythm.methods.personal.guides import Guide, Slope

Batch = tuple[Tensor, Tensor, np.ndarray]
"""Inputs, targets, and whose they are, among the client's samples."""


@final
@dataclass(frozen=True)
class Computed:
    """What one batch gave.

    Args:
        loss: the task's mean loss, detached.
        unused: the segments that have no gradient.
        pair: representations of the batch under the current and the received model in eval mode, each [B, F]; None if
            nobody asked.
        squares: the squared loss of each sample, summed over the batch, float64; None if nobody asked.
        gradient_square: the squared norm of the (clipped) gradient, float64; None if nobody asked.
    """

    loss: Tensor
    unused: tuple[Segment, ...]
    pair: tuple[Tensor, Tensor] | None = None
    squares: Tensor | None = None
    gradient_square: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class LocalRule:
    """Rule of a visit's local steps: all that is the same in each of them.

    Args:
        optimiser: steps the weights; its `clip` comes first.
        push: the affine corrections; None if there are none.
        start: w0, from which a pull is measured, [P].
        moments: the optimiser's state, stepped in place.
        seed: names what the network itself draws (dropout), with the number of the step.
        gradient_squares: whether the squared norms of the (clipped) gradients are asked for.
        squared_losses: whether the squared losses of samples are asked for.
        terms: corrections that add a loss term.
        watch: the representation to give a pair of in each batch; None for none.
        held: parameters that these steps leave as they are, as if they had no gradient.
        away: whether the weights begin elsewhere than at `start`.
        guide: what goes along with these steps.
        others: the batches that it looks at in a step, beside the step's own.
        penalty: a term of the loss that depends on the weights alone.
    """

    optimiser: LocalOptimiser
    push: Push | None
    start: Tensor
    moments: dict[str, Tensor | int]
    seed: int
    gradient_squares: bool
    squared_losses: bool = False
    terms: Sequence[Term] = ()
    watch: str | None = None
    held: tuple[Segment, ...] = ()
    away: bool = False
    guide: Guide | None = None
    others: tuple[Batch, ...] = ()
    penalty: Penalty | None = None


class LocalSteps:
    """Base of engines that compute a batch's gradient: they have their steps from here.

    Attributes:
        weights: the current weights [P].
        gradient: the last gradient [P]; padding is zero.
        descends: whether it can take a step of plain SGD with the gradient, where nobody looks at it or changes it, to
            the same bits as a step of the whole vector.
    """

    _away: Tensor | None = None  # scratch [P]

    @property
    def weights(self) -> Tensor:
        raise NotImplementedError

    @property
    def gradient(self) -> Tensor:
        raise NotImplementedError

    @property
    def descends(self) -> bool:
        return False

    def compute(
        self,
        inputs: Tensor,
        targets: Tensor,
        positions: np.ndarray,
        terms: Sequence[Term] = (),
        watch: str | None = None,
        squares: bool = False,
    ) -> Computed:
        """Fills `gradient` for one batch.

        Args:
            inputs, targets: the batch.
            positions: whose they are, among the client's samples.
            terms: corrections that add a loss term.
            watch: the representation to give a pair of; None for none.
            squares: whether the squared losses are asked for.
        """
        raise NotImplementedError

    def descend(self, inputs: Tensor, targets: Tensor, positions: np.ndarray, rule: LocalRule, rate: float) -> Computed:
        """Steps `weights` by -rate * gradient, and leaves `gradient` as it was. Only where it `descends`."""
        raise NotImplementedError

    def slope(
        self, at: Tensor, inputs: Tensor, targets: Tensor, positions: np.ndarray, buffers: Buffers | None
    ) -> Slope:
        """The gradient of one batch at other weights, in training mode.

        The visit's own weights, buffers and draws are as before. As it stands, this is for an engine of models
        without buffers, whose draws are named by the step.

        Args:
            at: the weights, [P].
            inputs, targets: the batch.
            positions: whose they are, among the client's samples.
            buffers: that go with the weights; None for a copy of the visit's own.
        """
        own = self.weights.clone()
        self.weights.copy_(at)
        computed = self.compute(inputs, targets, positions)
        self.weights.copy_(own)
        gradient = clear_(self.gradient.clone(), tuple((s.offset, s.size) for s in computed.unused))
        return Slope(gradient, computed.unused, (), computed.loss)

    def stepped(self) -> None:
        """Must be called when the weights have been changed."""

    def step(self, inputs: Tensor, targets: Tensor, positions: np.ndarray, rule: LocalRule, rate: float) -> Computed:
        """One local step, as `Engine.step`."""
        weights, push, optimiser, moments = self.weights, rule.push, rule.optimiser, rule.moments
        away = weights
        if push is not None and push.pull:
            # The difference first: at w = w0 it is exactly zero, so the first step is FedAvg's.
            away = self._away = torch.sub(weights, rule.start, out=self._away)
        # Plain SGD, whose pushes then go to the weights.
        straight = self.descends and rule.optimiser.plain and not rule.held and rule.penalty is None
        factor = 1.0 if push is None else push.factor
        if straight and not rule.gradient_squares and rule.guide is None:
            computed = self.descend(inputs, targets, positions, rule, rate * factor)
            untouched = kept_parts(computed.unused, weights, moments) if push is not None else []
            _add(weights, push, away, -rate)
        else:
            computed, gradient = self._guided((inputs, targets, positions), rule, rate), self.gradient
            if rule.held:
                unused = dict.fromkeys((*computed.unused, *rule.held))
                computed = replace_unchecked(computed, unused=tuple(unused))
            # An engine need not touch these: what the last step's weight decay left there is no part of the norm.
            clear_(gradient, tuple((s.offset, s.size) for s in computed.unused))
            untouched = kept_parts(computed.unused, weights, moments)
            if optimiser.clip is not None:
                clip_(gradient, optimiser.clip)
            if rule.gradient_squares:
                computed = replace_unchecked(computed, gradient_square=squared_norm(gradient))
            if rule.penalty is not None:
                rule.penalty.add_(gradient, weights)
            if not straight:
                if factor != 1.0:
                    gradient.mul_(factor)
                _add(gradient, push, away, 1.0)
            optimiser.step_(weights, gradient, rate * factor if straight else rate, moments)
            if straight:  # the same bits, looked at or not
                _add(weights, push, away, -rate)
        for part, before in untouched:
            part.copy_(before)
        self.stepped()
        return computed

    def _guided(self, batch: Batch, rule: LocalRule, rate: float) -> Computed:
        """Fills `gradient` for one batch, where and how the rule's guide says."""
        guide, weights = rule.guide, self.weights
        if guide is None:
            return self.compute(*batch, rule.terms, rule.watch, rule.squared_losses)

        def slopes(at: Tensor, which: int = 0, buffers: Buffers | None = None) -> Slope:
            return self.slope(at, *(batch if which == 0 else rule.others[which - 1]), buffers)

        point, own = guide.point(weights, slopes, rate), None
        if point is not weights:
            own = weights.clone()
            weights.copy_(point)
            self.stepped()
        computed = self.compute(*batch, rule.terms, rule.watch, rule.squared_losses)
        if own is not None:
            weights.copy_(own)
            self.stepped()
        clear_(self.gradient, tuple((s.offset, s.size) for s in computed.unused))
        direction = guide.direction(weights, self.gradient, slopes, rate)
        if direction is not self.gradient:
            self.gradient.copy_(direction)
        return computed


def squared_norm(gradient: Tensor) -> Tensor:
    """The squared norm of a gradient, float64. One read of it; half precision is summed in float32."""
    wide = torch.promote_types(gradient.dtype, torch.float32)
    norm: Tensor = torch.linalg.vector_norm(gradient, dtype=wide)
    return norm.double().square()


def _add(vector: Tensor, push: Push | None, away: Tensor, times: float) -> None:
    """Adds a push to a vector [P], so many times, from how far the weights are away from w0."""
    if push is not None and push.pull:
        vector.add_(away, alpha=times * push.pull)
    if push is not None and push.shift is not None:
        vector.add_(push.shift, alpha=times)


def kept_parts(
    unused: tuple[Segment, ...], weights: Tensor, moments: dict[str, Tensor | int]
) -> list[tuple[Tensor, Tensor]]:
    """Parts that a step must leave as they are, each with a copy: what belongs to parameters without a gradient.

    torch.optim passes such parameters over altogether: no weight decay, no momentum, no count of the step. So a count
    that all weights shared until now becomes one for each.
    """
    if not unused:
        return []
    for name, value in moments.items():
        if not isinstance(value, Tensor):
            moments[name] = torch.full(weights.shape, value, dtype=torch.promote_types(weights.dtype, torch.float32))
    vectors = [weights, *(m for m in moments.values() if isinstance(m, Tensor))]
    parts = [v.narrow(0, s.offset, s.size) for v in vectors for s in unused]
    return [(part, part.clone()) for part in parts]
