"""Some samples as one client sees them: by positions of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import numpy as np
import torch
from torch import Tensor

from polyrhythm.data.federation import Shares
from polyrhythm.data.samples import ArraySamples, Samples


@final
class Holding:
    """The samples that one client holds; nothing is copied.

    Args:
        samples: shared by all clients.
        indices: int64 [n], which of them; None for all.
        scores: named numbers, one for each of the shared samples.
    """

    def __init__(
        self, samples: Samples, indices: Tensor | None = None, scores: Mapping[str, np.ndarray] | None = None
    ) -> None:
        self._samples, self._indices, self._scores = samples, indices, scores or {}

    def __len__(self) -> int:
        return len(self._samples) if self._indices is None else len(self._indices)

    @property
    def augmented(self) -> bool:
        """Whether a batch draws from the generator."""
        return self._samples.augmented

    def fixed(self, name: str) -> np.ndarray:
        """A score that the experiment holds for each sample, float [n]."""
        scores = self._scores[name]
        return scores if self._indices is None else scores[self._indices.numpy()]

    def batch(self, positions: np.ndarray, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """Inputs [B, ...] and targets [B, ...] at the given positions."""
        where = torch.from_numpy(np.ascontiguousarray(positions))
        if self._indices is not None:
            where = self._indices.index_select(0, where)
        return self._samples.batch(where, generator)

    def arrays(self) -> tuple[Tensor, Tensor, Tensor | None] | None:
        """All inputs and targets as they lie in memory, and which of them are held (None for all).

        None if a batch is more than some of their rows: transformed or augmented when it is read, or made then.
        """
        samples = self._samples
        if not isinstance(samples, ArraySamples) or not samples.as_read:
            return None
        return samples.inputs, samples.targets, self._indices


@final
class Holdings:
    """What each client holds: maps a client's number to its samples.

    Args:
        shares: who holds which samples.
        scores: named numbers, one for each of the samples.
    """

    def __init__(self, shares: Shares, scores: Mapping[str, np.ndarray] | None = None) -> None:
        self._shares, self._scores = shares, scores or {}

    def __call__(self, client: int) -> Holding:
        return Holding(self._shares.samples, self._shares.indices(client), self._scores)
