"""Which engine computes an experiment's local steps: by a fixed rule, never by a timing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import nn

from polyrhythm.data.samples import Samples
from polyrhythm.engines.native.engine import LARGEST, NativeEngine
from polyrhythm.engines.native.extension import extension
from polyrhythm.engines.native.program import Unsupported
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.recipe import Recipe
from polyrhythm.slots.stopping import StopOnDrift
from polyrhythm.tasks import Task

Asked = Literal["auto", "torch", "native"]
ENGINES: tuple[Asked, ...] = ("auto", "torch", "native")
AnyEngine = TorchEngine | NativeEngine
WORTHWHILE = 8  # samples in a batch: with fewer, more than half of the native engine's 16 lanes stand idle


@final
@dataclass(frozen=True, kw_only=True)
class Chosen:
    """An engine, and why it is that one.

    Args:
        engine: with the initial model in it.
        name: "torch", or "native" with the instruction set in brackets.
        why_not: why it is not native, if native was asked for or would have been chosen; else "".
    """

    engine: AnyEngine
    name: str
    why_not: str = ""


def choose(asked: Asked, module: nn.Module, task: Task, samples: Samples, largest: int, recipe: Recipe) -> Chosen:
    """Makes the engine for an experiment.

    "native" is native wherever that can be; "auto" is, too, if batches have at least 8 samples. Both are else torch.

    Args:
        asked: by the user.
        module: the model.
        task: its loss.
        samples: what clients train on.
        largest: samples of the client that holds most.
        recipe: the method.
    """
    if asked != "torch":
        try:
            _check(samples, batch := min(recipe.batch or largest, largest))
            if asked == "auto" and batch < WORTHWHILE:
                raise Unsupported(f"batches of {batch} leave most of its lanes idle")
            native = NativeEngine(module, task, samples.shape)
            _finds(native, recipe)
            return Chosen(engine=native, name=f"native ({extension().kernels()[0]})")
        except Unsupported as reason:
            return Chosen(engine=TorchEngine(module, task), name="torch", why_not=str(reason))
    return Chosen(engine=TorchEngine(module, task), name="torch")


def _check(samples: Samples, batch: int) -> None:
    """Refuses what depends neither on the model nor on the method."""
    if extension() is None:
        raise Unsupported("it was not compiled when polyrhythm was installed, for which it needs a C++ compiler")
    first, _ = samples.batch(torch.zeros(1, dtype=torch.int64))
    if first.dtype != torch.float32:
        raise Unsupported("samples are not float32")
    if batch > LARGEST:
        raise Unsupported(f"batches of {batch:,} samples are more than {LARGEST:,}")


def _finds(engine: NativeEngine, recipe: Recipe) -> None:
    """Refuses a method that looks at a representation which the engine does not find in the model."""
    asked = {layer for correction in recipe.corrections for layer in correction.layers or ()}
    asked |= {part.representation for part in recipe.parts() if isinstance(part, StopOnDrift)}
    for layer in sorted(asked - engine.program.places.keys()):
        raise Unsupported(f"it does not find {layer} in the model")
