"""The path of a visit: the steps so far, and what was seen on the way.

Kept on tensors, so that no step waits for a number before it is needed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

import numpy as np
import torch
from torch import Tensor

from polyrhythm.base.vectors import Spans
from polyrhythm.core.local_step import Computed
from polyrhythm.core.protocols import Done, Job
from polyrhythm.methods.work.base import Stop


@final
@dataclass(kw_only=True)
class Path:
    """Steps of a visit so far.

    Args:
        cursor: where the pass over the data is.
        rates: of each step.
        samples: trained on.
        forward_samples: of extra passes; known at the end.
    """

    cursor: tuple[int, int]
    rates: list[float] = field(default_factory=list)
    samples: int = 0
    forward_samples: int = 0
    _unused: set[tuple[int, int]] = field(default_factory=set)
    _losses: list[Tensor] = field(default_factory=list)  # read at the end
    _weights: list[int] = field(default_factory=list)
    _squares: Tensor | float = 0.0
    _gradient_squares: Tensor | float = 0.0

    def add(self, rate: float, computed: Computed, samples: int, cursor: tuple[int, int]) -> None:
        """Notes a step."""
        unused = {(s.offset, s.size) for s in computed.unused}
        self._unused = unused if not self.rates else self._unused & unused
        self.rates.append(rate)
        self._losses.append(computed.loss)
        self._weights.append(samples)
        if computed.squares is not None:
            self._squares += computed.squares
        if computed.gradient_square is not None:
            self._gradient_squares += computed.gradient_square
        self.samples += samples
        self.cursor = cursor

    def whole(self, job: Job, done: Done, cursor: tuple[int, int]) -> None:
        """Notes all the steps of a job."""
        self._unused = self._unused & set(done.idle) if self.rates else set(done.idle)
        self.rates += job.rates
        self._losses.append(torch.tensor(done.loss, dtype=torch.float64))
        self._weights.append(1)
        self._squares += done.squared_loss
        self._gradient_squares += done.gradient_squares
        self.samples += len(job.positions)
        self.cursor = cursor

    @property
    def idle(self) -> Spans:
        """The parts of the vector that no step touched."""
        return tuple(sorted(self._unused))

    @property
    def loss(self) -> float | None:
        """The mean training loss; None without steps."""
        if not self.samples:
            return None
        total, few = 0.0, len(self._losses) < 8
        losses = [loss.item() for loss in self._losses] if few else torch.stack(self._losses).double().tolist()
        for loss, weight in zip(losses, self._weights, strict=True):
            total += loss * weight
        return total / self.samples

    @property
    def squared_loss(self) -> float:
        """The mean of the squared losses of single samples, where they were asked for."""
        return float(self._squares) / self.samples if self.samples else 0.0

    @property
    def gradient_square(self) -> float:
        """The mean squared norm of the gradients, where it was asked for; there must be a step."""
        return float(self._gradient_squares) / len(self.rates)


@final
class Watch:
    """Judge of representations, where a visit may end early.

    Args:
        stop: the rule; None where it may not.
    """

    def __init__(self, stop: Stop | None) -> None:
        self._stop = stop
        self._reached: Tensor | bool = False
        self._similarity: Tensor | float = 0.0
        self._pairs: list[tuple[Tensor, Tensor, np.ndarray]] = []

    def look(self, pair: tuple[Tensor, Tensor] | None, ends: np.ndarray) -> None:
        """Keeps what some batches that end there gave, until somebody wants to know."""
        if self._stop is not None and pair is not None:
            self._pairs.append((pair[0].detach(), pair[1].detach(), np.diff(ends, prepend=0)))

    def _judge(self) -> None:
        """Judges what was kept, all batches of a size at once."""
        if self._stop is None or not self._pairs:
            return
        current, received, sizes = zip(*self._pairs, strict=True)
        self._pairs.clear()
        similarities = self._stop.similarity(torch.cat(current), torch.cat(received))
        counts = np.concatenate(sizes)
        for size in np.unique(counts):
            places = np.flatnonzero(np.repeat(counts == size, counts))
            batches = similarities.index_select(0, torch.from_numpy(places)).view(-1, int(size))
            self._reached |= self._stop.reached(batches).any()
            self._similarity += batches.double().mean(dim=-1).sum()

    def says_stop(self) -> bool:
        """Whether a batch said so."""
        self._judge()
        return self._stop is not None and bool(self._reached)

    def measures(self, steps: int) -> dict[str, float]:
        """What was found in so many steps, by the measure's name."""
        self._judge()
        if self._stop is None or not steps:
            return {}
        return {"threshold": self._stop.threshold, "similarity": float(self._similarity) / steps}
