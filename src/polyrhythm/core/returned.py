"""What an update carries back, of all that a client was sent."""

from __future__ import annotations

import functools
from dataclasses import replace

from polyrhythm.base.adapters import Factor, of_factor
from polyrhythm.base.vectors import Layout, Segment
from polyrhythm.methods.recipe import Recipe


def returned(recipe: Recipe, shared: Layout, version: int) -> Layout:
    """The layout of the same vectors, which names only what a visit to a version sends back.

    Args:
        recipe: the method.
        shared: names what is shared between server and clients.
        version: of the model that was sent.
    """
    rests = recipe.rests(version)
    return _without(shared, rests) if rests is not None or shared.served else shared


def resting(recipe: Recipe, layout: Layout, version: int) -> tuple[Segment, ...]:
    """The parameters that the steps of a visit to a version leave as they are."""
    rests = recipe.rests(version)
    return () if rests is None else of_factor(layout, rests)


@functools.lru_cache(maxsize=64)
def _without(shared: Layout, rests: Factor | None) -> Layout:
    left = {*shared.served, *(of_factor(shared, rests) if rests is not None else ())}
    return replace(shared, segments=tuple(s for s in shared.segments if s not in left))
