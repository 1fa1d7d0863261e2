"""What a client that has never taken part makes of a version for itself."""

from __future__ import annotations

from polyrhythm.base.messages import Assignment, State
from polyrhythm.core.client import work
from polyrhythm.core.client_state import ClientState
from polyrhythm.core.protocols import ClientData, Engine
from polyrhythm.core.server_state import ServerState
from polyrhythm.methods.mechanism import Setup
from polyrhythm.methods.recipe import Recipe


def settled_in(
    recipe: Recipe, setup: Setup, server: ServerState, client: int, data: ClientData, engine: Engine, visits: int = 1
) -> ClientState:
    """What a newcomer remembers after visits of which it sends nothing: its own layers, or its own model.

    Each is what the recipe says of a visit on this version, with the draws of the client's first ones; the shared part
    that it trains is let go.

    Args:
        recipe: the method.
        setup: what is fixed for the run.
        server: the version, and what its mechanisms send down with it.
        client: its number.
        data: its training samples.
        engine: computes; no visit may be under way in it.
        visits: how many.
    """
    briefs: dict[str, State] = {}
    for key, mechanism in recipe.overriding("brief"):
        if brief := mechanism.brief(setup, server.parts[key], client):
            briefs[key] = brief
    state = ClientState()
    for visit in range(visits):
        assignment = Assignment(
            dispatch=server.dispatched,
            client=client,
            visit=visit,
            accepted=visit - 1,
            kind="train",
            version=server.version,
            total_rounds=setup.total_rounds,
            weights=server.weights,
            buffers=server.buffers,
            briefs=briefs,
            recipe=recipe.digest,
        )
        state, _ = work(recipe, setup, state, assignment, data, engine)
    return state
