"""The cores are functions: what they are given is as it was, to the last bit, and the same goes in and comes out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from polyrhythm.base.flat_model import FlatModel
from polyrhythm.base.messages import Event
from polyrhythm.base.settings import Settings
from polyrhythm.base.streams import stream
from polyrhythm.core import client, training
from polyrhythm.core.client import work
from polyrhythm.core.client_state import ClientState, Memory
from polyrhythm.core.local_run import LocalRun
from polyrhythm.core.protocols import Opening
from polyrhythm.core.server import Server
from polyrhythm.core.server_state import ServerDecision
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.methods import together
from polyrhythm.methods.correction import (
    ControlVariates,
    DynamicRegularisation,
    ModelContrast,
    Prox,
    VarianceReduction,
)
from polyrhythm.methods.local.optimisers import LocalOptimiser, LocalSgd
from polyrhythm.methods.mechanism import Model
from polyrhythm.methods.papers import fedavg
from polyrhythm.methods.participation.base import InvitationContext, Sweep
from polyrhythm.methods.server_step import Adagrad, AMSGrad, Momentum, Sgd, Yogi
from polyrhythm.methods.weighing import Equal, NormalisedAveraging

from .law import law, swap
from .trials import Misfortune, Trial, misfortunes, trials
from .world import Federation, alike, copied, invitations, run, same

# What mutants wrap.
_BATCHES = LocalRun.batches
_MEASURE = client.measured
_EVALUATE = TorchEngine.evaluate

MIXES: tuple[tuple[Settings, ...], ...] = (
    (Sweep(), ControlVariates(), Prox(mu=0.1), NormalisedAveraging(), Momentum()),
    (VarianceReduction(), ModelContrast(layer="logits"), AMSGrad()),
    (Equal(), DynamicRegularisation(), Sgd(lr=0.5)),
    (ModelContrast(layer="features"), Yogi()),
    (ControlVariates(), Adagrad()),
)


def _steps_in_place(self: Sgd, setup: Any, state: Any, weights: Tensor, mean: Tensor) -> Any:
    return state, weights.add_(mean, alpha=self.lr)


def _duals_in_place(self: DynamicRegularisation, setup: Any, state: Any, brief: Any, outcome: Any) -> Any:
    state["dual"].add_(outcome.update, alpha=-self.alpha)
    return state, {}


def _carried_as_it_is(state: Any, like: Tensor, optimiser: LocalOptimiser) -> Any:
    return state if optimiser.keep_state and state else optimiser.start(like)


def _scaled_in_place(vectors: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    vectors = [v.mul_(w) for v, w in zip(vectors, weights, strict=True)]
    return torch.stack(vectors).sum(0)


def _shuffled_in_place(self: Sweep, setup: Any, state: Any, context: InvitationContext) -> Any:
    if not state["rest"]:
        state["rest"].extend(context.roster.all())
        stream(setup.seed, "cohort", context.version).shuffle(state["rest"])
    invited = tuple(state["rest"][: self.size])
    del state["rest"][: self.size]
    return state, invitations(invited)


@law(
    trial=trials(),
    parts=st.sampled_from(MIXES),
    keep=st.booleans(),
    happening=misfortunes(),
    examples=12,
    broken_by={
        "the server steps in place": swap(Sgd, "step", _steps_in_place),
        "the mean is made in place": swap(together, "weighted_sum", _scaled_in_place),
        "duals change in place": swap(DynamicRegularisation, "finish", _duals_in_place),
        "kept momentum changes in place": swap(training, "carry", _carried_as_it_is),
        "the sweep's list changes in place": swap(Sweep, "invite", _shuffled_in_place),
        "the engine trains the received weights": swap(
            FlatModel, "load", lambda self, weights, buffers: setattr(self, "weights", weights)
        ),
    },
)
def test_the_cores_leave_what_they_are_given_as_it_was(
    trial: Trial, parts: tuple[Settings, ...], keep: bool, happening: Misfortune
) -> None:
    federation = trial.federation
    steady = any(isinstance(part, (ControlVariates, VarianceReduction, NormalisedAveraging)) for part in parts)
    trial = trial.but(keep_state=keep and not steady, momentum=0.9 if keep else 0.0, nesterov=False)
    recipe = trial.recipe(*parts)
    engine, setup, roster, shards = federation.engine(), federation.setup(4), federation.roster(), federation.shards()
    server = Server(recipe=recipe, setup=setup, layout=engine.layout)
    initial, memories = engine.initial(), dict[int, Memory]()
    before: Any = copied(initial)
    turn = server.begin(initial.weights, initial.buffers, roster)
    assert same(initial, before)
    while turn.assignments:
        for assignment in turn.assignments:
            memory = memories.get(assignment.client, Memory())
            start = memory.at(assignment.accepted)
            before = copied((start, assignment))
            state, report = work(recipe, setup, start, assignment, shards[assignment.client], engine)
            assert same((start, assignment), before)
            memories[assignment.client] = memory.then(start, state, assignment.visit)
            event: Event = happening(assignment, report)
            before = copied((turn.state, event, state))
            previous, turn = turn, server.receive(turn.state, event, roster)
            assert same((previous.state, event, state), before)
            assert same((state, report), (memories[assignment.client].provisional, report))


def _counts(self: LocalRun) -> Any:
    SEEN.append(1)
    return _BATCHES(self) if len(SEEN) % 2 else iter(list(_BATCHES(self))[::-1])


SEEN: list[int] = []


@law(
    trial=trials(),
    parts=st.sampled_from(MIXES),
    broken_by={"depends on how often it was called": swap(LocalRun, "batches", _counts)},
)
def test_the_same_goes_in_and_the_same_comes_out(trial: Trial, parts: tuple[Settings, ...]) -> None:
    recipe, federation = trial.recipe(*parts), trial.federation
    engine, setup, roster, shards = federation.engine(), federation.setup(2), federation.roster(), federation.shards()
    server, initial = Server(recipe=recipe, setup=setup, layout=engine.layout), engine.initial()
    turn, again = (server.begin(initial.weights, initial.buffers, roster) for _ in range(2))
    assert same(turn, again)
    while turn.assignments:
        for assignment in turn.assignments:
            one, other = (
                work(recipe, setup, ClientState(), assignment, shards[assignment.client], engine) for _ in range(2)
            )
            assert same(one, other)
            turn, again = (server.receive(turn.state, one[1], roster) for _ in range(2))
            assert same(turn, again)


def _train_instead(recipe: Any, assignment: Any, data: Any, engine: Any, plan: Any) -> Any:
    received = Model(weights=assignment.weights, buffers=assignment.buffers)
    engine.open(Opening(data=data, start=received, received=received, previous=None, reuse=False))
    everything = np.arange(len(data))
    engine.compute(*data.batch(everything, None), everything)
    LocalSgd(lr=0.1).step_(engine.weights, engine.gradient, 0.1, {})
    assignment.weights.copy_(engine.weights)
    return _MEASURE(recipe, assignment, data, engine, plan)


@law(
    net=st.sampled_from(("perceptron", "batchnorm", "dropout", "odd")),
    broken_by={
        "a measurement trains": swap(client, "measured", _train_instead),
        "measured in training mode": swap(torch.nn.Module, "eval", lambda self: self),
    },
)
def test_a_measurement_touches_nothing_and_repeats(net: str) -> None:
    import dataclasses

    recipe, federation = fedavg(cohort=4), Federation(net=net)
    engine, setup, shards = federation.engine(), federation.setup(1), federation.shards()
    server, initial = Server(recipe=recipe, setup=setup, layout=engine.layout), engine.initial()
    turn = server.begin(initial.weights, initial.buffers, federation.roster())
    for assignment in turn.assignments:
        shard, measuring = shards[assignment.client], dataclasses.replace(assignment, kind="measure")
        trained, _ = work(recipe, setup, ClientState(), assignment, shard, engine)
        state, first = work(recipe, setup, trained, measuring, shard, engine)
        _, second = work(recipe, setup, ClientState(), measuring, shard, engine)
        assert same(state, trained)
        assert same(first, second)
        assert first.update is None
        assert same((measuring.weights, measuring.buffers), (initial.weights, initial.buffers))
        model = Model(weights=initial.weights, buffers=initial.buffers)
        assert same(first.measures, federation.engine().evaluate(model, shard))


def _warms_up(self: TorchEngine, model: Model, data: Any, positions: Any = None) -> Any:
    model.weights.mul_(1.001)
    return _EVALUATE(self, model, data, positions)


@law(
    trial=trials(nets=("batchnorm", "dropout", "perceptron")),
    parts=st.sampled_from(MIXES),
    broken_by={"evaluation changes the model": swap(TorchEngine, "evaluate", _warms_up)},
)
def test_evaluating_between_events_changes_no_weight(trial: Trial, parts: tuple[Settings, ...]) -> None:
    recipe, federation = trial.recipe(*parts), trial.federation
    shard = federation.shards()[0]

    def watch(engine: TorchEngine, turn: ServerDecision) -> None:
        engine.evaluate(Model(weights=turn.state.weights, buffers=turn.state.buffers), shard)

    watched, alone = run(recipe, federation, watch=watch), run(recipe, federation)
    assert alike(watched, alone)
    assert same(watched.states, alone.states)
