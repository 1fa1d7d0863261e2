"""A few versions of any recipe on a tiny federation, with a say in who answers when and what becomes of states."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, final

import numpy as np
import torch
from torch import Tensor

from laws.world import Federation, Shard, copied, same
from polyrhythm.base.messages import Assignment, Report, Timer
from polyrhythm.core.client import work
from polyrhythm.core.client_state import Memory
from polyrhythm.core.forecast import Pace
from polyrhythm.core.protocols import ClientData
from polyrhythm.core.server import Server
from polyrhythm.core.server_state import ServerState
from polyrhythm.core.visit_plan import plan_visit
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.methods.mechanism import Setup
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.work.base import OfWork

VERSIONS = 3
PACE = Pace(seconds_per_sample=0.1)  # of everybody: two steps of four samples in a second


@final
class Scored(Shard):
    """Samples with an expert's verdict."""

    def fixed(self, name: str) -> np.ndarray:
        scores: np.ndarray = self.inputs.square().sum(1).double().numpy()
        return scores


@final
class FleetState:
    """Four clients with a tiny model; one engine for all runs, since it must remember nothing."""

    def __init__(self, net: str, along: Literal["widths", "depth", "magnitude", "ranks"] = "widths") -> None:
        federation = Federation(net="normalised exits" if along == "depth" else net, along=along)
        self.engine: TorchEngine = federation.engine()
        self.setup: Setup = federation.setup(VERSIONS)
        self.roster = federation.roster()
        self.data: list[ClientData] = [Scored(s.inputs, s.targets) for s in federation.shards()]
        self.initial = self.engine.initial()


world = functools.cache(FleetState)


def net_for(recipe: Recipe, net: str) -> str:
    """The net that a recipe is tried on: one with adapters, if it is about them."""
    if not any(part.of_adapters for part in recipe.parts()):
        return net
    if any(part.freezes is not None for _, part in recipe.of(OfWork)):
        return "adapters, A frozen"
    return "adapters, served" if recipe.moves_base else "adapters"


@final
@dataclass(kw_only=True)
class Trip:
    """What a run gave: weights and buffers of every version, every report by dispatch number, the last states."""

    models: list[tuple[Tensor, tuple[Tensor, ...]]] = field(default_factory=list)
    reports: dict[int, Report] = field(default_factory=dict)
    state: ServerState | None = None

    @property
    def finite(self) -> bool:
        return all(bool(torch.isfinite(weights).all()) for weights, _ in self.models)


def travel(
    recipe: Recipe,
    net: str = "perceptron",
    *,
    turn_of: Callable[[int], int] = lambda waiting: 0,
    kept: Callable[[Any], Any] = lambda state: state,
    careful: bool = False,
) -> Trip:
    """Three versions.

    Args:
        recipe: the method.
        net: the model.
        turn_of: given how many assignments are out, the place of the one that is answered next.
        kept: what becomes of every state from one event to the next.
        careful: whether to assert that neither core changes what it is given.
    """
    here, trip, memories = world(net_for(recipe, net), recipe.capacity.cuts), Trip(), dict[int, Memory]()
    server = Server(recipe=recipe, setup=here.setup, layout=here.engine.layout)
    turn = server.begin(here.initial.weights, here.initial.buffers, here.roster)
    waiting: list[Assignment] = [*turn.assignments]
    while turn.state.version < VERSIONS:
        assert len(trip.reports) < 60, "no end"
        if not waiting and turn.wake_up is not None:  # nobody was drawn for a version
            turn = server.receive(kept(turn.state), Timer(time=turn.wake_up), here.roster)
            waiting += turn.assignments
            trip.models.append((turn.state.weights, turn.state.buffers))
            continue
        assert waiting, f"version {turn.state.version}: nobody is invited"
        assignment = waiting.pop(turn_of(len(waiting)))
        client = assignment.client
        memory = memories.get(client, Memory())
        start = memory.at(assignment.accepted)
        before = copied((turn.state, start, assignment)) if careful else None
        visit = recipe, here.setup, start, assignment, here.data[client], here.engine
        state, report = work(*visit, plan_visit(*visit, PACE))
        if assignment.kind == "train":
            memories[client] = kept(memory.then(start, state, assignment.visit))
        trip.reports[assignment.dispatch] = report
        heard = copied(report) if careful else None
        after = server.receive(kept(turn.state), report, here.roster)
        if careful:
            assert same((turn.state, start, assignment), before)
            assert same(report, heard)
        assert after.verdict is not None
        assert after.verdict.accepted, after.verdict.reason
        turn = after
        waiting += turn.assignments
        if turn.released is not None:
            trip.models.append((turn.state.weights, turn.state.buffers))
    trip.state = turn.state
    return trip


def equal(one: Trip, other: Trip) -> bool:
    """Whether all versions are the same to the last bit."""
    return same(one.models, other.models)
