"""The running statistics of batch norms, as C++ takes them: one vector, norm after norm."""

from __future__ import annotations

from typing import final

import numpy as np
import torch

from polyrhythm.base.vectors import Buffers
from polyrhythm.engines.native.program import Program


@final
class Statistics:
    """Those of one model. Training moves them in place, evaluation only reads them.

    Args:
        program: says which of the buffers they are.
        buffers: of the model.

    Attributes:
        batches: how many batches they have moved by.
    """

    def __init__(self, program: Program, buffers: Buffers) -> None:
        self._program, self._buffers = program, buffers
        self.batches = 0
        parts = [buffers[place] for place in program.statistics]
        self._vector = torch.cat(parts) if parts else None

    @property
    def given(self) -> dict[str, np.ndarray]:
        """What a call of the compiled side is given: nothing, if there are none."""
        return {} if self._vector is None else {"statistics": self._vector.numpy()}

    def buffers(self) -> Buffers:
        """A copy of the model's buffers, as they are now."""
        found = [buffer.clone() for buffer in self._buffers]
        if self._vector is not None:
            begin = 0
            for place in self._program.statistics:
                values = self._vector.narrow(0, begin, len(found[place]))
                found[place].copy_(values)
                begin += len(values)
        for place in self._program.counts:
            found[place] += self.batches
        return tuple(found)
