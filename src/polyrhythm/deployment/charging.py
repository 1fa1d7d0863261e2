"""What a server that goes on owes to privacy: the cost of versions that nodes have seen, and no checkpoint knows."""

from __future__ import annotations

import dataclasses

from polyrhythm.core.server_state import Released, ServerState
from polyrhythm.methods.recipe import Recipe
from polyrhythm.runs.charges import Charges


def heard_in(released: Released) -> frozenset[int]:
    """Who is in a version."""
    return frozenset(r.client for r in released.release.reports) if released.release is not None else frozenset()


def all_charged(recipe: Recipe, state: ServerState, charges: Charges) -> tuple[ServerState, str]:
    """The state with the cost of all versions, and how many of them it knew nothing of; empty if it knew all.

    Args:
        recipe: with `dp`.
        state: the server's, as a checkpoint has it.
        charges: of the run.
    """
    if (hiding := recipe.releasing.hiding) is None:
        return state, ""
    key, part = hiding
    versions, known = charges.all(), int(state.parts[key]["versions"])
    if len(versions) <= known:
        return state, ""
    more = len(versions) - known
    parts = {**state.parts, key: part.charged(state.parts[key], versions)}
    return dataclasses.replace(state, parts=parts), "1 version" if more == 1 else f"{more} versions"
