"""Which engine computes an experiment's local steps: by a fixed rule, never by a timing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import nn

from polyrhythm.data.holding import Holding
from polyrhythm.data.samples import Samples
from polyrhythm.engines.native.engine import LARGEST, NativeEngine, extension
from polyrhythm.engines.native.program import Unsupported
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.optimisers import LocalSgd
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
            _check(samples, recipe, batch := min(recipe.batch or largest, largest))
            if asked == "auto" and batch < WORTHWHILE:
                raise Unsupported(f"batches of {batch} leave most of its lanes idle")
            native = NativeEngine(module, task, samples.shape)
            return Chosen(engine=native, name=f"native ({extension().kernels()[0]})")
        except Unsupported as reason:
            return Chosen(engine=TorchEngine(module, task), name="torch", why_not=str(reason))
    return Chosen(engine=TorchEngine(module, task), name="torch")


def _check(samples: Samples, recipe: Recipe, batch: int) -> None:
    """Refuses what does not depend on the model."""
    if extension() is None:
        raise Unsupported("it was not compiled when polyrhythm was installed, for which it needs a C++ compiler")
    if type(recipe.optimiser) is not LocalSgd:
        raise Unsupported(f"{recipe.optimiser.label()} is not written for it")
    for correction in recipe.corrections:
        if correction.layers is not None:
            raise Unsupported(f"{correction.label()} adds a term to the loss of each batch")
    if any(isinstance(part, StopOnDrift) for part in recipe.parts()):
        raise Unsupported("stop_on_drift looks at each batch")
    arrays = Holding(samples).arrays()
    if arrays is None or arrays[0].dtype != torch.float32 or not arrays[0].is_contiguous():
        raise Unsupported("samples are augmented, transformed or made when they are read, or are not float32")
    if batch > LARGEST:
        raise Unsupported(f"batches of {batch:,} samples are more than {LARGEST:,}")
