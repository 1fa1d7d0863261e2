"""The reference engine: plain PyTorch, any module, one client at a time. Every other engine is held to this one."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from typing import final

import numpy as np
import torch
from torch import Tensor, nn

from polyrhythm.core.interfaces import ClientData
from polyrhythm.models.representation import locate
from polyrhythm.slots.correction import Correction, Which
from polyrhythm.slots.mechanism import Model
from polyrhythm.tasks import Tally, Task
from polyrhythm.vectors import Buffers, FlatModel, Layout, Segment

EVALUATION_BATCH = 1000


@final
class TorchEngine:
    """Gradients and metrics of one module for one task.

    Args:
        module: the model; copied, never changed.
        task: its loss and metrics.
    """

    def __init__(self, module: nn.Module, task: Task) -> None:
        self._flat = FlatModel(module)
        self._task = task
        # Made now, since a module that is in training may hold what cannot be copied.
        self._frozen: dict[Which, FlatModel] = {"received": self._flat.twin()}
        self._frozen["received"].module.eval()
        self._models: dict[Which, Model] = {}
        self._loaded: set[Which] = set()
        self.forward_samples = 0

    @property
    def layout(self) -> Layout:
        return self._flat.layout

    @property
    def weights(self) -> Tensor:
        return self._flat.weights

    @property
    def gradient(self) -> Tensor:
        return self._flat.gradient

    @functools.cached_property
    def single_sample_fails(self) -> bool:
        return any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in self._flat.module.modules())

    def initial(self) -> Model:
        """The module's own weights and buffers, as it was given. Only before the first visit."""
        return Model(weights=self.weights.clone(), buffers=self._flat.buffers())

    def state_of(self, model: Model) -> dict[str, Tensor]:
        """A model's whole state dict by name: trainable, frozen and tied parameters, and buffers."""
        flat = self._frozen_model("received")
        self._loaded.discard("received")
        flat.load(model.weights, model.buffers)
        return flat.state()

    def open(self, received: Model, start: Model, previous: Model | None) -> None:
        self._models = {"received": received}
        if previous is not None:
            self._models["previous"] = previous
        self._loaded.clear()
        self.forward_samples = 0
        self._flat.load(start.weights, start.buffers)
        self._flat.module.train()

    def compute(
        self, inputs: Tensor, targets: Tensor, terms: Sequence[Correction]
    ) -> tuple[Tensor, tuple[Segment, ...]]:
        if not terms:
            loss = self._task.loss(self._flat.module(inputs), targets)
            return loss.detach(), self._flat.backward(loss)
        view = _View(self, inputs, frozenset(name for term in terms for name in term.layers or ()))
        loss = self._task.loss(view.outputs, targets)
        total = loss
        for term in terms:
            extra = term.term(view)
            total = total if extra is None else total + extra
        return loss.detach(), self._flat.backward(total)

    def stepped(self) -> None:
        self._flat.refresh()

    def buffers(self) -> Buffers:
        return self._flat.buffers()

    def evaluate(self, model: Model, data: ClientData, positions: np.ndarray | None = None) -> dict[str, float]:
        return self._task.read(self.tally(model, data, positions))

    def tally(self, model: Model, data: ClientData, positions: np.ndarray | None = None) -> Tally:
        """What the task counts over a client's samples, in eval mode and large batches."""
        flat = self._frozen_model("received")
        self._loaded.discard("received")
        flat.load(model.weights, model.buffers)
        where = np.arange(len(data)) if positions is None else positions
        total = Tally()
        with torch.no_grad():
            for i in range(0, len(where), EVALUATION_BATCH):
                inputs, targets = data.batch(where[i : i + EVALUATION_BATCH], None)
                total = total + self._task.tally(flat.module(inputs), targets)
        return total

    def frozen(self, which: Which) -> nn.Module:
        """The received or the previous model of this visit, in eval mode."""
        flat = self._frozen_model(which)
        if which not in self._loaded:
            flat.load(self._models[which].weights, self._models[which].buffers)
            self._loaded.add(which)
        return flat.module

    def has(self, which: Which) -> bool:
        """Whether this visit has such a model."""
        return which in self._models

    @property
    def module(self) -> nn.Module:
        """The model in training."""
        return self._flat.module

    def _frozen_model(self, which: Which) -> FlatModel:
        if which not in self._frozen:
            self._frozen[which] = self._frozen["received"].twin()
            self._frozen[which].module.eval()
        return self._frozen[which]


@final
class _View:
    """One batch under up to three models; what is asked for twice is computed once."""

    def __init__(self, engine: TorchEngine, inputs: Tensor, layers: frozenset[str]) -> None:
        self._engine, self._inputs = engine, inputs
        with contextlib.ExitStack() as taps:
            read = {layer: taps.enter_context(locate(engine.module, layer).watch()) for layer in sorted(layers)}
            self.outputs: Tensor = engine.module(inputs)
        self._features: dict[tuple[Which, str], Tensor] = {
            ("current", layer): read[layer](len(inputs)) for layer in read
        }

    @property
    def has_previous(self) -> bool:
        return self._engine.has("previous")

    def features(self, which: Which, layer: str) -> Tensor:
        key = (which, layer)
        if key not in self._features:
            with torch.no_grad():
                _, self._features[key] = locate(self._engine.frozen(which), layer)(self._inputs)
            self._engine.forward_samples += len(self._inputs)
        return self._features[key]
