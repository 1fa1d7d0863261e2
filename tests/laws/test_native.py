"""The native engine is the torch engine to rounding, the same bits in any thread, and masks by name."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor, nn

import polyrhythm as pr
from polyrhythm.base import sums
from polyrhythm.base.compiled import extension
from polyrhythm.base.sums import difference
from polyrhythm.core.protocols import Done, Job, Opening
from polyrhythm.data import ArraySamples
from polyrhythm.data.holding import Holding
from polyrhythm.engines.native import engine as native
from polyrhythm.engines.native import program
from polyrhythm.engines.native.engine import NativeEngine
from polyrhythm.engines.native.program import AveragePool, Convolution, Linear, MaxPool, Program, Relu
from polyrhythm.methods.local.optimisers import LocalSgd
from polyrhythm.methods.mechanism import Model
from polyrhythm.models.tasks import task

from .law import law, swap
from .native import (
    NETS,
    PROGRAM,
    SMALL,
    Functional,
    compare,
    jobs,
    layers,
    local,
    needs_extension,
    optimisers,
    without,
)

_COMPILED = native.compiled


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
    whole = PROGRAM(*arguments)
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
        "not smoothed": swap(native, "program_of", lambda *given: dataclasses.replace(PROGRAM(*given), smoothing=0.0)),
        "one weight for all labels": swap(
            native, "program_of", lambda *given: dataclasses.replace(PROGRAM(*given), weight=0.5)
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


def _in_one_sum(update: Tensor, after: Tensor, before: Tensor) -> float:
    """The same difference, whose squares are added up one after the other."""
    torch.sub(after, before, out=update)
    return float(np.sqrt(np.cumsum(update.numpy() ** 2)[-1]))


def _measured_alone(update: Tensor, after: Tensor, before: Tensor) -> float:
    """The length without the vector."""
    update.zero_()
    return torch.linalg.vector_norm(after - before).item()


@law(
    size=st.sampled_from((66_001, 2**17, 2**18, 2**18 + 24, 300_007)),
    seed=st.integers(0, 9),
    broken_by={
        "squares in another order": swap(sums, "compiled_difference", lambda: _in_one_sum),
        "nothing is written": swap(sums, "compiled_difference", lambda: _measured_alone),
    },
)
def test_an_update_and_its_length_are_torchs_to_the_bit(size: int, seed: int) -> None:
    needs_extension()
    generator = torch.Generator().manual_seed(seed)
    after, before = (torch.randn(size, generator=generator) for _ in range(2))
    update, length = difference(after, before)
    assert torch.equal(update, after - before)
    assert length == torch.linalg.vector_norm(after - before).item()
