"""Predictions that a client makes of more than its model's outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import final

from torch import Tensor

from polyrhythm.base.messages import State
from polyrhythm.core.measuring import measuring
from polyrhythm.core.protocols import ClientData, Engine
from polyrhythm.methods.mechanism import Model, Setup, Visit
from polyrhythm.methods.recipe import Recipe


@final
@dataclass(frozen=True)
class Used:
    """What a client uses.

    Args:
        model: its weights and buffers.
        layer: the representation that `predicts` takes; "" where the model's outputs are the prediction.
        predicts: of some samples' outputs, [B, C], and representations, [B, F], what is predicted, [B, C].
    """

    model: Model
    layer: str = ""
    predicts: Callable[[Tensor, Tensor], Tensor] | None = None


def asked(recipe: Recipe, setup: Setup, parts: Mapping[str, State], client: int) -> State:
    """What the server sends a client for its predictions.

    Args:
        recipe: the method.
        setup: what is fixed for the run.
        parts: states of the server's mechanisms.
        client: to whom.
    """
    if not (label := recipe.personal.asks):
        return {}
    return next((m.brief(setup, parts[key], client) for key, m in recipe.mechanisms() if m.label() == label), {})


def predicting(recipe: Recipe, visit: Visit, model: Model, data: ClientData, engine: Engine, brief: State) -> Used:
    """What a client uses who has a model, with all that its predictions are made of.

    Args:
        recipe: the method.
        visit: as for a visit at which the version is sent.
        model: the one that it uses.
        data: its training samples.
        engine: computes; no visit may be under way in it.
        brief: as `asked` gives it.
    """
    part = recipe.personal
    if not part.reads:
        return Used(model)
    own: tuple[Tensor, Tensor] | None = None
    if part.compares:
        with measuring(engine, data, visit.seed, "own samples", visit.client, visit.version):
            _, features, classes = engine.represented(model, data, part.reads)
        own = features, classes
    return Used(model, part.reads, lambda outputs, features: part.predicts(outputs, features, own, brief))
