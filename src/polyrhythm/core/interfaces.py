"""What the client core asks of the world: some samples, and an engine that computes gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from polyrhythm.slots.correction import Correction
from polyrhythm.slots.mechanism import Model
from polyrhythm.vectors import Buffers, Layout, Segment


class ClientData(Protocol):
    """One client's samples. Positions are its own, from 0 to len - 1."""

    def __len__(self) -> int: ...

    def batch(self, positions: np.ndarray, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """Inputs [B, ...] and targets [B, ...]; augmented with draws from `generator`, plain if it is None."""

    @property
    def augmented(self) -> bool:
        """Whether a batch draws from the generator."""


class Engine(Protocol):
    """Computes gradients of one model at a time. Weights and gradient are scratch that the client core steps in place.

    Everything between `open` and `close` belongs to one visit.
    """

    @property
    def layout(self) -> Layout: ...

    @property
    def weights(self) -> Tensor:
        """The current weights [P]."""

    @property
    def gradient(self) -> Tensor:
        """The last gradient [P]; padding is zero."""

    @property
    def single_sample_fails(self) -> bool:
        """Whether training on a batch of one sample raises (BatchNorm)."""

    @property
    def forward_samples(self) -> int:
        """Samples of extra forward passes since `open`."""

    def open(self, received: Model, start: Model, previous: Model | None) -> None:
        """Starts a visit at `start`; `received` and `previous` are what loss terms may compare with."""

    def compute(
        self, inputs: Tensor, targets: Tensor, terms: Sequence[Correction]
    ) -> tuple[Tensor, tuple[Segment, ...]]:
        """Fills `gradient` for one batch; gives the task's mean loss, detached, and the segments without a gradient."""

    def stepped(self) -> None:
        """Must be called when the weights have been changed."""

    def buffers(self) -> Buffers:
        """A copy of the travelling buffers as training left them."""

    def evaluate(self, model: Model, data: ClientData, positions: np.ndarray | None = None) -> Mapping[str, float]:
        """The task's metrics in eval mode over all of a client's samples, or those at `positions`; draws nothing."""
