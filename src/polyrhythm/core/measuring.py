"""Where chance comes from when a model is looked at, not trained: a stream named by what is looked at, not by when.

A model may draw in eval mode, too: noise in its forward pass, dropout that is always on. Each set under each model has
a stream of its own, so that no number depends on what else was measured, by whom, or whether the run was interrupted;
and training draws the same whether anything is measured or not.
"""

from __future__ import annotations

import contextlib

from polyrhythm.base.streams import seeded_torch
from polyrhythm.core.protocols import ClientData, Engine


def measuring(
    engine: Engine, data: ClientData, seed: int, *names: int | str
) -> contextlib.AbstractContextManager[None]:
    """Has whatever a model or its samples draw in a block come from a stream of that name.

    Nothing is done where nothing can draw, so that threads whose engines draw by name need not wait for each other.

    Args:
        engine: computes in the block.
        data: what it reads there.
        seed: the run's.
        names: what is measured: a set and the model's version, or a client and its visit.
    """
    if hasattr(engine, "names_draws") and _lie_there(data):
        return contextlib.nullcontext()
    return seeded_torch(seed, "measure", *names)


def _lie_there(data: ClientData) -> bool:
    """Whether reading the samples is surely no more than copying them."""
    arrays = getattr(data, "arrays", None)
    return arrays is not None and arrays() is not None
