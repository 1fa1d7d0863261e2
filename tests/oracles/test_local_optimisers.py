"""Local steps through the real client core against torch.optim on a plain module, over the same batches."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from polyrhythm.base.errors import UserError
from polyrhythm.methods.local.optimisers import LocalAdam, LocalOptimiser, LocalSgd
from polyrhythm.methods.local.schedules import Constant, Exponential, Power, Schedule, StepDecay
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.work.base import Epochs
from polyrhythm.models.tasks import Classification

Visits = Callable[..., Any]
Held = Callable[[Tensor, Tensor], Any]


@final
class Net(nn.Module):
    """Everything that a parameter can be: tied, used twice, frozen, never used, used for some batches only."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(4, 4)
        self.twice = nn.Linear(4, 4)
        self.frozen = nn.Linear(4, 4)
        self.never = nn.Linear(4, 4)
        self.rare = nn.Linear(4, 4)
        self.tied = nn.Linear(4, 4, bias=False)
        self.head = nn.Linear(4, 3)
        self.tied.weight = self.enter.weight
        self.frozen.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.tied(torch.tanh(self.enter(x))))
        hidden = torch.tanh(self.twice(torch.tanh(self.twice(hidden))))
        if bool(x[:, 0].sum() > 0):
            hidden = hidden + self.rare(hidden)
        out: Tensor = self.head(torch.tanh(self.frozen(hidden)))
        return out


@pytest.fixture
def net() -> Net:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Net().double()


@pytest.fixture
def samples() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return (
        torch.randn(23, 4, generator=generator, dtype=torch.float64),
        torch.randint(0, 3, (23,), generator=generator),
    )


def trainable(module: nn.Module) -> list[nn.Parameter]:
    return [p for p in module.parameters() if p.requires_grad]


def plain(
    module: nn.Module,
    make: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
    samples: tuple[Tensor, Tensor],
    visits: Sequence[Sequence[Sequence[int]]],
    *,
    keep: bool = False,
    clip: float | None = None,
    rates: Sequence[float] | None = None,
) -> list[dict[str, Tensor]]:
    """Plain PyTorch over the same batches; the state dict after every visit."""
    module = copy.deepcopy(module).train()
    optimiser, step, states = make(trainable(module)), itertools.count(), []
    for batches in visits:
        if not keep:
            optimiser = make(trainable(module))
        for positions in batches:
            if rates is not None:
                optimiser.param_groups[0]["lr"] = rates[next(step)]
            optimiser.zero_grad(set_to_none=True)
            loss = nn.functional.cross_entropy(module(samples[0][positions]), samples[1][positions])
            torch.autograd.backward(loss)
            if clip is not None:
                nn.utils.clip_grad_norm_(trainable(module), clip)
            optimiser.step()
        states.append({name: tensor.clone() for name, tensor in module.state_dict().items()})
    return states


def by_visit(asked: list[list[int]], count: int) -> list[list[list[int]]]:
    size = len(asked) // count
    return [asked[i * size : (i + 1) * size] for i in range(count)]


def recipe(optimiser: LocalOptimiser, schedule: Schedule | None = None) -> Recipe:
    return Recipe(work=Epochs(epochs=2), batch=5, optimiser=optimiser, schedule=schedule or Constant())


Make = Callable[[list[nn.Parameter]], torch.optim.Optimizer]

CASES: list[tuple[LocalOptimiser, Make]] = [
    (LocalSgd(lr=0.3), lambda p: torch.optim.SGD(p, lr=0.3)),
    (LocalSgd(lr=0.3, weight_decay=0.1), lambda p: torch.optim.SGD(p, lr=0.3, weight_decay=0.1)),
    (LocalSgd(lr=0.1, momentum=0.9), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)),
    (
        LocalSgd(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.05),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.05),
    ),
    (
        LocalSgd(lr=0.1, momentum=0.5, weight_decay=0.05, clip=0.2),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.5, weight_decay=0.05),
    ),
    (LocalSgd(lr=0.1, clip=1e9), lambda p: torch.optim.SGD(p, lr=0.1)),
    (LocalAdam(lr=0.05), lambda p: torch.optim.Adam(p, lr=0.05)),
    (
        LocalAdam(lr=0.05, beta1=0.7, beta2=0.9, epsilon=1e-4, weight_decay=0.1, clip=0.3),
        lambda p: torch.optim.Adam(p, lr=0.05, betas=(0.7, 0.9), eps=1e-4, weight_decay=0.1),
    ),
    (
        LocalAdam(lr=0.05, weight_decay=0.1, decoupled=True),
        lambda p: torch.optim.AdamW(p, lr=0.05, weight_decay=0.1),
    ),
]


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize(("optimiser", "make"), CASES)
def test_visits_end_where_torch_optim_ends(
    visits: Visits,
    held: Held,
    net: Net,
    samples: tuple[Tensor, Tensor],
    optimiser: LocalOptimiser,
    make: Make,
    keep: bool,
) -> None:
    data = held(*samples)
    kept = type(optimiser)(**{**optimiser.__dict__, "keep_state": keep})
    _, states, engine = visits(recipe(kept), net, Classification(), data, count=3)
    asked = by_visit(data.asked, 3)
    branches = [bool(samples[0][b][:, 0].sum() > 0) for visit in asked for b in visit]
    assert True in branches
    assert False in branches[:5], "some batch must leave the rare branch out before Adam's counts are equal"
    right = plain(net, make, samples, asked, keep=keep, clip=optimiser.clip)[-1]
    mine = engine.module.state_dict()
    for name, tensor in right.items():
        assert torch.allclose(mine[name], tensor, rtol=1e-9, atol=1e-9), name
    start = net.state_dict()
    for name in ("never.weight", "never.bias", "frozen.weight", "frozen.bias"):
        assert torch.equal(mine[name], start[name]), f"{name} was never trained"
    assert bool(states[-1].optimiser) == (keep and bool(kept.start(engine.weights)))
    assert engine.module.enter.weight is engine.module.tied.weight


@pytest.mark.parametrize("optimiser", [LocalSgd(lr=0.3), LocalSgd(lr=0.1, momentum=0.9, weight_decay=0.05)])
def test_without_clipping_single_precision_is_equal_bit_for_bit(
    visits: Visits, held: Held, net: Net, samples: tuple[Tensor, Tensor], optimiser: LocalSgd
) -> None:
    single, inputs = net.float(), (samples[0].float(), samples[1])
    data = held(*inputs)
    _, _, engine = visits(recipe(optimiser), single, Classification(), data)

    def make(p: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(
            p, lr=optimiser.lr, momentum=optimiser.momentum, weight_decay=optimiser.weight_decay, foreach=False
        )

    right = plain(single, make, inputs, [data.asked])[-1]
    for name, tensor in engine.module.state_dict().items():
        assert torch.equal(tensor, right[name]), name


def test_kept_state_and_fresh_state_differ(
    visits: Visits, held: Held, net: Net, samples: tuple[Tensor, Tensor]
) -> None:
    ends = [
        visits(recipe(optimiser(keep_state=keep)), net, Classification(), held(*samples), count=2)[2].weights.clone()
        for optimiser in (lambda **s: LocalSgd(momentum=0.9, **s), LocalAdam)
        for keep in (False, True)
    ]
    assert not torch.equal(ends[0], ends[1])
    assert not torch.equal(ends[2], ends[3])


@pytest.mark.parametrize(
    ("schedule", "factors"),
    [
        (Exponential(gamma=0.5), [0.5**version for version in range(3) for _ in range(10)]),
        (StepDecay(every=4, gamma=0.1, unit="step"), [0.1 ** (step // 4) for _ in range(3) for step in range(10)]),
        (Power(alpha=1.0, power=0.75), [(1 + step) ** -0.75 for _ in range(3) for step in range(10)]),
    ],
)
def test_schedules_set_the_rate_of_each_step(
    visits: Visits, held: Held, net: Net, samples: tuple[Tensor, Tensor], schedule: Schedule, factors: list[float]
) -> None:
    data = held(*samples)
    local = LocalSgd(lr=0.4, momentum=0.5, keep_state=True)
    reports, _, engine = visits(recipe(local, schedule), net, Classification(), data, count=3, total_rounds=3)
    rates = [0.4 * factor for factor in factors]
    right = plain(
        net,
        lambda p: torch.optim.SGD(p, lr=0.4, momentum=0.5),
        samples,
        by_visit(data.asked, 3),
        keep=True,
        rates=rates,
    )[-1]
    for name, tensor in engine.module.state_dict().items():
        torch.testing.assert_close(tensor, right[name], rtol=1e-10, atol=1e-10)
    assert [report.rate for report in reports] == pytest.approx([rates[0], rates[10], rates[20]])


@final
@dataclass(frozen=True, kw_only=True)
class Counting(LocalOptimiser):
    """A user's own optimiser: sign descent that counts its steps."""

    counts: list[int]

    def start(self, like: Tensor) -> dict[str, Tensor | int]:
        return {}

    def step_(self, weights: Tensor, gradient: Tensor, rate: float, state: dict[str, Tensor | int]) -> None:
        self.counts.append(1)
        weights.sub_(gradient.sign(), alpha=rate)


def test_a_users_own_optimiser_is_the_one_that_steps(
    visits: Visits, held: Held, net: Net, samples: tuple[Tensor, Tensor]
) -> None:
    own = Counting(lr=0.125, counts=[])
    (first, second), _, engine = visits(recipe(own), net, Classification(), held(*samples), count=2)
    assert len(own.counts) == first.steps + second.steps == 20
    moved = engine.layout.named(first.update)["head.bias"]
    assert torch.equal(moved / 0.125, (moved / 0.125).round())
    assert not torch.equal(moved, torch.zeros(3))


@given(
    rates=st.lists(st.floats(0.001, 1), max_size=8),
    momentum=st.floats(0, 0.95),
    nesterov=st.booleans(),
    decay=st.floats(0, 0.5),
    pull=st.floats(0, 0.5),
)
def test_travel_is_the_way_of_torch_sgd_under_a_constant_gradient(
    rates: list[float], momentum: float, nesterov: bool, decay: float, pull: float
) -> None:
    nesterov = nesterov and momentum > 0
    weight = nn.Parameter(torch.zeros((), dtype=torch.float64))
    reference = torch.optim.SGD([weight], lr=1.0, momentum=momentum, nesterov=nesterov, weight_decay=decay)
    for rate in rates:
        reference.param_groups[0]["lr"] = rate
        weight.grad = 1 + pull * weight.detach()
        reference.step()
    travel = LocalSgd(momentum=momentum, nesterov=nesterov, weight_decay=decay).travel(rates, pull)
    assert travel == pytest.approx(-weight.item(), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("optimiser", [LocalSgd(momentum=0.9), LocalAdam(lr=0.01, epsilon=1e-4)])
def test_every_precision_keeps_its_dtype_and_its_counts(
    visits: Visits, held: Held, net: Net, samples: tuple[Tensor, Tensor], optimiser: LocalOptimiser, dtype: torch.dtype
) -> None:
    data = held(samples[0].to(dtype), samples[1])
    (report,), _, _ = visits(recipe(optimiser), net.to(dtype), Classification(), data)
    assert report.update.dtype == dtype
    assert bool(torch.isfinite(report.update).all())
    assert bool(report.update.any())


def test_an_epsilon_that_is_zero_in_the_models_precision_is_refused(
    visits: Visits, held: Held, net: Net, samples: tuple[Tensor, Tensor]
) -> None:
    """float16 ends at 6e-8: Adam's 1e-8 would divide zero by zero wherever a gradient is zero."""
    data = held(samples[0].half(), samples[1])
    with pytest.raises(UserError, match="epsilon = 1e-08"):
        visits(recipe(LocalAdam()), net.half(), Classification(), data)
