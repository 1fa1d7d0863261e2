"""The native engine is the torch engine to rounding, the same bits in any thread, and masks by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor, nn

import polyrhythm as pr
from polyrhythm.core.interfaces import Done, Job, Opening
from polyrhythm.data import ArraySamples, Collection
from polyrhythm.data.holding import Holding
from polyrhythm.drivers.inline import InlineDriver, Moment
from polyrhythm.engines.native import engine as native
from polyrhythm.engines.native import program
from polyrhythm.engines.native.engine import NativeEngine, extension
from polyrhythm.engines.native.program import AveragePool, Convolution, Linear, MaxPool, Program, Relu
from polyrhythm.optimisers import LocalSgd
from polyrhythm.slots.correction import Push
from polyrhythm.slots.critical import FisherTrace
from polyrhythm.slots.mechanism import Model
from polyrhythm.tasks import task
from polyrhythm.threads import one_thread
from small import dealt

from .law import Mutation, law, swap
from .world import near

_ROUND = NativeEngine.local_round
_PROGRAM = native.program_of
_COMPILED = native.compiled


def needs_extension() -> None:
    if extension() is None:
        pytest.skip("polyrhythm was installed without its compiled extension")


def jobs(change: Callable[[Job], dict[str, Any]]) -> Mutation:
    """The mutant that is given another job."""
    return swap(NativeEngine, "local_round", lambda self, job: _ROUND(self, dataclasses.replace(job, **change(job))))


def optimisers(**settings: Any) -> Mutation:
    """The mutant whose optimiser has other settings."""
    return jobs(lambda job: {"optimiser": dataclasses.replace(job.optimiser, **settings)})


def layers(kind: type, **settings: Any) -> Mutation:
    """The mutant whose layers of a kind have other settings."""

    def made(*arguments: Any) -> Program:
        whole = _PROGRAM(*arguments)
        changed = (dataclasses.replace(p, **settings) if isinstance(p, kind) else p for p in whole.layers)
        return dataclasses.replace(whole, layers=tuple(changed))

    return swap(native, "program_of", made)


def without(kind: type) -> Mutation:
    """The mutant that leaves out layers of a kind."""

    def made(*arguments: Any) -> Program:
        whole = _PROGRAM(*arguments)
        return dataclasses.replace(whole, layers=tuple(p for p in whole.layers if not isinstance(p, kind)))

    return swap(native, "program_of", made)


class Functional(nn.Module):
    """A network of functions, with windows of every kind, unused weights, and a layer without a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Conv2d(2, 3, (3, 2), stride=(2, 1), padding=(1, 0))
        self.narrow = nn.Conv2d(3, 5, 3, padding=2, bias=False)
        self.unused = nn.Linear(2, 2)
        self.head = nn.Linear(5 * 5 * 5, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = nn.functional.max_pool2d(torch.relu(self.wide(inputs)), 3, stride=2, padding=1)
        hidden = nn.functional.avg_pool2d(self.narrow(hidden).relu(), 3, stride=(1, 1), padding=1)
        outputs: Tensor = self.head(hidden.flatten(1))
        return outputs


def functional_net(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return Functional()


# Name or builder, the shape of a sample, and outputs.
NETS: dict[str, tuple[Any, tuple[int, ...], int]] = {
    "logistic": ("logistic", (5,), 3),
    "perceptron": (lambda shape, outputs: pr.models.build("mlp", shape, outputs, hidden=(19, 7)), (1, 6, 6), 3),
    "ccfl-mlp": (lambda shape, outputs: pr.models.build("ccfl-mlp", shape, outputs, dropout=0.0), (1, 6, 6), 11),
    "lenet5": ("lenet5", (3, 17, 16), 4),
    "functional": (functional_net, (2, 11, 7), 3),
    "moon-cnn": ("moon-cnn", (1, 16, 16), 3),
    "alexnet": (lambda shape, outputs: pr.models.build("alexnet", shape, outputs, dropout=0.0), (3, 16, 16), 3),
}
SMALL = ("logistic", "perceptron", "ccfl-mlp", "functional")


def federation(net: str, sizes: Sequence[int], tags: bool = False) -> pr.data.Federation:
    """Noise of a net's shape, dealt out unevenly."""
    _, shape, outputs = NETS[net]
    generator = np.random.default_rng(5)
    count = sum(sizes)
    inputs = torch.tensor(generator.normal(size=(count, *shape)), dtype=torch.float32)
    labels = generator.integers(0, outputs, count) if not tags else generator.random((count, outputs)) < 0.4
    samples = ArraySamples(inputs, torch.tensor(labels.astype(np.float32 if tags else np.int64)))
    data = Collection(
        name="noise",
        task="multilabel" if tags else "classification",
        classes=tuple(str(c) for c in range(outputs)),
        train=samples,
        test=samples,
    )
    return dealt(data, list(sizes))


def story(experiment: pr.Experiment) -> list[Moment]:
    """All that happens in an experiment."""
    engine = experiment.chosen.engine
    driver = InlineDriver(experiment.recipe, experiment.setup, engine, experiment.data_of, experiment.world())
    return list(driver.moments(engine.initial()))


def compare(recipe: pr.Recipe, net: str = "perceptron", sizes: Sequence[int] = (9, 34, 1, 17), **changes: Any) -> None:
    """Runs three versions with either engine and holds one to the other."""
    needs_extension()
    tags = "task" in changes and changes["task"].name == "multilabel"
    what = {"federation": federation(net, sizes, tags), "model": NETS[net][0], "recipe": recipe, "rounds": 3} | changes
    ours, theirs = (pr.Experiment(**what, engine=engine) for engine in ("native", "torch"))
    assert isinstance(ours.chosen.engine, NativeEngine)
    with one_thread():
        for mine, wanted in zip(story(ours), story(theirs), strict=True):
            assert near(mine.turn.state.weights, wanted.turn.state.weights, 2e-6)
            if mine.report is None or wanted.report is None:
                continue
            a, b = mine.report, wanted.report
            assert (a.steps, a.samples, a.rate, a.travel, a.idle) == (b.steps, b.samples, b.rate, b.travel, b.idle)
            assert (a.forward_samples, a.gradient_samples) == (b.forward_samples, b.gradient_samples)
            assert (a.loss or 0.0) == pytest.approx(b.loss or 0.0, rel=1e-5, abs=1e-6)
            assert dict(a.measures) == pytest.approx(dict(b.measures), rel=1e-4, abs=1e-7)


def local(**settings: Any) -> LocalSgd:
    return LocalSgd(lr=0.02, **settings)


@law(
    net=st.sampled_from(tuple(NETS)),
    batch=st.sampled_from((4, 16, 20)),
    examples=14,
    broken_by={
        "no bias": layers(Convolution | Linear, bias=-1),
        "no padding": layers(Convolution, padding=(0, 0)),
        "pools without overlap": layers(MaxPool, stride=(3, 3)),
        "padding is not averaged": layers(AveragePool, whole_area=False),
        "nothing is nonlinear": without(Relu),
        "no pooling": without(MaxPool),
        "a stride forgotten": layers(Convolution, stride=(1, 1)),
    },
)
def test_a_step_program_is_its_module(net: str, batch: int) -> None:
    try:
        compare(pr.fedavg(cohort=3, epochs=1, batch=batch) | local(), net)
    except ValueError as refused:  # a mutant's windows may not fit
        raise AssertionError(str(refused)) from refused


@law(
    net=st.sampled_from(SMALL),
    batch=st.sampled_from((1, 3, 16, 20, None)),
    momentum=st.sampled_from((0.0, 0.9)),
    nesterov=st.booleans(),
    decay=st.sampled_from((0.0, 0.1)),
    clip=st.sampled_from((None, 0.5, 1e6)),
    mu=st.sampled_from((0.0, 0.5)),
    keep=st.booleans(),
    examples=30,
    broken_by={
        "no momentum": optimisers(momentum=0.0, nesterov=False),
        "no Nesterov": optimisers(nesterov=False),
        "no weight decay": optimisers(weight_decay=0.0),
        "never clipped": optimisers(clip=None),
        "not pulled": jobs(lambda job: {"push": None}),
        "pulled towards nothing": jobs(lambda job: {"start": torch.zeros_like(job.start)}),
        "one batch": jobs(lambda job: {"ends": job.ends[-1:], "rates": job.rates[:1]}),
        "another order": jobs(lambda job: {"positions": job.positions[::-1].copy()}),
        "momentum forgotten": jobs(lambda job: {"moments": {k: m.clone() for k, m in job.moments.items()}}),
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
) -> None:
    optimiser = local(
        momentum=momentum,
        nesterov=nesterov and momentum > 0,
        weight_decay=decay,
        clip=clip,
        keep_state=keep and momentum > 0,
    )
    # Few steps: with batches of one and momentum, rounding grows until nothing can be compared.
    compare(pr.fedprox(mu=mu, cohort=4, epochs=1, batch=batch) | optimiser, net, sizes=(5, 18, 1, 9))


def _spread(*arguments: Any) -> Program:
    whole = _PROGRAM(*arguments)
    means = (
        AveragePool(**dataclasses.asdict(layer), whole_area=True) if isinstance(layer, MaxPool) else layer
        for layer in whole.layers
    )
    return dataclasses.replace(whole, layers=tuple(means))


@law(
    stride=st.sampled_from((1, 2, 3)),
    examples=3,
    broken_by={"all of them": swap(native, "program_of", _spread)},
)
def test_of_equal_numbers_the_first_is_the_highest(stride: int) -> None:
    # Weights of zero: every place of a window holds the bias, but each stands over other inputs.
    module = nn.Sequential(nn.Conv2d(2, 3, 3), nn.MaxPool2d(3, stride=stride), nn.Flatten(), nn.LazyLinear(3))
    module(torch.zeros(1, 2, 11, 7))
    nn.init.zeros_(module[0].weight)
    compare(pr.fedavg(cohort=2, epochs=1, batch=9) | local(), "functional", (9, 8), model=module, rounds=1)


METHODS = {
    "fedprox": pr.fedprox(mu=0.3),
    "scaffold": pr.scaffold(),
    "feddyn": pr.feddyn(),
    "vrl_sgd": pr.vrl_sgd(),
    "fednova": pr.fednova(),
    "fedcl": pr.fedcl(),
    "curriculum_fl": pr.curriculum_fl(),
    "ccfl": pr.ccfl(),
    "cc_fedavg": pr.cc_fedavg(),
    "fedavgm": pr.fedavgm(),
    "random_epochs": pr.fedavg() | pr.random_epochs(epochs=2, spread=1),
    "power": pr.fedavg() | pr.power(alpha=0.1),
    "cosine": pr.fedavg() | pr.cosine(unit="step"),
    "fisher": pr.fedavg() | pr.critical_periods(detector=FisherTrace()),
    "oort": pr.oort(cohort=3),
    "local": pr.local_only(),
    "centralised": pr.centralised(),
}


@law(
    method=st.sampled_from(tuple(METHODS)),
    net=st.sampled_from(("perceptron", "functional")),
    examples=32,
    broken_by={
        "no shift": jobs(lambda job: {"push": job.push and Push(pull=job.push.pull)}),
        "no pull": jobs(lambda job: {"push": job.push and Push(shift=job.push.shift)}),
        "squares of nothing": jobs(lambda job: {"gradient_squares": False}),
        "one rate": jobs(lambda job: {"rates": job.rates[:1] * len(job.rates)}),
    },
)
def test_every_method_is_the_same(method: str, net: str) -> None:
    compare(METHODS[method], net, sizes=(33, 40, 35))


@law(
    aim=st.sampled_from(
        (
            task("classification", smoothing=0.2),
            task("multilabel"),
            task("multilabel", labels="sum"),
        )
    ),
    net=st.sampled_from(SMALL),
    examples=12,
    broken_by={
        "not smoothed": swap(native, "program_of", lambda *given: dataclasses.replace(_PROGRAM(*given), smoothing=0.0)),
        "one weight for all labels": swap(
            native, "program_of", lambda *given: dataclasses.replace(_PROGRAM(*given), weight=0.5)
        ),
    },
)
def test_a_task_is_the_same(aim: Any, net: str) -> None:
    compare(pr.fedavg(cohort=3, epochs=1, batch=6) | local(), net, task=aim)


def played(threads: int, kernels: str = "", share: float = 0.0, seed: int = 3) -> list[Tensor]:
    """Four visits, spread over threads with an engine each; their weights."""
    needs_extension()
    generator = np.random.default_rng(2)
    samples = ArraySamples(
        torch.tensor(generator.normal(size=(90, 2, 11, 7)), dtype=torch.float32),
        torch.tensor(generator.integers(0, 3, 90)),
    )
    torch.manual_seed(0)
    module = nn.Sequential(Functional(), nn.Linear(3, 24), nn.ReLU(), nn.Dropout(share), nn.Linear(24, 3))
    first = NativeEngine(module, task("classification"), samples.shape, kernels)
    start = first.initial()

    def visit(client: int) -> Tensor:
        engine = first.twin()
        data = Holding(samples)
        opening = Opening(data=data, start=start, received=start, previous=None, reuse=False)
        engine.open(opening)
        job = Job(
            data=data,
            positions=np.random.default_rng(client).permutation(90),
            ends=np.array([20, 40, 60, 80, 90]),
            rates=[0.1] * 5,
            optimiser=LocalSgd(momentum=0.9),
            push=None,
            start=start.weights,
            moments={"momentum": torch.zeros_like(start.weights)},
            seed=seed + client,
            gradient_squares=False,
        )
        assert engine.local_round(job) is not None
        return engine.weights.clone()

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(visit, range(4)))


_calls = iter(range(10**9))


@law(
    share=st.sampled_from((0.0, 0.5)),
    kernels=st.sampled_from(("", "plain")),
    examples=4,
    broken_by={"masks by call": jobs(lambda job: {"seed": next(_calls)})},
)
def test_any_number_of_threads_gives_the_same_bits(share: float, kernels: str) -> None:
    alone = played(1, kernels, share)
    assert all(torch.isfinite(w).all() for w in alone)
    for threads in (1, 2, 4):
        assert all(torch.equal(a, b) for a, b in zip(alone, played(threads, kernels, share), strict=True))


def _unfused(made: Program, kernels: str = "") -> Any:
    return _COMPILED(made, "plain" if kernels == "avx2" else kernels)


@law(share=st.sampled_from((0.0, 0.3)), examples=2, broken_by={"unfused": swap(native, "compiled", _unfused)})
def test_any_width_of_registers_gives_the_same_bits(share: float) -> None:
    needs_extension()
    widths = [name for name in extension().kernels() if name != "plain"]
    if len(widths) < 2:
        pytest.skip("this processor has fused multiply-add in one width only")
    first, *others = (played(1, name, share) for name in widths)
    assert all(torch.equal(a, b) for other in others for a, b in zip(first, other, strict=True))


def mask(share: float, seed: int, step: int = 0, units: int = 4000) -> Tensor:
    """What dropout makes of ones: from weights of zero, one step gives each weight half of what it was fed."""
    needs_extension()
    samples = ArraySamples(torch.ones(step + 1, units), torch.ones(step + 1, 1))
    module = nn.Sequential(nn.Dropout(share), nn.Linear(units, 1, bias=False))
    engine = NativeEngine(module, task("multilabel"), samples.shape)
    zeros = Model(weights=torch.zeros_like(engine.weights), buffers=())
    data = Holding(samples)
    engine.open(Opening(data=data, start=zeros, received=zeros, previous=None, reuse=False))
    rates = [0.0] * step + [2.0]
    done = engine.local_round(
        Job(
            data=data,
            positions=np.arange(step + 1),
            ends=np.arange(1, step + 2),
            rates=rates,
            optimiser=LocalSgd(),
            push=None,
            start=zeros.weights,
            moments={},
            seed=seed,
            gradient_squares=False,
        )
    )
    assert isinstance(done, Done)
    return engine.weights[:units].clone()


@law(
    share=st.sampled_from((0.05, 0.5, 0.9)),
    seed=st.integers(0, 2**63 - 1),
    examples=20,
    broken_by={
        "half as much": layers(program.Dropout, share=0.25),
        "one mask for all visits": jobs(lambda job: {"seed": 1}),
    },
)
def test_dropout_follows_its_law(share: float, seed: int) -> None:
    one, again, later, other = mask(share, seed), mask(share, seed), mask(share, seed, step=3), mask(share, seed ^ 1)
    assert torch.equal(one, again)
    for drawn in (one, later, other):
        kept = drawn != 0
        assert torch.allclose(drawn[kept], torch.tensor(1 / (1 - share)))
        # Five standard deviations of a binomial: once in two million.
        assert abs(float(kept.double().mean()) - (1 - share)) < 5 * (share * (1 - share) / len(drawn)) ** 0.5
    for drawn in (later, other):  # independent: both keep with the square of the probability
        both = float(((one != 0) & (drawn != 0)).double().mean())
        square = (1 - share) ** 2
        assert abs(both - square) < 5 * (square * (1 - square) / len(one)) ** 0.5
