"""Where a visit begins, where that is not at the model that was sent."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from polyrhythm.base.messages import State
from polyrhythm.base.settings import Count, Fraction, NonNegative
from polyrhythm.base.vectors import Layout
from polyrhythm.methods.local.optimisers import LocalOptimiser
from polyrhythm.methods.mechanism import Model
from polyrhythm.methods.personal.guides import Guide, Pass
from polyrhythm.methods.personal.models import PersonalModel
from polyrhythm.methods.personal.scope import Part
from polyrhythm.methods.privacy.effects import inside

WINDOW = 10
"""Losses that the first learning looks at."""


@final
@dataclass(frozen=True, kw_only=True)
class AdaptiveStart(PersonalModel):
    """Each client begins where its last model and the one that it is sent are mixed as its own samples say.

    theta = old + (x - old) * W in each number of the last `tensors` parameters, theta = x below them, with the W that
    the client learns before it trains: W <- W - rate * g(theta) * (x - old), kept within 0 and 1, batch by batch over a
    share of its samples. W is 1 at first, and goes on from visit to visit. The first time, passes are made until the
    last 10 of their losses have a standard deviation below `settled`; after that, one pass in each visit. The update
    that is sent is from x to where the client ends. It uses the theta of the newest model. Neutral: rate = 0, where W
    stays 1, and a client's first visit: exactly the method without this part.

    Client state: the last `tensors` parameters as training left them, and W. No bytes; the gradients of the share.

    Departures: a loss of a pass is that of its last batch, as in the authors' program, and there are at most `most`
    passes, where that goes on for ever; samples are drawn for each visit, where that takes neighbours in their order.

    Args:
        tensors: p, how many of the last parameters; a layer has two, its weight and its bias.
        rate: of W.
        share: of its samples that a client learns W on.
        settled: how little losses differ when W is learned.
        most: passes the first time.

    Reference: Zhang et al., "FedALA: Adaptive Local Aggregation for Personalized Federated Learning", AAAI 2023,
    Algorithm 1.
    """

    tensors: Count = 2
    rate: NonNegative = 1.0
    share: Fraction = 0.8
    settled: NonNegative = 0.1
    most: Count = 50

    of_a_release = True
    privacy = inside("makes a model that stays at the client")

    @property
    def tunes(self) -> bool:
        return self.moves

    @property
    def moves(self) -> bool:
        return self.rate > 0 and self.share > 0

    @property
    def guesses(self) -> bool:
        return self.moves

    @property
    def sends_alike(self) -> bool:
        return True

    def tail(self, layout: Layout) -> Part:
        """The parameters that are mixed."""
        # In a dry run vectors are shorter than what is in them.
        there = [s for s in layout.segments if s.offset + s.size <= layout.size]
        return Part(segments=tuple(there[-self.tensors :]))

    def sampled(self, state: State, num_samples: int) -> tuple[int, int]:
        if not state or not self.moves:
            return 0, 0
        return max(1, int(self.share * num_samples)), 1 if "mixing" in state else self.most

    def start(self, state: State, received: Model, layout: Layout, passes: Iterable[Pass]) -> tuple[Model, State]:
        tail, old = self.tail(layout), state["weights"]
        new, mixing = tail.of(received.weights), state.get("mixing", torch.ones_like(old))
        way, losses = new - old, list[float]()

        def mixed() -> Tensor:
            # From x, so that W = 1 is x to the bit.
            return tail.put(received.weights, new - way * (1 - mixing))

        for one_pass in passes:
            for slope in one_pass:
                found = slope(mixed())
                mixing = (mixing - self.rate * tail.of(found.gradient) * way).clamp(0, 1)
                loss = float(found.loss)
            losses.append(loss)
            if len(losses) > WINDOW and statistics.pstdev(losses[-WINDOW:]) < self.settled:
                break
        return Model(weights=mixed(), buffers=received.buffers), {**state, "mixing": mixing}

    def guide(self, state: State, received: Model, optimiser: LocalOptimiser, layout: Layout) -> Guide | None:
        return _Keeping(self.tail(layout), state) if self.moves else None


@final
class _Keeping(Guide):
    """What a client keeps for its next start.

    Args:
        tail: the parameters that are mixed.
        state: with the W that was learned, if one was.
    """

    steers: ClassVar[bool] = False

    def __init__(self, tail: Part, state: State) -> None:
        self._tail, self._state = tail, state

    def kept(self, model: Model) -> State:
        return {**self._state, "weights": self._tail.of(model.weights)}
