"""An engine that computes in C++: whole local rounds, single steps that Python has a say in, and frozen models' passes.

Rules:

- float32, the layers of `program.py`, and arrays of samples, measured ones or tokens, or batches that somebody makes. A
  round that has nothing but these, SGD or Adam, pushes, MOON's term and a representation to watch is taken at once; a
  step of anything else (other optimisers, other terms, augmented samples) is computed in two halves, between which
  Python adds its part.
- Numbers equal the torch engine's to rounding: the same order of operations in a step, other sums. They are the same
  bits for any number of threads and, where the processor can fuse multiply and add, on any width of registers.
- Dropout draws from the visit's stream by step, layer and element: the law of torch's masks, not their bits.
- Running statistics of batch norms begin a visit as those of its model, move once a step, and are its buffers at the
  end; frozen passes read those of the model that they are of.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Hashable, Iterator, Sequence
from typing import ClassVar, final

import numpy as np
import torch
from torch import Tensor, nn

from polyrhythm.base.portions import Portion
from polyrhythm.base.vectors import Buffers, Layout
from polyrhythm.core.local_step import Computed, LocalSteps
from polyrhythm.core.protocols import ClientData, Done, Job, Opening
from polyrhythm.engines.looking import FrozenLens, View
from polyrhythm.engines.native.extension import compiled, holds
from polyrhythm.engines.native.jobs import divided, moments_of, slopes_of
from polyrhythm.engines.native.passes import Passes, arrays, goals, rows, tokens
from polyrhythm.engines.native.program import Dropout, Program
from polyrhythm.engines.native.reading import program_of
from polyrhythm.engines.native.statistics import Statistics
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.engines.unsupported import Unsupported
from polyrhythm.methods.correction import ModelContrast, Term, Which
from polyrhythm.methods.local.optimisers import LocalAdam, LocalSgd
from polyrhythm.methods.mechanism import Model
from polyrhythm.methods.personal.guides import Slope
from polyrhythm.models.parts import part_of
from polyrhythm.models.tally import Tally
from polyrhythm.models.task import Task

LARGEST = 2048  # samples in a batch; beyond it the room between layers would be gigabytes


@final
class NativeEngine(LocalSteps):
    """Training and frozen passes in C++, for one module and one task. A thread needs one of its own.

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
    names_draws: ClassVar[bool] = True

    def __init__(
        self,
        module: nn.Module,
        task: Task,
        shape: tuple[int, ...],
        kernels: str = "",
        program: Program | None = None,
    ) -> None:
        self._torch = TorchEngine(module, task)
        self._task = task
        self._made_of = (task, shape, kernels)
        self.module.train()
        self.program = program or program_of(self.module, self.layout, task, shape)
        self._training = compiled(self.program, kernels)
        # In a room of their own: a batch may be half way in the other.
        self._passes = Passes(self.program, compiled(self.program, kernels), task)
        self._idle = tuple((s.offset, s.size) for s in self.program.idle)
        self._statistics = Statistics(self.program, self._torch.buffers())
        self._visit: Opening | None = None
        self._features: dict[tuple[Which, str], Tensor] = {}
        self._step = self.forward_samples = 0
        self._parts: dict[Hashable, NativeEngine] = {}
        self._programs: dict[Hashable, Program] = {}  # of parts, where they were read before

    def __reduce__(self) -> tuple[type[NativeEngine], tuple[object, ...]]:
        return NativeEngine, (self._torch.given(), *self._made_of)

    def twin(self) -> NativeEngine:
        """Another engine of the same kind, for another thread; ask for it while this one is idle."""
        other = NativeEngine(self.module, *self._made_of, self.program)
        other._programs = {**self._programs, **{key: part.program for key, part in self._parts.items()}}
        return other

    def narrowed(self, portion: Portion, scale: float = 1.0) -> NativeEngine:
        """An engine of a part of the module, the same one for parts of the same shape; see `core.portions.Narrows`.

        Raises:
            Unsupported: what it gives is to be scaled.
        """
        if scale != 1.0:
            raise Unsupported("what narrower layers give is scaled, for which there is no kernel")
        key = portion.key
        if key not in self._parts:
            module = part_of(self._torch.given(), portion)
            self._parts[key] = NativeEngine(module, *self._made_of, self._programs.get(key))
        return self._parts[key]

    @property
    def reference(self) -> TorchEngine:
        """The torch engine inside, with the same weights."""
        return self._torch

    def dropped(self, samples: int) -> list[tuple[float, int]]:
        """Which share of how many numbers each layer of dropout drops in a batch of so many samples."""
        layers, program = self.program.layers, self.program
        return [(p.share, samples * program.width(i)) for i, p in enumerate(layers) if isinstance(p, Dropout)]

    @contextlib.contextmanager
    def undropped(self) -> Iterator[None]:
        """Has training drop nothing within a block."""
        kept = self._training
        if any(isinstance(p, Dropout) for p in self.program.layers):
            layers = (dataclasses.replace(p, share=0.0) if isinstance(p, Dropout) else p for p in self.program.layers)
            self._training = compiled(dataclasses.replace(self.program, layers=tuple(layers)), self._made_of[2])
        try:
            yield
        finally:
            self._training = kept

    def open(self, visit: Opening) -> None:
        self.weights.copy_(visit.start.weights)
        self._statistics = Statistics(self.program, visit.start.buffers)
        self._visit, self._step, self.forward_samples = visit, 0, 0
        self._features.clear()

    def local_round(self, job: Job) -> Done | None:
        read = tokens if self.program.reads_tokens else arrays
        known, moments = read(job.data), moments_of(job)
        if known is None or moments is None or any(type(term) is not ModelContrast for term in job.terms[:1]):
            return None
        factor = 1.0 if job.push is None else job.push.factor
        if job.held and (type(job.optimiser) is not LocalSgd or not holds()):
            return None  # Adam counts the steps of each part by itself then
        if len(job.terms) > 1 or (factor != 1.0 and (factor <= 0 or type(job.optimiser) is not LocalSgd)):
            return None
        inputs, targets, held = known
        optimiser, order = job.optimiser, job.positions
        # Under SGD, steps by factor * g + rest are steps by g + rest / factor at a rate that is factor times as high.
        push = job.push if job.push is None or factor == 1.0 else divided(job.push)
        shift = None if push is None else push.shift
        for moment in job.moments.values() if factor != 1.0 else ():
            assert isinstance(moment, Tensor)
            moment.div_(factor)
        seen = self.forward_samples
        watch, pair = self._watched(job)
        contrast = self._contrast(job)
        loss, squared_loss, gradient_squares = self._training.run(
            weights=self.weights.numpy(),
            start=None if push is None else job.start.numpy(),
            shift=None if shift is None else shift.numpy(),
            inputs=inputs,
            **goals(self.program, targets),
            order=order if held is None else held[order],
            ends=job.ends,
            rates=np.array([rate * factor for rate in job.rates], dtype=np.float32),
            first=job.first,
            pull=0.0 if push is None else push.pull,
            decay=optimiser.weight_decay / factor,
            **moments,
            clip=optimiser.clip or 0.0,
            gradient_squares=job.gradient_squares,
            seed=job.seed,
            watch=watch,
            still=not self.one_mode,
            contrast=contrast,
            **self._statistics.given,
            **({"held": np.array([s.offset for s in job.held], dtype=np.int64)} if job.held else {}),
        )
        for moment in job.moments.values() if factor != 1.0 else ():
            assert isinstance(moment, Tensor)
            moment.mul_(factor)
        self._torch.stepped()
        self._step += len(job.rates)
        self._statistics.batches += len(job.rates)
        if isinstance(optimiser, LocalAdam):
            job.moments["steps"] += len(job.rates)
        return Done(
            loss=loss,
            squared_loss=squared_loss,
            gradient_squares=gradient_squares,
            idle=(*self._idle, *((s.offset, s.size) for s in job.held if (s.offset, s.size) not in self._idle)),
            pair=pair,
            forward_samples=self.forward_samples - seen,
        )

    def _watched(self, job: Job) -> tuple[tuple[int, np.ndarray] | None, tuple[Tensor, Tensor] | None]:
        """Room for what is watched in a job, and the pair that it will be half of."""
        if job.watch is None:
            return None, None
        place, samples = self.program.places[job.watch], len(job.positions)
        current = torch.empty(samples, place.width)
        if not self.one_mode:
            self.forward_samples += samples
        received, rows = self._frozen_rows("received", job.watch, job)
        return (place.layers, current.numpy()), (current, received.index_select(0, torch.from_numpy(rows)))

    def _contrast(self, job: Job) -> tuple[object, ...] | None:
        """MOON's term, if the job has one."""
        for term in job.terms:
            if isinstance(term, ModelContrast) and self.has("previous"):
                near, rows = self._frozen_rows("received", term.layer, job)
                far, _ = self._frozen_rows("previous", term.layer, job)
                place = self.program.places[term.layer].layers
                return place, near.numpy(), far.numpy(), rows, term.mu, term.temperature
        return None

    def _frozen_rows(self, which: Which, layer: str, job: Job) -> tuple[Tensor, np.ndarray]:
        """Representations under a frozen model, and which of them belongs to each sample of a job."""
        if self._open().reuse:
            return self._everywhere(which, layer), np.ascontiguousarray(job.positions)
        self.forward_samples += len(job.positions)
        model, place = self._model(which), self.program.places[layer]
        found = [z for z, _ in self._passes.over(model, place, job.data, job.positions)]
        return torch.cat(found), np.arange(len(job.positions))

    def compute(
        self,
        inputs: Tensor,
        targets: Tensor,
        positions: np.ndarray,
        terms: Sequence[Term] = (),
        watch: str | None = None,
        squares: bool = False,
    ) -> Computed:
        places = self.program.places
        layers = {name for term in terms for name in term.layers or ()}
        if watch is not None and self.one_mode:
            layers.add(watch)
        current = {name: torch.empty(len(inputs), places[name].width) for name in sorted(layers)}
        pair = None
        if watch is not None:
            judged = current[watch] if self.one_mode else self._judged(watch, inputs)
            pair = judged, self.frozen_features("received", watch, inputs, positions)
        loss, squared = self._ahead(inputs, targets, [(places[name].layers, z.numpy()) for name, z in current.items()])
        more = slopes_of(terms, View(self, inputs, targets, positions, current), current) if terms else {}
        slopes = [(places[name].layers, slope.numpy()) for name, slope in more.items()]
        self._training.back(weights=self.weights.numpy(), gradient=self.gradient.numpy(), more=slopes)
        mean = torch.tensor(loss / len(inputs))
        return Computed(mean, self.program.idle, pair, torch.tensor(squared, dtype=torch.float64) if squares else None)

    def _judged(self, layer: str, inputs: Tensor) -> Tensor:
        self.forward_samples += len(inputs)
        now = Model(weights=self.weights, buffers=self.buffers())
        return self._passes.look(now, self.program.places[layer], rows(inputs))

    def outputs(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """The outputs of a batch in training."""
        place = self.program.outputs
        found = torch.empty(len(inputs), place.width)
        self._ahead(inputs, targets, [(place.layers, found.numpy())])
        return found

    def _ahead(self, inputs: Tensor, targets: Tensor, places: list[tuple[int, np.ndarray]]) -> tuple[float, float]:
        """The first half of a batch, which moves the statistics: fills in places; gives losses and their squares."""
        found = self._training.ahead(
            weights=self.weights.numpy(),
            inputs=rows(inputs),
            **goals(self.program, targets),
            order=np.arange(len(inputs)),
            step=self._step,
            seed=self._open().seed,
            places=places,
            **self._statistics.given,
        )
        self._statistics.batches += 1
        return found

    def slope(
        self, at: Tensor, inputs: Tensor, targets: Tensor, positions: np.ndarray, buffers: Buffers | None
    ) -> Slope:
        own = self._statistics
        self._statistics = Statistics(self.program, self.buffers() if buffers is None else buffers)
        try:
            return super().slope(at, inputs, targets, positions, None)._replace(buffers=self.buffers())
        finally:
            self._statistics = own

    # Frozen models.

    def has(self, which: Which) -> bool:
        """Whether this visit has such a model."""
        return which == "received" or (which == "previous" and self._open().previous is not None)

    def _model(self, which: Which) -> Model:
        model = self._open().received if which == "received" else self._open().previous
        assert model is not None, f"no {which} model in this visit"
        return model

    def frozen_features(self, which: Which, layer: str, inputs: Tensor, positions: np.ndarray) -> Tensor:
        """Representation of a batch under a frozen model; from all samples at once where the visit reuses it."""
        if self._open().reuse:
            return self._everywhere(which, layer).index_select(0, torch.from_numpy(np.ascontiguousarray(positions)))
        self.forward_samples += len(inputs)
        model, place = self._model(which), self.program.places[layer]
        return self._passes.look(model, place, rows(inputs))

    def _everywhere(self, which: Which, layer: str) -> Tensor:
        """Representations of all of the visit's samples, computed once."""
        data, key = self._open().data, (which, layer)
        if key not in self._features:
            passes = self._passes.over(self._model(which), self.program.places[layer], data)
            self._features[key] = torch.cat([z for z, _ in passes])
            self.forward_samples += len(data)
        return self._features[key]

    def frozen_outputs(self, which: Which) -> tuple[Tensor, Tensor]:
        """Outputs of a frozen model for all of the visit's samples, and their targets."""
        data = self._open().data
        self.forward_samples += len(data)
        passes = self._passes.over(self._model(which), self.program.outputs, data)
        outputs, targets = zip(*passes, strict=True)
        return torch.cat(outputs), torch.cat(targets)

    def evaluate(self, model: Model, data: ClientData, positions: np.ndarray | None = None) -> dict[str, float]:
        return self._task.read(self.tally(model, data, positions))

    def tally(
        self, model: Model, data: ClientData, positions: np.ndarray | None = None, *, by_class: bool = False
    ) -> Tally:
        """What the task counts over a client's samples, in eval mode."""
        return self._passes.tally(model, data, positions, by_class=by_class)

    def fisher(self, model: Model, data: ClientData, *, labels: np.random.Generator | None = None) -> float:
        self.forward_samples += 0 if labels is None else len(data)
        return self._passes.fisher(model, data, labels)

    def represented(self, model: Model, data: ClientData, layer: str) -> tuple[Tensor, Tensor, Tensor]:
        return self._torch.represented(model, data, layer)

    def lens(self) -> FrozenLens:
        return FrozenLens(self, self._task, self._open().data)

    def _open(self) -> Opening:
        if self._visit is None:
            raise RuntimeError("this belongs to a visit: open one first")
        return self._visit

    # The rest is the torch engine's.

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
    def gradient(self) -> Tensor:
        return self._torch.gradient

    @property
    def single_sample_fails(self) -> bool:
        return self._torch.single_sample_fails

    @property
    def one_mode(self) -> bool:
        return self._torch.one_mode

    def initial(self) -> Model:
        """The module's own weights and buffers, as it was given. Only before the first visit."""
        return self._torch.initial()

    def state_of(self, model: Model) -> dict[str, Tensor]:
        """A model's whole state dict by name."""
        return self._torch.state_of(model)

    def stepped(self) -> None:
        self._step += 1
        self._torch.stepped()

    def buffers(self) -> Buffers:
        return self._statistics.buffers()
