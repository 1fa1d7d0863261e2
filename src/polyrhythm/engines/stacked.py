"""An engine that takes the steps of a cohort at once: clients lie side by side, vectors are [K, P].

For a GPU, which one client's small batches would leave idle. Rules:

- Clients are in the order of their steps, longest first. So those still at work are always the first rows, and a step
  is taken with just these: nothing is masked, and who has finished costs nothing.
- A short batch is filled up; see `step`.
- Samples and vectors are on the device for the whole round, and nothing is read back before its end.
- Clients with parts of the model lie beside those of the same widths, in vectors of their own.
- Numbers equal the torch engine's to rounding: the same order of operations in a step, other sums. A client's numbers
  may depend in their last bits on who else is in the cohort, since kernels sum differently for other shapes.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import final

import numpy as np
import torch
from torch import Tensor, nn

from polyrhythm.base.portions import Portion
from polyrhythm.base.vectors import CPU
from polyrhythm.core.protocols import Done, Job
from polyrhythm.data.holding import Holding
from polyrhythm.data.samples import Samples
from polyrhythm.engines.around import AroundTorch
from polyrhythm.engines.exactness import computing
from polyrhythm.engines.kinds import Precision
from polyrhythm.engines.step import Batch, Step, keys_of, rows_of, shares_of, sizes_of, takes
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.engines.uploads import Uploads
from polyrhythm.methods.local.optimisers import LocalSgd, clip_
from polyrhythm.models.task import Task

ROOM = 2**30
"""Bytes that a cohort may take without a GPU; on a GPU half of its memory, or of a share of it.

A larger one is cut into pieces that are as equal as they can be. Where a GPU has less memory than it seemed, as when
somebody else uses it, pieces are halved, with a warning.
"""

VECTORS = 8  # [K, P], at most: weights, start, gradient, shift, momentum, and what an operation makes


@final
class StackedEngine(AroundTorch):
    """Local rounds of a cohort at once, on one device; all else by the torch engine inside.

    Args:
        inside: the torch engine.
        step: the gradient of one client's batch, on the device.
        device: where to compute.
        share: of a GPU, whose memory others may be using too.
        precision: of products. Whatever it is, models are measured in float32.
        whole: the engine of the model that this one computes a part of; it has the samples for both.
    """

    def __init__(
        self,
        inside: TorchEngine,
        step: Step,
        device: torch.device,
        share: float = 1.0,
        precision: Precision = "float32",
        whole: StackedEngine | None = None,
    ) -> None:
        super().__init__(inside)
        self._step, self.device, self._share, self._precision = step, device, share, precision
        self._uploads: Uploads = Uploads(device) if whole is None else whole._uploads
        self._whole, self._parts = whole, dict[tuple[Hashable, float], StackedEngine]()
        self._here: tuple[Tensor, Tensor, Tensor, Tensor] | None = None
        self._most: int | None = None  # clients that had room, once others had not

    @classmethod
    def of(cls, module: nn.Module, task: Task, samples: Samples, device: torch.device) -> StackedEngine:
        """One for a model.

        Args:
            module: the model; copied, never changed.
            task: its loss and metrics.
            samples: what clients train on.
            device: where to compute.

        Raises:
            Unsupported: the model or the task cannot be stacked.
        """
        inside = TorchEngine(module, task, device)
        step = Step(inside.module, task, inside.layout, inside.weights, samples, device)
        return cls(inside, step, device)

    def on(self, device: torch.device, share: float = 1.0) -> StackedEngine:
        return StackedEngine(self._torch.on(device), self._step.on(device), device, share, self._precision)

    def narrowed(self, portion: Portion, scale: float = 1.0) -> StackedEngine:
        """An engine of a part of the module, the same one for parts of the same widths; see `core.portions.Narrows`."""
        key = portion.key, scale
        if key not in self._parts:
            inside = self._torch.narrowed(portion, scale)
            assert isinstance(inside, TorchEngine)
            step = self._step.narrowed(inside.module, inside.layout)
            self._parts[key] = StackedEngine(inside, step, self.device, self._share, self._precision, self)
        return self._parts[key]

    def computing_in(self, precision: Precision) -> StackedEngine:
        """The same engine with products of that precision."""
        return StackedEngine(self._torch, self._step, self.device, self._share, precision)

    def __reduce__(self) -> tuple[type[StackedEngine], tuple[TorchEngine, Step, torch.device, float, Precision]]:
        # It travels without samples, and by way of the processor: where it arrives may be no such device.
        return StackedEngine, (self._torch.on(CPU), self._step.on(CPU), CPU, 1.0, self._precision)

    @property
    def dropouts(self) -> int:
        """How often a pass draws dropout."""
        return self._step.layers

    def local_round(self, job: Job) -> Done | None:
        return next(self.local_rounds([job]))

    def local_rounds(self, jobs: Sequence[Job]) -> Iterator[Done | None]:
        if all(job.within is None or job.within is self for job in jobs):
            yield from self._rounds(jobs)
            return
        found = dict[int, Iterator[Done | None]]()
        own = [self if job.within is None else job.within for job in jobs]
        for engine in own:
            if id(engine) not in found:
                assert isinstance(engine, StackedEngine)
                found[id(engine)] = engine._rounds([j for j, e in zip(jobs, own, strict=True) if e is engine])
        for engine in own:
            yield next(found[id(engine)])

    def _rounds(self, jobs: Sequence[Job]) -> Iterator[Done | None]:
        """Those of clients with the same widths."""
        taken = sorted((i for i, job in enumerate(jobs) if takes(job)), key=lambda i: -len(jobs[i].ends))
        ended = dict[int, tuple[Tensor, Done]]()
        brought: _Cohort | None = None
        while taken:
            some = taken[: self._size(jobs, taken)]
            rest = taken[len(some) :]
            after = rest[: self._size(jobs, rest)] if rest else []
            found = self._tried([jobs[i] for i in some], brought, [jobs[i] for i in after])
            if found is None:
                brought = None
                self._halve(len(some))
                continue
            taken, brought = rest, found[1]
            ended |= zip(some, found[0], strict=True)
        for i in range(len(jobs)):
            if i in ended:
                self.weights.copy_(ended[i][0])
                self._torch.stepped()
            yield ended[i][1] if i in ended else None

    def _size(self, jobs: Sequence[Job], taken: Sequence[int]) -> int:
        """How many of these come next: all that have room, or a piece no larger than the others need be."""
        width = max(int(sizes_of(jobs[i]).max(initial=0)) for i in taken)
        each = VECTORS * self.weights.nbytes + width * self._step.kept
        room = ROOM
        if self.device.type == "cuda":
            room = int(torch.cuda.get_device_properties(self.device).total_memory * self._share) // 2
        most = max(1, room // each)
        if self._most is not None:
            most = min(most, self._most)
        pieces = -(-len(taken) // most)
        return -(-len(taken) // pieces)

    def _tried(
        self, jobs: Sequence[Job], brought: _Cohort | None, after: Sequence[Job]
    ) -> tuple[list[tuple[Tensor, Done]], _Cohort | None] | None:
        """Where each ended, and those who come next; None if memory was short, and then no job was changed.

        Args:
            jobs: those whose turn it is.
            brought: the same on the device, if they are there already.
            after: those who come next; brought to the device meanwhile, if there is room for both.

        Raises:
            torch.cuda.OutOfMemoryError: there is not enough for one.
        """
        try:
            with torch.no_grad(), computing(self.device, self._precision):
                return self._together(jobs, brought, after)
        except torch.cuda.OutOfMemoryError:
            if len(jobs) == 1:
                raise
            return None

    def _halve(self, size: int) -> None:
        """From now on half as many lie side by side."""
        self._most = size // 2
        torch.cuda.empty_cache()  # what was there for those that had no room is in other shapes than what comes
        warnings.warn(
            f"there was no memory for {size} clients side by side: from now on it is {self._most} at most. Last bits "
            f"may be others than on a device with more; stack = {self._most} gives the same ones everywhere",
            stacklevel=4,
        )

    def _together(
        self, jobs: Sequence[Job], brought: _Cohort | None = None, after: Sequence[Job] = ()
    ) -> tuple[list[tuple[Tensor, Done]], _Cohort | None]:
        cohort = self._brought(jobs) if brought is None else brought
        self._uploads.hand_over(cohort.tensors())
        for step in range(cohort.steps):
            cohort.take(step)
        following: _Cohort | None = None
        if after:
            try:
                following = self._brought(after)
            except torch.cuda.OutOfMemoryError:  # they are brought when these have gone
                torch.cuda.empty_cache()
        return cohort.ended(), following

    def _brought(self, jobs: Sequence[Job]) -> _Cohort:
        """The visits on the device, or on their way there."""
        with self._uploads.beside():
            return _Cohort(self._step, jobs, *self._samples(jobs[0]), self._uploads)

    def _samples(self, job: Job) -> tuple[Tensor, Tensor]:
        """All inputs and targets on the device, brought there once."""
        if self._whole is not None:
            return self._whole._samples(job)
        assert isinstance(job.data, Holding)
        arrays = job.data.arrays()
        assert arrays is not None
        inputs, targets, _ = arrays
        if self._here is None or self._here[0] is not inputs or self._here[1] is not targets:
            bring = self._uploads.bring
            self._here = inputs, targets, bring(inputs), bring(targets)
        return self._here[2:]


@final
class _Cohort:
    """The rounds of some visits, those with most steps first.

    Args:
        step: the gradient of one of them.
        jobs: of the same data, K.
        inputs, targets: all samples, on the device.
        uploads: by which all else comes there.
    """

    def __init__(self, step: Step, jobs: Sequence[Job], inputs: Tensor, targets: Tensor, uploads: Uploads) -> None:
        self._step, self._jobs, self._inputs, self._targets, self._uploads = step, jobs, inputs, targets, uploads
        self._optimiser = jobs[0].optimiser
        assert isinstance(self._optimiser, LocalSgd)
        self._tabulate()
        self._start = _together([job.start for job in jobs], uploads)
        self._weights = self._start.clone(memory_format=torch.contiguous_format)
        self._gradient = torch.zeros_like(self._weights)
        self._moments = {
            name: _together([m for job in jobs if isinstance(m := job.moments[name], Tensor)], uploads).clone()
            for name in jobs[0].moments
        }
        self._pushed = any(job.push is not None for job in jobs)
        pulls = [0.0 if job.push is None else job.push.pull for job in jobs]
        kind = self._weights.dtype
        self._pull = uploads.bring(torch.tensor(pulls, dtype=kind))[:, None]
        factors = [1.0 if job.push is None else job.push.factor for job in jobs]
        self._factor = None
        if any(factor != 1.0 for factor in factors):
            self._factor = uploads.bring(torch.tensor(factors, dtype=kind))[:, None]
        shifts = [None if job.push is None else job.push.shift for job in jobs]
        self._shift = None
        if any(shift is not None for shift in shifts):
            none = torch.zeros_like(jobs[0].start)
            self._shift = _together([none if shift is None else shift for shift in shifts], uploads)
        self._sums = torch.zeros(3, len(jobs), dtype=torch.float64, device=self._weights.device)
        self._kept = [(part, part.clone()) for part in self._idle()]

    @property
    def steps(self) -> int:
        """Of the longest."""
        return len(self._active)

    def _tabulate(self) -> None:
        """What is known beforehand of every step, with steps in front of clients."""
        jobs, layers = self._jobs, self._step.layers
        steps = len(jobs[0].ends)
        sizes = np.zeros((steps, len(jobs)), dtype=np.int64)
        for k, job in enumerate(jobs):
            sizes[: len(job.ends), k] = sizes_of(job)
        self._widths = sizes.max(axis=1, initial=0)
        self._active = (sizes > 0).sum(axis=1)
        width = int(self._widths.max(initial=0))
        rows = np.zeros((steps, len(jobs), width), dtype=np.int64)
        keys = np.zeros((steps, len(jobs), layers, 2), dtype=np.int64)
        self._rates = np.zeros((steps, len(jobs)))
        for k, job in enumerate(jobs):
            count = len(job.ends)
            rows[:count, k] = rows_of(job, width)
            keys[:count, k] = keys_of(job.seed, count, layers)
            self._rates[:count, k] = job.rates
        self._rates_there: Tensor | None = None
        if (self._rates != self._rates[:, :1]).any():
            self._rates_there = self._uploads.bring(torch.from_numpy(self._rates).to(jobs[0].start.dtype))
        self._rows, self._keys = (self._uploads.bring(torch.from_numpy(table)) for table in (rows, keys))
        self._shares = self._uploads.bring(torch.from_numpy(shares_of(sizes, width)).to(jobs[0].start.dtype))

    def _idle(self) -> list[Tensor]:
        """The parts of weights and moments that no step touches."""
        return [s.of(vector) for vector in (self._weights, *self._moments.values()) for s in self._step.idle]

    def tensors(self) -> list[Tensor]:
        """Everything on the device that steps are computed from."""
        found = [self._inputs, self._targets, self._rows, self._keys, self._shares, self._start, self._weights]
        found += [self._gradient, self._pull, self._sums, *self._moments.values(), *(kept for _, kept in self._kept)]
        return found + [tensor for tensor in (self._factor, self._shift, self._rates_there) if tensor is not None]

    def take(self, step: int) -> None:
        """One step of all who have so many. Nothing in it waits for the device."""
        now, width = slice(int(self._active[step])), slice(int(self._widths[step]))
        weights, gradient = self._weights[now], self._gradient[now]
        rows, shares = self._rows[step, now, width], self._shares[step, now, width]
        inputs, targets = (_taken(values, rows) for values in (self._inputs, self._targets))
        gradients, losses, means = self._step(weights, Batch(inputs, targets, shares, self._keys[step, now]))
        torch._foreach_copy_([s.of(gradient) for s in self._step.used], list(gradients))
        for segment in self._step.idle:  # what weight decay has left there
            segment.of(gradient).zero_()
        if self._optimiser.clip is not None:
            clip_(gradient, self._optimiser.clip)
        self._look(now, losses.double(), means.double(), shares > 0, gradient)
        if self._pushed:
            if self._factor is not None:
                gradient.mul_(self._factor[now])
            gradient.addcmul_(weights - self._start[now], self._pull[now])
            if self._shift is not None:
                gradient.add_(self._shift[now])
        moments: dict[str, Tensor | int] = {name: moment[now] for name, moment in self._moments.items()}
        self._optimiser.step_(weights, gradient, self._rate(step, now), moments)

    def _look(self, now: slice, losses: Tensor, means: Tensor, there: Tensor, gradient: Tensor) -> None:
        """Adds up what is measured: losses, squared losses, squared norms of gradients."""
        losses = losses * there
        self._sums[0, now] += losses.sum(dim=1) if self._step.by_samples else means * there.sum(dim=1)
        self._sums[1, now] += losses.square().sum(dim=1)
        if self._jobs[0].gradient_squares:
            self._sums[2, now] += torch.linalg.vector_norm(gradient, dim=-1).double().square()

    def _rate(self, step: int, now: slice) -> float | Tensor:
        """One for all, or one for each."""
        rates = self._rates[step, now]
        if (rates == rates[0]).all():
            return float(rates[0])
        assert self._rates_there is not None
        return self._rates_there[step, now, None]

    def ended(self) -> list[tuple[Tensor, Done]]:
        """Where each ended, in the memory of the processor, with its moments written back."""
        for part, before in self._kept:
            part.copy_(before)
        weights, sums = self._weights.cpu(), self._sums.tolist()
        moments: Mapping[str, Tensor] = {name: moment.cpu() for name, moment in self._moments.items()}
        idle = tuple((s.offset, s.size) for s in self._step.idle)
        found = []
        for k, job in enumerate(self._jobs):
            for name, moment in moments.items():
                place = job.moments[name]
                assert isinstance(place, Tensor)
                place.copy_(moment[k])
            done = Done(loss=sums[0][k], squared_loss=sums[1][k], gradient_squares=sums[2][k], idle=idle)
            found.append((weights[k], done))
        return found


def _together(vectors: Sequence[Tensor], uploads: Uploads) -> Tensor:
    """Vectors as the rows of a matrix on the device, [K, P]; one that all share is brought there once."""
    first = vectors[0]
    if all(vector is first for vector in vectors):
        return uploads.bring(first).expand(len(vectors), -1)
    return uploads.bring(torch.stack(list(vectors)))


def _taken(values: Tensor, rows: Tensor) -> Tensor:
    """values[rows], [K, B, ...]."""
    return values.index_select(0, rows.flatten()).view(*rows.shape, *values.shape[1:])
