"""How much memory a visit needs at a client, at the very least."""

from __future__ import annotations

import torch

from polyrhythm.base.vectors import Layout, bytes_of
from polyrhythm.methods.mechanism import Setup
from polyrhythm.methods.recipe import Recipe

_OF_TRAINING = 4  # the weights as received, the weights, the gradient, and the update


def least_memory(recipe: Recipe, layout: Layout) -> int:
    """A lower bound for the bytes that a training visit keeps at the same time.

    Counted are the vectors of P weights: those received, those being trained, the gradient and the update; the state of
    the local optimiser; what the recipe's parts keep at a client from one visit to the next; and the last local model,
    if a part asks for it. Not counted is what the server sends beside the weights, and what depends on how a device
    does its work: activations, samples, buffers, and the program itself. So a device with less can certainly not take
    part, and one with more may still not be able to.

    Args:
        recipe: the method.
        layout: of the vectors.
    """
    setup = Setup(size=layout.size, dtype=layout.dtype, population=1, total_rounds=None, seed=0)
    optimiser = recipe.optimiser.start(torch.empty(layout.size, dtype=layout.dtype))
    kept = [mechanism.client_start(setup) for _, mechanism in recipe.mechanisms()]
    vectors = _OF_TRAINING + ("previous" in recipe.needs())
    served = sum(segment.size for segment in layout.served) * layout.dtype.itemsize  # of which there is one
    return vectors * layout.vector_bytes - (vectors - 1) * served + bytes_of(optimiser, layout) + bytes_of(kept, layout)
