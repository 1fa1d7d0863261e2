"""An engine that takes a visit's steps in C++, where nothing needs to be asked between them.

Rules:

- float32, SGD, and the layers of `program.py`. Everything else, and every pass that is not training, is the torch
  engine's, which this one holds.
- Numbers equal the torch engine's to rounding: the same order of operations in a step, other sums. They are the same
  bits for any number of threads and, where the processor can fuse multiply and add, on any width of registers.
- Dropout draws from the visit's stream by step, layer and element: the law of torch's masks, not their bits.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol, cast, final

import numpy as np
import torch
from torch import Tensor, nn

from polyrhythm.core.interfaces import ClientData, Computed, Done, Job, Opening
from polyrhythm.data.holding import Holding
from polyrhythm.engines.native.program import (
    AveragePool,
    Convolution,
    Dropout,
    Linear,
    MaxPool,
    Program,
    Relu,
    program_of,
)
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.optimisers import LocalSgd
from polyrhythm.slots.correction import Correction
from polyrhythm.slots.mechanism import Model
from polyrhythm.slots.order import Lens
from polyrhythm.tasks import Tally, Task
from polyrhythm.vectors import Buffers, Layout

LARGEST = 2048  # samples in a batch; beyond it the room between layers would be gigabytes


class _Rounds(Protocol):
    """The compiled side: room for one thread to run a program's rounds in."""

    def run(self, **given: Any) -> tuple[float, float, float]: ...


@functools.cache
def extension() -> Any:
    """The compiled module, or None where the package was installed without it."""
    try:
        return importlib.import_module("polyrhythm.engines.native._native")
    except ImportError:
        return None


def compiled(program: Program, kernels: str = "") -> _Rounds:
    """A program for one thread.

    Args:
        program: what a step computes.
        kernels: "avx512", "avx2" or "plain"; the best that this processor has if empty.
    """
    native = extension()
    built = native.Program(*program.shape, program.size, program.loss, program.smoothing, program.weight)
    for layer in program.layers:
        match layer:
            case Convolution():
                built.convolution(layer.weights, layer.bias, layer.rows, layer.kernel, layer.stride, layer.padding)
            case Linear():
                built.linear(layer.weights, layer.bias, layer.rows)
            case Relu():
                built.relu()
            case Dropout():
                built.dropout(layer.share)
            case MaxPool():
                built.max_pool(layer.kernel, layer.stride, layer.padding)
            case AveragePool():
                built.average_pool(layer.kernel, layer.stride, layer.padding, layer.whole_area)
    return cast(_Rounds, native.Rounds(built, kernels))


@final
class NativeEngine:
    """Local rounds in C++; all else by the torch engine inside. Cheap to make; a thread needs one of its own.

    Args:
        module: the model; copied, never changed.
        task: its loss and metrics.
        shape: of one sample.
        kernels: as in `compiled`.
        program: of this module, if it is known: reading it is nothing for two threads at once.

    Raises:
        Unsupported: the model or the task has no step program.
    """

    releases_lock: ClassVar[bool] = True

    def __init__(
        self,
        module: nn.Module,
        task: Task,
        shape: tuple[int, ...],
        kernels: str = "",
        program: Program | None = None,
    ) -> None:
        self._torch = TorchEngine(module, task)
        self._made_of = (task, shape, kernels)
        self.module.train()
        self.program = program or program_of(self.module, self.layout, task, shape)
        self._rounds = compiled(self.program, kernels)
        self._idle = tuple((s.offset, s.size) for s in self.program.idle)

    def __reduce__(self) -> tuple[type[NativeEngine], tuple[object, ...]]:
        _, (module, *_) = self._torch.__reduce__()
        return NativeEngine, (module, *self._made_of)

    def twin(self) -> NativeEngine:
        """Another engine of the same kind, for another thread; ask for it while this one is idle."""
        return NativeEngine(self.module, *self._made_of, self.program)

    def local_round(self, job: Job) -> Done | None:
        arrays = job.data.arrays() if isinstance(job.data, Holding) else None
        if arrays is None or type(job.optimiser) is not LocalSgd:
            return None
        inputs, targets, held = arrays
        sizes = np.diff(job.ends, prepend=0)
        if inputs.dtype != torch.float32 or not inputs.is_contiguous() or sizes.max(initial=0) > LARGEST:
            return None
        optimiser, push, moment = job.optimiser, job.push, job.moments.get("momentum")
        shift = None if push is None else push.shift
        labelled = self.program.loss == "cross_entropy"
        order = job.positions if held is None else held.numpy()[job.positions]
        loss, squared_loss, gradient_squares = self._rounds.run(
            weights=self.weights.numpy(),
            start=None if push is None else job.start.numpy(),
            shift=None if shift is None else shift.numpy(),
            moment=moment.numpy() if isinstance(moment, Tensor) else None,
            inputs=inputs.numpy().reshape(len(inputs), -1),
            labels=targets.numpy() if labelled else None,
            targets=None if labelled else targets.numpy(),
            order=np.ascontiguousarray(order),
            ends=job.ends,
            rates=np.array(job.rates, dtype=np.float32),
            pull=0.0 if push is None else push.pull,
            decay=optimiser.weight_decay,
            momentum=optimiser.momentum,
            nesterov=optimiser.nesterov,
            clip=optimiser.clip or 0.0,
            gradient_squares=job.gradient_squares,
            seed=job.seed,
        )
        self._torch.stepped()
        return Done(loss=loss, squared_loss=squared_loss, gradient_squares=gradient_squares, idle=self._idle)

    # The rest is the torch engine's.

    @property
    def module(self) -> nn.Module:
        """The model in training."""
        return self._torch.module

    @property
    def layout(self) -> Layout:
        return self._torch.layout

    @property
    def weights(self) -> Tensor:
        return self._torch.weights

    @property
    def gradient(self) -> Tensor:
        return self._torch.gradient

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

    def compute(
        self,
        inputs: Tensor,
        targets: Tensor,
        positions: np.ndarray,
        terms: Sequence[Correction] = (),
        watch: str | None = None,
        squares: bool = False,
    ) -> Computed:
        return self._torch.compute(inputs, targets, positions, terms, watch, squares)

    def stepped(self) -> None:
        self._torch.stepped()

    def buffers(self) -> Buffers:
        return self._torch.buffers()

    def evaluate(self, model: Model, data: ClientData, positions: np.ndarray | None = None) -> dict[str, float]:
        return self._torch.evaluate(model, data, positions)

    def tally(self, model: Model, data: ClientData, positions: np.ndarray | None = None) -> Tally:
        """What the task counts over a client's samples, in eval mode."""
        return self._torch.tally(model, data, positions)

    def lens(self) -> Lens:
        return self._torch.lens()

    def fisher(self, model: Model, data: ClientData, *, labels: np.random.Generator | None = None) -> float:
        return self._torch.fisher(model, data, labels=labels)
