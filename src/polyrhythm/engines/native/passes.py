"""Passes through frozen weights, without dropout: what layers make of samples, metrics, Fisher traces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

import numpy as np
import torch
from torch import Tensor

from polyrhythm.core.protocols import ClientData
from polyrhythm.data.holding import Holding
from polyrhythm.engines.looking import EVALUATION_BATCH, batches
from polyrhythm.engines.native.extension import Rounds
from polyrhythm.engines.native.program import Place, Program
from polyrhythm.engines.native.statistics import Statistics
from polyrhythm.methods.mechanism import Model
from polyrhythm.models.tally import Tally
from polyrhythm.models.task import Task


@final
class Passes:
    """Passes for one thread.

    Args:
        program: what a pass computes.
        rounds: room for it, in which no batch is half way.
        task: judges outputs.
    """

    def __init__(self, program: Program, rounds: Rounds, task: Task) -> None:
        self._program, self._rounds, self._task = program, rounds, task

    def look(self, model: Model, place: Place, inputs: np.ndarray, order: np.ndarray | None = None) -> Tensor:
        """What a place of the network holds for some rows of inputs, or all. [len(order), width]"""
        order = np.arange(len(inputs)) if order is None else order
        found = torch.empty(len(order), place.width)
        out = place.layers, found.numpy()
        self._rounds.look(**self._given(model), inputs=inputs, order=order, out=out)
        return found

    def _given(self, model: Model) -> dict[str, np.ndarray]:
        """A model as the compiled side takes it."""
        return {"weights": model.weights.numpy(), **Statistics(self._program, model.buffers).given}

    def over(
        self, model: Model, place: Place, data: ClientData, positions: np.ndarray | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """The same for a client's samples, all or those at `positions`, and their targets, batch by batch."""
        where, known = np.arange(len(data)) if positions is None else positions, arrays(data)
        for i in range(0, len(where), EVALUATION_BATCH):
            some = where[i : i + EVALUATION_BATCH]
            if known is None:
                inputs, targets = data.batch(some, None)
                yield self.look(model, place, rows(inputs)), targets
            else:
                held, goals, which = known
                order = some if which is None else which[some]
                yield self.look(model, place, held, order), goals.index_select(0, torch.from_numpy(order))

    def tally(
        self, model: Model, data: ClientData, positions: np.ndarray | None = None, *, by_class: bool = False
    ) -> Tally:
        """What the task counts over a client's samples."""
        total = Tally()
        for outputs, targets in self.over(model, self._program.outputs, data, positions):
            total = total + self._task.tally(outputs, targets, by_class=by_class)
        return total

    def fisher(self, model: Model, data: ClientData, labels: np.random.Generator | None) -> float:
        """Mean over a client's samples of the squared norm of that sample's gradient."""
        total = 0.0
        for inputs, held in batches(data):
            known, order, targets = rows(inputs), np.arange(len(inputs)), held
            if labels is not None:
                targets = self._task.draw(self.look(model, self._program.outputs, known, order), labels)
            given = goals(self._program, targets)
            total += self._rounds.trace(**self._given(model), inputs=known, **given, order=order)
        return total / len(data)


def rows(inputs: Tensor) -> np.ndarray:
    """A batch, a row for each sample, whole numbers as what they are. float32 [B, features]"""
    return inputs.reshape(len(inputs), -1).float().contiguous().numpy()


def arrays(data: ClientData) -> tuple[np.ndarray, Tensor, np.ndarray | None] | None:
    """All inputs as rows, all targets, and which of them are a client's; None if they are made when they are read."""
    known = data.arrays() if isinstance(data, Holding) else None
    if known is None or known[0].dtype != torch.float32 or not known[0].is_contiguous():
        return None
    inputs, targets, held = known
    return inputs.reshape(len(inputs), -1).numpy(), targets, None if held is None else held.numpy()


def tokens(data: ClientData) -> tuple[np.ndarray, Tensor, None] | None:
    """A client's own tokens as rows of float32, [n, T], and its targets; None if they are made when they are read."""
    known = data.arrays() if isinstance(data, Holding) else None
    if known is None or known[0].dtype != torch.int64:
        return None
    inputs, targets, held = known
    if held is not None:
        inputs, targets = inputs.index_select(0, held), targets.index_select(0, held)
    return rows(inputs), targets, None


def goals(program: Program, targets: Tensor) -> dict[str, np.ndarray | None]:
    """Labels, or targets: whichever the loss looks at."""
    labelled = program.loss == "cross_entropy"
    known = targets.contiguous().numpy()
    return {"labels": known if labelled else None, "targets": None if labelled else known}
