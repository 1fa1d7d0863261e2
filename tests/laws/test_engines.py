"""The stacked engine is the torch engine to rounding, and draws dropout by name.

To rounding: after three versions the weights lie 1e-5 apart at most, relative to the largest weight or 1.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor, nn

import polyrhythm as pr
from polyrhythm.base.threads import one_thread
from polyrhythm.core.protocols import Job
from polyrhythm.engines import stacked, step
from polyrhythm.engines.stacked import StackedEngine
from polyrhythm.engines.step import Masks
from polyrhythm.experiments.prepared import Prepared
from polyrhythm.methods.capacity.base import Widths
from polyrhythm.methods.capacity.random_width import RandomWidth
from polyrhythm.methods.capacity.rolling_window import RollingWindow
from polyrhythm.methods.capacity.width_prefix import WidthPrefix
from polyrhythm.methods.correction import Push
from polyrhythm.models.tasks import task
from polyrhythm.simulation.simulator import InlineDriver, SimulationStep
from polyrhythm.simulation.workers.executors import Clients, VisitTask
from small import ready

from .law import Mutation, law, swap
from .native import NETS, federation, local
from .test_native_recipes import METHODS, SIZES
from .world import near

SMALL = ("logistic", "perceptron", "functional", "tied")


class Tied(nn.Module):
    """A frozen layer, two that share their weights, and one that nothing depends on."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Linear(36, 8).requires_grad_(False)
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.second.weight = self.first.weight
        self.unused, self.head = nn.Linear(3, 3), nn.Linear(8, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = torch.tanh(self.first(self.frozen(inputs.flatten(1))))
        outputs: Tensor = self.head(torch.tanh(self.second(hidden)))
        return outputs


def tied(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return Tied()


def experiment(net: str, sizes: Sequence[int], recipe: pr.Recipe, engine: str, **changes: Any) -> Prepared:
    """An experiment with one of the nets."""
    model = tied if net == "tied" else NETS[net][0]
    made = federation("perceptron" if net == "tied" else net, sizes)
    given = {"federation": made, "model": model, "recipe": recipe, "rounds": 3, "device": "cpu"} | changes
    return ready(pr.Experiment, **given, engine=engine)


def story(of: Prepared) -> list[SimulationStep]:
    """All that happens in an experiment."""
    engine = of.chosen.engine
    executor = of.crew.executor(Clients(recipe=of.recipe, setup=of.setup, engine=engine, data=of.data_of))
    driver = InlineDriver(of.recipe, of.setup, engine, of.data_of, of.world(), executor=executor)
    return list(driver.moments(engine.initial()))


def compare(net: str, recipe: pr.Recipe, sizes: Sequence[int], *, taken: bool = True, **changes: Any) -> None:
    """Runs three versions with the stacked engine and with torch, and holds one to the other.

    What the engine does not take is torch's, to the last bit.
    """
    with one_thread():
        ours = experiment(net, sizes, recipe, "stacked", **changes)
        assert ours.chosen.kind == ("stacked" if taken else "torch"), ours.chosen.why_not
        theirs = experiment(net, sizes, recipe, "torch", **changes)
        for mine, wanted in zip(story(ours), story(theirs), strict=True):
            assert near(mine.turn.state.weights, wanted.turn.state.weights, 1e-5 if taken else 0.0)
            if mine.report is None or wanted.report is None:
                continue
            a, b = mine.report, wanted.report
            assert (a.steps, a.samples, a.rate, a.travel, a.idle) == (b.steps, b.samples, b.rate, b.travel, b.idle)
            assert (a.forward_samples, a.gradient_samples) == (b.forward_samples, b.gradient_samples)
            assert (a.loss or 0.0) == pytest.approx(b.loss or 0.0, rel=1e-4, abs=1e-6)
            assert dict(a.measures) == pytest.approx(dict(b.measures), rel=1e-3, abs=1e-7)


_ROUNDS = StackedEngine.local_rounds
_KEYS, _OF = step.keys_of, StackedEngine.of


def jobs(change: Callable[[Job], dict[str, Any]]) -> Mutation:
    """The mutant whose engines are given other jobs."""

    def changed(job: Job) -> Job:
        return dataclasses.replace(job, **change(job))

    def mutate(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(StackedEngine, "local_rounds", lambda self, jobs: _ROUNDS(self, list(map(changed, jobs))))

    return mutate


def optimisers(**settings: Any) -> Mutation:
    """The mutant whose engines take another optimiser."""

    def changed(has: Any) -> Any:
        return dataclasses.replace(has, optimiser=dataclasses.replace(has.optimiser, **settings))

    def mutate(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(StackedEngine, "local_rounds", lambda self, jobs: _ROUNDS(self, list(map(changed, jobs))))

    return mutate


def everywhere(name: str, other: object) -> Mutation:
    """The mutant in which a function of `step` is something else, wherever it is used."""

    def mutate(patch: pytest.MonkeyPatch) -> None:
        for module in (step, stacked):
            if hasattr(module, name):
                patch.setattr(module, name, other)

    return mutate


def _all_count(sizes: np.ndarray, width: int) -> np.ndarray:
    return np.broadcast_to(1 / np.maximum(sizes, 1)[..., None], (*sizes.shape, width)).copy()


def _all_go_on(self: StackedEngine, jobs: Sequence[Job]) -> Any:
    """Whoever has fewer steps takes as many as the longest."""
    longest = max(jobs, key=lambda job: len(job.ends))
    of_all = {"ends": longest.ends, "rates": longest.rates}
    count = len(longest.positions)
    return _ROUNDS(self, [dataclasses.replace(j, positions=np.resize(j.positions, count), **of_all) for j in jobs])


def _idle_move(self: StackedEngine, jobs: Sequence[Job]) -> Any:
    for done in _ROUNDS(self, jobs):
        for offset, size in done.idle if done is not None else ():
            self.weights[offset : offset + size] *= 0.99
        yield done


def _rates_of_the_first(self: StackedEngine, jobs: Sequence[Job]) -> Any:
    rates = jobs[0].rates
    return _ROUNDS(self, [dataclasses.replace(j, rates=np.resize(rates, len(j.ends)).tolist()) for j in jobs])


@law(
    net=st.sampled_from(SMALL),
    batch=st.sampled_from((1, 3, 16, None)),
    momentum=st.sampled_from((0.0, 0.9)),
    nesterov=st.booleans(),
    decay=st.sampled_from((0.0, 0.1)),
    clip=st.sampled_from((None, 0.5, 1e6)),
    mu=st.sampled_from((0.0, 0.5)),
    keep=st.booleans(),
    seed=st.integers(0, 3),
    examples=12,
    broken_by={
        "what fills up counts": everywhere("shares_of", _all_count),
        "the short go on": swap(StackedEngine, "local_rounds", _all_go_on),
        "no momentum": optimisers(momentum=0.0, nesterov=False),
        "no Nesterov": optimisers(nesterov=False),
        "no weight decay": optimisers(weight_decay=0.0),
        "never clipped": optimisers(clip=None),
        "not pulled": jobs(lambda job: {"push": None}),
        "pulled towards nothing": jobs(lambda job: {"start": torch.zeros_like(job.start)}),
        "another order": jobs(lambda job: {"positions": job.positions[::-1].copy()}),
        "momentum forgotten": jobs(lambda job: {"moments": {k: m.clone() for k, m in job.moments.items()}}),
        "the idle are stepped": swap(StackedEngine, "local_rounds", _idle_move),
    },
)
def test_a_round_is_its_optimisers(
    net: str,
    batch: int | None,
    momentum: float,
    nesterov: bool,
    decay: float,
    clip: float | None,
    mu: float,
    keep: bool,
    seed: int,
) -> None:
    optimiser = local(
        momentum=momentum,
        nesterov=nesterov and momentum > 0,
        weight_decay=decay,
        clip=clip,
        keep_state=keep and momentum > 0,
    )
    # Unequal clients, so unequal steps and batches; few steps, since with momentum rounding grows.
    recipe = pr.fedprox(mu=mu, cohort=4, epochs=1, batch=batch) | optimiser
    compare(net, recipe, (5, 18, 1, 9), seed=seed)


@law(
    net=st.sampled_from(("lenet5", "moon-cnn", "alexnet", "ccfl-mlp")),
    examples=6,
    broken_by={"half the way": jobs(lambda job: {"rates": [rate / 2 for rate in job.rates]})},
)
def test_every_net_is_the_same(net: str) -> None:
    compare(net, pr.fedavg(cohort=3, epochs=1, batch=8) | local(), (9, 21, 1, 17))


@law(
    method=st.sampled_from(tuple(METHODS)),
    examples=15,
    broken_by={
        "no shift": jobs(lambda job: {"push": job.push and Push(pull=job.push.pull)}),
        "no pull": jobs(lambda job: {"push": job.push and Push(shift=job.push.shift)}),
        "no factor": jobs(lambda job: {"push": job.push and dataclasses.replace(job.push, factor=1.0)}),
        "one rate": jobs(lambda job: {"rates": job.rates[:1] * len(job.rates)}),
    },
)
def test_every_method_is_the_same(method: str) -> None:
    """Local Adam, terms of the loss and early stops are left to torch."""
    taken = not any(word in method for word in ("adam", "moon", "alt", "lalr"))
    compare("perceptron", METHODS[method], SIZES, taken=taken)


_NARROWED = StackedEngine.narrowed


@law(
    part=st.sampled_from(
        (
            WidthPrefix(ratio=(1.0, 0.5), scaler=True),
            RollingWindow(ratio=(0.5, 0.25)),
            RandomWidth(ratio=0.5),
        )
    ),
    method=st.sampled_from(("fedprox", "scaffold")),
    seed=st.integers(0, 9),
    examples=6,
    broken_by={
        "not scaled": swap(StackedEngine, "narrowed", lambda self, portion, scale=1.0: _NARROWED(self, portion)),
        "half the way": jobs(lambda job: {"rates": [rate / 2 for rate in job.rates]}),
    },
)
def test_clients_with_parts_lie_beside_those_of_the_same_widths(part: Widths, method: str, seed: int) -> None:
    recipe = METHODS[method if part.static else "fedprox"]
    compare("perceptron", recipe | part, (9, 21, 1, 17, 6), seed=seed)


@law(
    sizes=st.permutations((33, 40, 12)),
    examples=3,
    broken_by={
        "one rate for all": swap(StackedEngine, "local_rounds", _rates_of_the_first),
    },
)
def test_a_schedule_over_steps_is_each_clients_own(sizes: list[int]) -> None:
    compare("perceptron", METHODS["cosine"], tuple(sizes))


def _not_smoothed(cls: type[StackedEngine], module: nn.Module, task: Any, *rest: Any) -> StackedEngine:
    return _OF(module, dataclasses.replace(task, smoothing=0.0) if hasattr(task, "smoothing") else task, *rest)


@law(
    aim=st.sampled_from((task("classification", smoothing=0.2), task("multilabel"), task("multilabel", labels="sum"))),
    examples=8,
    broken_by={"not smoothed": swap(StackedEngine, "of", classmethod(_not_smoothed))},
)
def test_a_task_is_the_same(aim: Any) -> None:
    given = {"federation": federation("perceptron", (9, 34, 17), aim.name == "multilabel"), "task": aim}
    compare("perceptron", pr.fedavg(cohort=3, epochs=1, batch=6) | local(), (9, 34, 17), **given)


_calls = iter(range(10**9))


@law(
    dropped=st.sampled_from((0.0, 0.5)),
    seed=st.integers(0, 3),
    examples=8,
    broken_by={
        "masks by call": everywhere("keys_of", lambda seed, steps, layers: _KEYS(next(_calls), steps, layers)),
    },
)
def test_it_does_not_matter_who_else_is_in_a_cohort(dropped: float, seed: int) -> None:
    def net(shape: tuple[int, ...], outputs: int) -> nn.Module:
        return pr.models.build("mlp", shape, outputs, hidden=(19, 7), dropout=dropped)

    recipe, sizes = pr.fedavg(cohort=4, epochs=2, batch=8) | local(momentum=0.9), (9, 21, 1, 17)
    with one_thread():
        ways = []
        for room in (2**30, 1, 2**30):
            with mock.patch.object(stacked, "ROOM", room):
                of = experiment("perceptron", sizes, recipe, "stacked", model=net, seed=seed)
                ways.append([moment.turn.state.weights for moment in story(of)])
    together, alone, again = ways
    assert all(map(torch.equal, together, again))
    assert all(near(a, b, 1e-5) for a, b in zip(together, alone, strict=True))


def mask(share: float, seed: int, at: int = 0, layer: int = 0, units: int = 4000) -> Tensor:
    """What dropout makes of ones."""
    keys = torch.from_numpy(step.keys_of(seed, at + 1, layer + 1)[at])
    with Masks(keys):
        for _ in range(layer + 1):
            drawn = nn.functional.dropout(torch.ones(units), share)
    return drawn


@law(
    share=st.sampled_from((0.05, 0.5, 0.9)),
    seed=st.integers(0, 2**63 - 1),
    examples=20,
    broken_by={
        "half as much": swap(nn.functional, "dropout", lambda inputs, share: inputs),
        "one mask for all visits": swap(step, "keys_of", lambda seed, steps, layers: _KEYS(0, steps, layers)),
    },
)
def test_dropout_follows_its_law(share: float, seed: int) -> None:
    one, again = mask(share, seed), mask(share, seed)
    others = mask(share, seed ^ 1), mask(share, seed, at=3), mask(share, seed, layer=2)
    assert torch.equal(one, again)
    for drawn in (one, *others):
        kept = drawn != 0
        assert torch.allclose(drawn[kept], torch.tensor(1 / (1 - share)))
        # Five standard deviations of a binomial: once in two million.
        assert abs(float(kept.double().mean()) - (1 - share)) < 5 * (share * (1 - share) / len(drawn)) ** 0.5
    for drawn in others:  # independent: both keep with the square of the probability
        both = float(((one != 0) & (drawn != 0)).double().mean())
        square = (1 - share) ** 2
        assert abs(both - square) < 5 * (square * (1 - square) / len(one)) ** 0.5


def _continued(patch: pytest.MonkeyPatch) -> None:
    """A visit that was not taken goes on where the engine is, which others have used meanwhile."""
    begin, visit, begun = Clients.begin, Clients.visit, dict[int, Any]()

    def kept(self: Clients, task: VisitTask) -> Any:
        begun[id(task)] = begin(self, task)
        return begun[id(task)]

    def resumed(self: Clients, task: VisitTask) -> Any:
        if id(task) not in begun:
            return visit(self, task)
        try:
            begun.pop(id(task)).send(None)
        except StopIteration as end:
            return end.value
        raise RuntimeError("a visit asks for its steps once")

    patch.setattr(Clients, "begin", kept)
    patch.setattr(Clients, "visit", resumed)


@law(
    taken=st.lists(st.booleans(), min_size=3, max_size=3),
    examples=6,
    broken_by={"begun with what was there": _continued},
)
def test_what_is_not_taken_is_begun_anew(taken: list[bool]) -> None:
    """A mixed cohort is the same as torch's; with nothing taken, to the last bit."""
    recipe = pr.scaffold() | pr.parts.uniform(cohort=3)
    with (
        mock.patch.object(stacked, "takes", side_effect=itertools.chain(taken * 3, itertools.repeat(False))),
        one_thread(),
    ):
        ours = story(experiment("perceptron", (9, 21, 17), recipe, "stacked"))
    theirs = story(experiment("perceptron", (9, 21, 17), recipe, "torch"))
    for mine, wanted in zip(ours, theirs, strict=True):
        assert near(mine.turn.state.weights, wanted.turn.state.weights, 1e-5 if any(taken) else 0.0)
