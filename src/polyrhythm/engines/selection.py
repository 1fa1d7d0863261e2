"""Which engine computes an experiment's local steps: by a fixed rule from model, data, recipe and device, never by a
timing.

"auto" is the first of these that holds:

1. *native*, if it was compiled, takes the work, batches have 8 samples or more, no convolution is `broad`,
   and no LSTM has `UNITS`;
2. *stacked*, if there is a GPU, a turn has several visits, and it takes the work;
3. *torch*.

Where another precision than float32 is asked for, it is *stacked* or torch: nothing else computes in another one.

What is asked for by name is that wherever it takes the work, and else torch. Whichever it is, it has then been held to
torch for this module (`engines.proof`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import nn

from polyrhythm.base.compiled import extension
from polyrhythm.base.streams import seeded_torch
from polyrhythm.base.vectors import CPU
from polyrhythm.core.protocols import Opening
from polyrhythm.data.holding import Holding
from polyrhythm.data.samples import Samples
from polyrhythm.engines.devices import named
from polyrhythm.engines.frugal import PLAIN, Frugal, mixes_samples, refuse
from polyrhythm.engines.kinds import Asked, Named, Precision
from polyrhythm.engines.native.engine import LARGEST, NativeEngine
from polyrhythm.engines.native.program import Convolution, Program, Recurrence, shape_after
from polyrhythm.engines.proof import prove
from polyrhythm.engines.stacked import StackedEngine
from polyrhythm.engines.step import CLOSE, Masks
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.engines.unsupported import NotBuilt, Unlike, Unsupported
from polyrhythm.methods.local.optimisers import LocalSgd
from polyrhythm.methods.recipe import Recipe
from polyrhythm.models.calling import structure_taken
from polyrhythm.models.task import Task

AnyEngine = TorchEngine | NativeEngine | StackedEngine
WORTHWHILE = 8  # samples in a batch: with fewer, linear layers leave more than half of the lanes idle
UNITS = 144  # of an LSTM: from there on torch's kernels are about as fast
BROAD = 32_000_000  # products of a convolution for one sample: from there on torch's kernels are as fast


@final
@dataclass(frozen=True, kw_only=True)
class Chosen:
    """An engine, and why it is that one.

    Args:
        engine: with the initial model in it.
        kind: what to ask for to have the same again.
        detail: on what it computes, for those that can compute on several things: an instruction set, a device.
        why_not: why it is not the one that was asked for, or that the rule would have taken; else "".
        refused: which that is; else "".
        notes: what a reader should know of the state of the model.
        woken: parts of the model that were given in evaluation mode, and are in training mode in training.
    """

    engine: AnyEngine
    kind: Named
    detail: str = ""
    why_not: str = ""
    refused: str = ""
    notes: tuple[str, ...] = ()
    woken: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The kind, and in brackets the detail."""
        return f"{self.kind} ({self.detail})" if self.detail else self.kind


@final
@dataclass(frozen=True, kw_only=True)
class Work:
    """What an engine would have to do.

    Args:
        module: the model.
        task: its loss.
        samples: what clients train on.
        recipe: the method.
        largest: samples of the client that holds most.
        at_once: visits in a turn, as far as one engine is given them.
        device: where a cohort's steps may be computed.
        precision: of the products in them.
        frugal: what steps spare of memory; only torch does.
    """

    module: nn.Module
    task: Task
    samples: Samples
    recipe: Recipe
    largest: int
    at_once: int = 1
    device: torch.device = CPU
    precision: Precision = "float32"
    frugal: Frugal = PLAIN

    @property
    def batch(self) -> int:
        """Samples in the largest batch."""
        return min(self.recipe.batch or self.largest, self.largest)


def candidates(asked: Asked, device: torch.device, at_once: int, precision: Precision = "float32") -> tuple[Named, ...]:
    """The engines to try before torch, in order."""
    if asked == "auto" and precision != "float32":
        return ("stacked",)
    if asked == "auto":
        return ("native", "stacked") if device.type == "cuda" and at_once > 1 else ("native",)
    return () if asked == "torch" else (asked,)


def choose(asked: Asked, work: Work) -> Chosen:
    """Makes the engine for an experiment, by the rule of this module."""
    refused, why_not = "", ""
    if work.frugal != PLAIN:
        return _frugal(work)
    exact = work.precision == "float32"
    for kind in candidates(asked, work.device, work.at_once, work.precision):
        try:
            if asked == "auto" and kind == "native":
                _fills_lanes(work.batch)  # before the module is read, which takes longest
            chosen = _MAKERS[kind](work)
            if asked == "auto" and isinstance(chosen.engine, NativeEngine):
                _worthwhile(chosen.engine)
            _prove(chosen.engine, work)
            return chosen if exact else _short(chosen, work.precision)
        except Unsupported as reason:
            # The rule passes over what an engine does not know in silence, but not what it would have got wrong, nor
            # that the faster one was never compiled, which only whoever installs can mend.
            if asked != "auto" or not exact or isinstance(reason, Unlike | NotBuilt):
                refused, why_not = kind, str(reason)
    engine = TorchEngine(work.module, work.task)
    return Chosen(engine=engine, kind="torch", why_not=why_not, refused=refused)


def _frugal(work: Work) -> Chosen:
    """The torch engine in less memory.

    Raises:
        UserError: the model, the task or the recipe does not allow it.
    """
    engine, recipe = TorchEngine(work.module, work.task, frugal=work.frugal), work.recipe
    others = [part.label() for part in recipe.corrections if part.layers is not None]
    others += [recipe.personal.label()] if recipe.personal.gradients > 1 else []
    others += [] if recipe.capacity.whole else [recipe.capacity.label()]
    refuse(
        work.frugal,
        engine.module,
        mixes=engine.single_sample_fails,
        buffers=bool(engine.layout.buffers),
        mean=work.task.divisible,
        others=others,
    )
    size = work.frugal.micro_batch
    if size is not None:
        prove_in_pieces(work, size)
    told = ([] if size is None else [f"{size} samples at once"]) + (["recomputed"] if work.frugal.recompute else [])
    return Chosen(engine=engine, kind="torch", detail=", ".join(told))


def prove_in_pieces(work: Work, size: int) -> None:
    """Goes on if the gradient of some samples is that of their pieces, without dropout.

    Raises:
        UserError: it is not.
    """
    few = min(8, len(work.samples))
    data, positions, found = Holding(work.samples, torch.arange(few)), np.arange(few), list[torch.Tensor]()
    for frugal in (PLAIN, Frugal(micro_batch=max(1, few // 2 - 1))):
        engine = TorchEngine(work.module, work.task, frugal=frugal)
        model = engine.initial()
        engine.open(Opening(data=data, start=model, received=model, previous=None, reuse=False))
        with Masks(None), seeded_torch(0, "network", "proved"):
            engine.compute(*data.batch(positions, None), positions)
        found.append(engine.gradient.clone())
    if not float((found[1] - found[0]).norm()) <= CLOSE * float(found[0].norm()):
        raise mixes_samples(size, "what it computes of a sample depends on the others of its batch")


def _short(chosen: Chosen, precision: Precision) -> Chosen:
    """The stacked engine, held to torch in float32, as it computes in another precision."""
    assert isinstance(chosen.engine, StackedEngine)
    engine = chosen.engine.computing_in(precision)
    return dataclasses.replace(chosen, engine=engine, detail=f"{chosen.detail}, {precision}")


def _prove(engine: AnyEngine, work: Work) -> None:
    """Refuses an engine that computes something else than torch of this module."""
    if isinstance(engine, TorchEngine):
        return
    prove(engine, work.samples, batch=work.batch, layers=work.recipe.watches)


def _native(work: Work) -> Chosen:
    _check(work.module, work.samples, work.batch)
    if why := work.recipe.capacity.beyond_kernels:
        raise Unsupported(f"{why}, for which there is no kernel")
    engine = NativeEngine(work.module, work.task, work.samples.shape)
    _finds(engine, work.recipe)
    return Chosen(engine=engine, kind="native", detail=extension().kernels()[0])


def _fills_lanes(batch: int) -> None:
    """Refuses batches in which the native engine is no faster than torch."""
    if batch < WORTHWHILE:
        raise Unsupported(f"batches of {batch} leave most of its lanes idle")


def _worthwhile(engine: NativeEngine) -> None:
    """Refuses models in which it is no faster than torch."""
    if (units := max((p.hidden for p in engine.program.layers if isinstance(p, Recurrence)), default=0)) >= UNITS:
        raise Unsupported(f"an LSTM has {units:,} units, for which torch is as fast")
    if (most := _products(engine.program)) >= BROAD:
        raise Unsupported(f"a convolution makes {most:,} products for a sample, for which torch is as fast")


def _products(program: Program) -> int:
    """What the largest convolution multiplies for one sample, without what lies outside of it.

    Those that can be computed in squares make fewer products than torch's, and do not count.
    """
    most = 0
    for layer, shape in zip(program.layers, program.inputs, strict=True):
        if isinstance(layer, Convolution) and not _in_squares(layer, shape):
            windows = zip(shape[1:], layer.kernel, layer.stride, layer.padding, strict=True)
            most = max(most, layer.rows * shape[0] * math.prod(_inside(*window) for window in windows))
    return most


def _in_squares(layer: Convolution, shape: tuple[int, int, int]) -> bool:
    """Whether a convolution of such a map is of 3 × 3 with stride 1, and has an even number of outputs on each side."""
    small = (layer.kernel, layer.stride) == ((3, 3), (1, 1))
    return small and not any(size % 2 for size in shape_after(layer, shape)[1:])


def _inside(size: int, kernel: int, stride: int, padding: int) -> int:
    """How many places of a window lie inside along one side, over all places where it is put."""
    starts = range(-padding, size + padding - kernel + 1, stride)
    return sum(min(start + kernel, size) - max(start, 0) for start in starts)


def _stacked(work: Work) -> Chosen:
    _all_steps_at_once(work)
    engine = StackedEngine.of(work.module, work.task, work.samples, work.device)
    return Chosen(engine=engine, kind="stacked", detail=named(work.device))


_MAKERS: Mapping[Named, Callable[[Work], Chosen]] = {"native": _native, "stacked": _stacked}


def _all_steps_at_once(work: Work) -> None:
    """Refuses a method that looks at single steps, and samples that are made one batch after the other."""
    recipe = work.recipe
    capacity = recipe.capacity
    if capacity.by_classes or capacity.cuts != "widths":
        why = capacity.beyond_kernels or "clients train parts of different shapes"
        raise Unsupported(f"with {capacity.label()} {why}")
    if type(recipe.optimiser) is not LocalSgd:
        raise Unsupported(f"{recipe.optimiser.label()} is not written for it")
    for correction in recipe.corrections:
        if correction.layers is not None:
            raise Unsupported(f"{correction.label()} adds a term to the loss of each batch")
    for part in recipe.parts():
        if part.watches:
            raise Unsupported(f"{part.label()} looks at each batch")
    if Holding(work.samples).arrays() is None:
        raise Unsupported("samples are augmented, transformed or made when they are read")


def _check(module: nn.Module, samples: Samples, batch: int) -> None:
    """Refuses what depends neither on the model nor on the method."""
    if extension() is None:
        raise NotBuilt("it was not compiled when polyrhythm was installed, for which it needs a C++ compiler")
    first, _ = samples.batch(torch.zeros(1, dtype=torch.int64))
    if structure_taken(module) is not None:
        raise Unsupported("a sample is several arrays, or padded")
    if first.dtype not in (torch.float32, torch.int64):
        raise Unsupported("samples are neither float32 nor tokens")
    if batch > LARGEST:
        raise Unsupported(f"batches of {batch:,} samples are more than {LARGEST:,}")


def _finds(engine: NativeEngine, recipe: Recipe) -> None:
    """Refuses a method that looks at a representation which the engine does not find in the model."""
    for layer in recipe.watches:
        if layer not in engine.program.places:
            raise Unsupported(f"it does not find {layer} in the model")
