"""What a reader should know where the sizes that a recipe asks for do not fit each other, or the clients."""

from __future__ import annotations

from collections.abc import Iterator

from polyrhythm.methods.participation.tier_sampling import TierSampling
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.release.base import Buffer


def about_sizes(recipe: Recipe, there: int, *, some_unable: bool) -> Iterator[str]:
    """Notices, one a line.

    Args:
        recipe: the method.
        there: clients that can be invited.
        some_unable: whether others hold data, but can never be invited.
    """
    asked, fills = recipe.cohort, recipe.fills_places
    if asked > there and recipe.participation.invites:
        verb = "can be invited" if some_unable else "holds data" if there == 1 else "hold data"
        clients = f"{there} client{'' if there == 1 else 's'} {verb}"
        if fills:
            yield f"concurrency {asked}, but {clients}: no more can be at work"
        else:
            they = "it takes" if there == 1 else "all of them take"
            yield f"cohort {asked}, but {clients}: {they} part in every version"
    for part in recipe.parts():
        if isinstance(part, Buffer) and part.size > min(asked, there) and not fills:
            yield (
                f"buffer(size={part.size}), but {min(asked, there)} clients are invited at a time: a version is made "
                "once all of them are heard"
            )
        if isinstance(part, TierSampling) and part.size > (most := -(-there // part.tiers)):
            yield f"tifl: cohort {part.size}, but {there} clients make {part.tiers} tiers of at most {most}"
