"""What an engine needs that takes whole rounds by itself and leaves all else to the torch engine."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from torch import Tensor, nn

from polyrhythm.base.vectors import Buffers, Layout
from polyrhythm.core.local_step import Computed, LocalRule
from polyrhythm.core.protocols import ClientData, Opening
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.methods.mechanism import Model
from polyrhythm.methods.order.base import Lens
from polyrhythm.methods.personal.guides import Slope
from polyrhythm.models.tally import Tally


class AroundTorch:
    """Base: the torch engine under another name.

    Args:
        torch: the engine inside.
    """

    releases_lock: ClassVar[bool] = False

    def __init__(self, torch: TorchEngine) -> None:
        self._torch = torch

    @property
    def reference(self) -> TorchEngine:
        """The torch engine inside."""
        return self._torch

    @property
    def module(self) -> nn.Module:
        """The model in training."""
        return self._torch.module

    def at_rest(self) -> nn.Module:
        """The same between two visits, without what its last pass left behind."""
        return self._torch.at_rest()

    @property
    def layout(self) -> Layout:
        return self._torch.layout

    @property
    def weights(self) -> Tensor:
        return self._torch.weights

    @property
    def single_sample_fails(self) -> bool:
        return self._torch.single_sample_fails

    @property
    def one_mode(self) -> bool:
        return self._torch.one_mode

    @property
    def forward_samples(self) -> int:
        return self._torch.forward_samples

    def initial(self) -> Model:
        """The module's own weights and buffers, as it was given. Only before the first visit."""
        return self._torch.initial()

    def state_of(self, model: Model) -> dict[str, Tensor]:
        """A model's whole state dict by name."""
        return self._torch.state_of(model)

    def open(self, visit: Opening) -> None:
        self._torch.open(visit)

    def step(self, inputs: Tensor, targets: Tensor, positions: np.ndarray, rule: LocalRule, rate: float) -> Computed:
        return self._torch.step(inputs, targets, positions, rule, rate)

    def slope(
        self, at: Tensor, inputs: Tensor, targets: Tensor, positions: np.ndarray, buffers: Buffers | None
    ) -> Slope:
        return self._torch.slope(at, inputs, targets, positions, buffers)

    def buffers(self) -> Buffers:
        return self._torch.buffers()

    def evaluate(self, model: Model, data: ClientData, positions: np.ndarray | None = None) -> dict[str, float]:
        return self._torch.evaluate(model, data, positions)

    def tally(
        self, model: Model, data: ClientData, positions: np.ndarray | None = None, *, by_class: bool = False
    ) -> Tally:
        """What the task counts over a client's samples, in eval mode."""
        return self._torch.tally(model, data, positions, by_class=by_class)

    def represented(self, model: Model, data: ClientData, layer: str) -> tuple[Tensor, Tensor, Tensor]:
        return self._torch.represented(model, data, layer)

    def lens(self) -> Lens:
        return self._torch.lens()

    def fisher(self, model: Model, data: ClientData, *, labels: np.random.Generator | None = None) -> float:
        return self._torch.fisher(model, data, labels=labels)
