"""What the parts of a recipe may look at: a batch under up to three models, and a visit's samples under frozen ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, Protocol, final

import numpy as np
import torch
from torch import Tensor

from polyrhythm.core.protocols import ClientData
from polyrhythm.methods.correction import Which
from polyrhythm.models.metrics import nan_rows
from polyrhythm.models.task import Task

EVALUATION_BATCH = 96  # larger ones leave the cache: ResNet-9 takes 1.2 times as long with 250, LeNet-5 8 MB more


def batches(data: ClientData, size: int = EVALUATION_BATCH) -> Iterator[tuple[Tensor, Tensor]]:
    """All of a client's samples in order, without augmentation."""
    for i in range(0, len(data), size):
        yield data.batch(np.arange(i, min(i + size, len(data))), None)


class Frozen(Protocol):
    """An engine's frozen models, in eval mode."""

    def has(self, which: Which) -> bool:
        """Whether this visit has such a model."""

    def frozen_features(self, which: Which, layer: str, inputs: Tensor, positions: np.ndarray) -> Tensor:
        """Representation of a batch; from all samples at once where the visit reuses it."""

    def frozen_outputs(self, which: Which) -> tuple[Tensor, Tensor]:
        """Outputs for all of the visit's samples, and their targets."""


@final
class View:
    """One batch under up to three models; what is asked for twice is computed once.

    Args:
        engine: has the frozen models.
        inputs, targets: the batch.
        positions: whose they are, among the client's samples.
        current: representations under the model in training, by layer.
    """

    def __init__(
        self,
        engine: Frozen,
        inputs: Tensor,
        targets: Tensor,
        positions: np.ndarray,
        current: Mapping[str, Tensor],
    ) -> None:
        self._engine, self._inputs, self._positions, self.targets = engine, inputs, positions, targets
        self._features: dict[tuple[Which, str], Tensor] = {("current", layer): z for layer, z in current.items()}

    @property
    def has_previous(self) -> bool:
        return self._engine.has("previous")

    def features(self, which: Which, layer: str) -> Tensor:
        key = (which, layer)
        if key not in self._features:
            self._features[key] = self._engine.frozen_features(which, layer, self._inputs, self._positions)
        return self._features[key]


@final
class FrozenLens:
    """A visit's samples under its frozen models, each computed once."""

    def __init__(self, engine: Frozen, task: Task, data: ClientData) -> None:
        self._engine, self._task, self._data = engine, task, data
        self._outputs: dict[Which, Tensor] = {}
        self._known: Tensor | None = None

    @property
    def has_previous(self) -> bool:
        return self._engine.has("previous")

    def losses(self, which: Literal["received", "previous"]) -> np.ndarray:
        outputs = self._under(which)
        with torch.no_grad():
            return self._task.losses(outputs, self._targets()).double().numpy()

    def predictions(self, which: Literal["received", "previous"]) -> np.ndarray:
        outputs = self._under(which)
        last = outputs[:, -1] if outputs.dim() == 3 else outputs
        predicted: np.ndarray = last.argmax(dim=-1).masked_fill(nan_rows(last), -1).numpy()
        return predicted  # NaN would win the argmax: it is no class at all

    def targets(self) -> np.ndarray:
        return self._targets().numpy()

    def fixed(self, name: str) -> np.ndarray:
        return self._data.fixed(name)

    def _targets(self) -> Tensor:
        if self._known is None:
            self._known = torch.cat([targets for _, targets in batches(self._data)])
        return self._known

    def _under(self, which: Which) -> Tensor:
        if which not in self._outputs:
            self._outputs[which], self._known = self._engine.frozen_outputs(which)
        return self._outputs[which]
