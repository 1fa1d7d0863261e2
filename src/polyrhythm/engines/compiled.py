"""An engine whose whole step is one compiled function: forward, backward, corrections, and the update of flat vectors.

The step is traced down to single operations, which `torch.compile` fuses and writes as C++. Rules:

- One client at a time. All batches have one size, the largest, so that there is one function to compile; shorter ones
  are filled up, see `step`.
- Compiled code is kept on disk and found again by the next process.
- Numbers equal the torch engine's to rounding: the same order of operations in a step, other sums.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from polyrhythm.base.threads import one_thread
from polyrhythm.base.vectors import CPU
from polyrhythm.core.protocols import Done, Job
from polyrhythm.data.holding import Holding
from polyrhythm.data.samples import Samples
from polyrhythm.data.sources.files import cache_folder
from polyrhythm.engines.around import AroundTorch
from polyrhythm.engines.step import Batch, Step, keys_of, rows_of, shares_of, sizes_of, takes
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.engines.unsupported import Unsupported
from polyrhythm.methods.local.optimisers import LocalSgd, clip_
from polyrhythm.models.tasks import Task


@final
@dataclass(frozen=True, kw_only=True)
class Kind:
    """What is compiled into a step.

    Args:
        optimiser: with all its settings but the rate.
        width: samples in the largest batch.
        pushed: whether there are affine corrections.
        squares: whether squared norms of gradients are asked for.
    """

    optimiser: LocalSgd
    width: int
    pushed: bool
    squares: bool

    def fits(self, job: Job) -> bool:
        """Whether a job's steps are of this kind."""
        return (
            takes(job)
            and job.optimiser == self.optimiser
            and (self.pushed or job.push is None)
            and self.squares == job.gradient_squares
            and int(sizes_of(job).max(initial=0)) <= self.width
        )


@final
class CompiledEngine(AroundTorch):
    """Local rounds by a compiled step; all else by the torch engine inside.

    Args:
        module: the model; copied, never changed.
        task: its loss and metrics.
        samples: what clients train on.
        kind: of steps.

    Raises:
        Unsupported: the model cannot be run like that, or nothing can be compiled here.
    """

    def __init__(self, module: nn.Module, task: Task, samples: Samples, kind: Kind) -> None:
        super().__init__(TorchEngine(module, task))
        self._made_of = task, samples, kind
        self._kind = kind
        step = Step(self.module, task, self.layout, self.weights, samples, CPU)
        self._layers, self._idle = step.layers, step.idle
        self._whole = _compiled(step, kind, self.weights, samples)

    def __reduce__(self) -> tuple[type[CompiledEngine], tuple[object, ...]]:
        return CompiledEngine, (self._torch.given(), *self._made_of)

    @property
    def dropouts(self) -> int:
        """How often a pass draws dropout."""
        return self._layers

    @property
    def squares(self) -> bool:
        """Whether squared norms of gradients are computed."""
        return self._kind.squares

    def local_round(self, job: Job) -> Done | None:
        if not self._kind.fits(job):
            return None
        assert isinstance(job.data, Holding)
        arrays = job.data.arrays()
        assert arrays is not None
        inputs, targets, _ = arrays
        weights, width, count = self.weights, self._kind.width, len(job.ends)
        moments = [m for m in job.moments.values() if isinstance(m, Tensor)]
        rows, keys = (torch.from_numpy(t) for t in (rows_of(job, width), keys_of(job.seed, count, self._layers)))
        shares = torch.from_numpy(shares_of(sizes_of(job), width)).to(weights.dtype)
        rates = torch.tensor(job.rates, dtype=weights.dtype)
        push = _push_of(job) if self._kind.pushed else ()
        sums = torch.zeros(3, dtype=torch.float64)
        idle = [s.of(vector) for vector in (weights, *moments) for s in self._idle]
        before = [part.clone() for part in idle]
        with torch.no_grad():
            for step in range(count):
                at = rows[step], shares[step], keys[step], rates[step]
                self._whole(weights, moments, push, sums, inputs, targets, *at)
        for part, kept in zip(idle, before, strict=True):
            part.copy_(kept)
        self._torch.stepped()
        loss, squared_loss, gradient_squares = sums.tolist()
        spans = tuple((s.offset, s.size) for s in self._idle)
        return Done(loss=loss, squared_loss=squared_loss, gradient_squares=gradient_squares, idle=spans)


def _push_of(job: Job) -> tuple[Tensor, Tensor, Tensor]:
    """Start, pull and shift."""
    none = torch.zeros_like(job.start)
    if job.push is None:
        return job.start, torch.zeros((), dtype=job.start.dtype), none
    pull = torch.tensor(job.push.pull, dtype=job.start.dtype)
    return job.start, pull, none if job.push.shift is None else job.push.shift


def _step_of(step: Step, kind: Kind, size: int) -> Callable[..., None]:
    """The whole step of a kind as one function; it changes weights, moments and sums in place."""

    def whole(
        weights: Tensor,
        moments: list[Tensor],
        push: tuple[Tensor, ...],
        sums: Tensor,
        inputs: Tensor,
        targets: Tensor,
        rows: Tensor,
        shares: Tensor,
        keys: Tensor,
        rate: Tensor,
    ) -> None:
        batch = Batch(inputs.index_select(0, rows), targets.index_select(0, rows), shares, keys)
        gradients, losses = step(weights, batch)
        gradient = torch.cat(list(_in_order(step, gradients, weights, size)))
        if kind.optimiser.clip is not None:
            clip_(gradient, kind.optimiser.clip)
        losses = losses.double() * (shares > 0)
        square = torch.linalg.vector_norm(gradient).double().square() if kind.squares else losses.new_zeros(())
        sums.add_(torch.stack([losses.sum(), losses.square().sum(), square]))
        if push:
            start, pull, shift = push
            gradient = gradient + (weights - start) * pull + shift
        kind.optimiser.step_(weights, gradient, rate, dict(zip(("momentum",), moments, strict=False)))

    return whole


def _in_order(step: Step, gradients: Sequence[Tensor], like: Tensor, size: int) -> Iterator[Tensor]:
    """The pieces of a flat gradient, zeros between and for idle parameters included."""
    end = 0
    for segment, gradient in zip(step.used, gradients, strict=True):
        if segment.offset > end:
            yield like.new_zeros(segment.offset - end)
        yield gradient.reshape(-1)
        end = segment.offset + segment.size
    if size > end:
        yield like.new_zeros(size - end)


def _compiled(step: Step, kind: Kind, weights: Tensor, samples: Samples) -> Callable[..., None]:
    """The compiled step, tried out.

    Raises:
        Unsupported: torch cannot compile it, for want of a C++ compiler or for another reason.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    arrays = Holding(samples).arrays()
    if arrays is None:
        raise Unsupported("samples are augmented, transformed or made when they are read")
    moments = [torch.zeros_like(weights)] if kind.optimiser.momentum else []
    push = (weights.clone(), torch.zeros((), dtype=weights.dtype), torch.zeros_like(weights)) if kind.pushed else ()
    sums, width = torch.zeros(3, dtype=torch.float64), kind.width
    rows, shares = torch.zeros(width, dtype=torch.int64), torch.full((width,), 1 / width, dtype=weights.dtype)
    keys = torch.from_numpy(keys_of(0, 1, step.layers)[0])
    given = (weights.clone(), moments, push, sums, *arrays[:2], rows, shares, keys, weights.new_zeros(()))
    try:
        with one_thread(), torch.no_grad(), _kept_on_disk():
            graph = make_fx(_step_of(step, kind, len(weights)))(*given)
            whole = torch.compile(graph, fullgraph=True, dynamic=False)
            whole(*given)
    except Exception as error:  # whatever a compiler, or torch's, has to say
        told = " ".join(str(error).split("\n\n")[0].split())
        raise Unsupported(f"torch.compile does not work here: {told[:160]}") from error
    return whole


_FOLDER = "TORCHINDUCTOR_CACHE_DIR"


@contextlib.contextmanager
def _kept_on_disk() -> Iterator[None]:
    """Has torch keep compiled code with polyrhythm's other files, if it was not told where, and write serial code."""
    before = os.environ.get(_FOLDER)
    os.environ.setdefault(_FOLDER, str(cache_folder("compiled")))
    try:
        from torch._inductor import config  # it sets the variable if it is not set yet

        # In this process, since helpers would outlive a run; what torch has to say about itself is not the user's.
        with config.patch({"cpp.threads": 1, "compile_threads": 1}), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if before is None:
            os.environ.pop(_FOLDER, None)
