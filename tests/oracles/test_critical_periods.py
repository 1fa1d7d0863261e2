"""Cohort traces of FedCL derived by hand, and detectors against gradients computed by hand."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import polyrhythm as pr
from polyrhythm.base.messages import Assignment, Report
from polyrhythm.core.client import work
from polyrhythm.core.client_state import ClientState
from polyrhythm.data import ArraySamples
from polyrhythm.data.holding import Holding
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.methods.mechanism import Release, Setup
from polyrhythm.methods.participation.critical_periods import (
    CriticalPeriods,
    Detector,
    FisherTrace,
    GradientNorm,
    RandomResize,
    ReleasedNorm,
)
from polyrhythm.models.tasks import Task, task
from small import collection, dealt, logged, prepared

SETUP = Setup(size=1, dtype=torch.float32, population=128, total_rounds=40, seed=0)


def report(norm: float, client: int = 0, num_samples: int = 10, **changes: object) -> Report:
    made = Report(
        dispatch=client,
        client=client,
        visit=0,
        version=0,
        kind="train",
        recipe="",
        num_samples=num_samples,
        update=torch.zeros(1),
        steps=4,
        samples=20,
        rate=0.5,
        measures={"gradient_square": norm, "fisher": norm, "fisher_model": 2 * norm},
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def trace(policy: CriticalPeriods, norms: list[float], cohort: int = 16) -> list[int]:
    """The cohort of every version, from the first on, for these norms."""
    state = policy.server_start(replace(SETUP, cohort=cohort))
    sizes = [int(state["size"])]
    for version, norm in enumerate(norms):
        reports = () if np.isnan(norm) else (report(norm),)
        shares = (1.0,) * len(reports)
        release = Release(version=version, reports=reports, shares=shares, scales=shares, weights=torch.zeros(1))
        state = policy.after_step(SETUP, state, release)
        sizes.append(int(state["size"]))
    return sizes


def test_the_papers_rule_doubles_to_the_population_and_halves_to_half_of_m() -> None:
    policy = CriticalPeriods(delta=0.01)
    # Version 0 is critical; then 1 % growth (>=: critical), less (not), decline, decline, ...
    norms = [100.0, 101.0, 102.0, 101.0, 50.0, 20.0, 10.0, 5.0]
    assert trace(policy, norms) == [16, 32, 64, 32, 16, 8, 8, 8, 8]
    assert trace(policy, [1.0, 2.0, 4.0, 8.0, 16.0]) == [16, 32, 64, 128, 128, 128]


def test_odd_cohorts_are_halved_upwards_and_never_below_the_floor() -> None:
    policy = CriticalPeriods(delta=0.01)
    assert trace(policy, [5.0, 4.0, 3.0, 2.0, 1.0], cohort=5) == [5, 10, 5, 3, 3, 3]


def test_the_authors_rule_gives_their_trace() -> None:
    policy = CriticalPeriods(
        detector=GradientNorm(reduce="sum", weigh="equal"),
        rule="windowed",
        cap=0.75,
        floor=1.0,
    )
    declining = [0.9**t for t in range(40)]
    expected = [16] + [32] * 2 + [64] * 2 + [96] * 16 + [48] * 2 + [24] * 2 + [16] * 16
    assert trace(policy, declining) == expected


def test_a_second_rise_cannot_grow_the_cohort_once_it_was_at_its_cap() -> None:
    policy = CriticalPeriods(rule="windowed", cap=0.25, floor=1.0)
    norms = [1.0] * 30 + [100.0] * 10
    sizes = trace(policy, norms)
    assert max(sizes) == 32
    assert sizes[-1] == 16


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_the_scale_of_the_norm_does_not_matter(scale: float) -> None:
    norms = [3.0, 3.5, 3.4, 3.6, 2.0, 2.1, 1.0]
    policy = CriticalPeriods()
    assert trace(policy, norms) == trace(policy, [scale * n for n in norms])


def test_the_limits_of_delta() -> None:
    norms = [1.0, 2.0, 1.0, 3.0, 0.5, 4.0]
    assert trace(CriticalPeriods(delta=1e9), norms)[-1] == 8
    assert trace(CriticalPeriods(delta=-1e9), norms)[-1] == 128


def test_a_release_in_which_nobody_trained_changes_nothing() -> None:
    policy = CriticalPeriods()
    with_gaps = trace(policy, [1.0, float("nan"), 2.0, float("nan"), 1.0])
    assert with_gaps == [16, 32, 32, 64, 64, 32]


def test_the_squared_length_of_a_noised_mean_less_what_noise_adds_to_it() -> None:
    """(3, 4) has 25; noise of 0.5 on each of two weights, and none on padding, adds 0.5 to it on average."""
    policy, setup = CriticalPeriods(detector=ReleasedNorm()), replace(SETUP, size=3, places=((0, 2),))
    given = Release(version=0, reports=(), shares=(), scales=(), weights=torch.zeros(3), spread=0.5)
    state = policy.server_start(setup)
    state, mean = policy.before_step(setup, state, given, torch.tensor([3.0, 4.0, 0.0]))
    assert mean.tolist() == [3, 4, 0]
    assert policy.measures(policy.after_step(setup, state, given))["released_norm"] == pytest.approx(24.5)
    sizes = []
    for length in (2.0, 2.1, 1.0, 1.5):  # critical, grown by 5 %, halved, grown by half; with noise alone
        state, _ = policy.before_step(setup, state, replace(given, spread=0.0), torch.tensor([length, 0.0, 0.0]))
        state = policy.after_step(setup, state, given)
        sizes.append(state["size"])
    assert sizes == [20, 40, 20, 40]


def test_weights_of_clients() -> None:
    reports = [
        report(1.0, 0, num_samples=10),
        report(4.0, 1, num_samples=30),
        report(9.0, 2, substitute="movement", age=3),
    ]
    assert GradientNorm(with_rate=False).over(reports) == pytest.approx((10 * 1 + 30 * 4) / 40)
    assert GradientNorm(weigh="equal", with_rate=False).over(reports) == pytest.approx(2.5)
    assert GradientNorm().over(reports) == pytest.approx(0.5 * 3.25)
    # 4 steps over 20 of 10 samples are 2 epochs, so 2 steps each; over 20 of 30 samples 2/3, so 6 steps each.
    assert GradientNorm(reduce="sum", weigh="equal", with_rate=False).over(reports) == pytest.approx((2 + 24) / 2)
    assert FisherTrace().over(reports) == pytest.approx(3.25)
    assert FisherTrace(labels="model").over(reports) == pytest.approx(6.5)
    assert GradientNorm().over(reports[2:]) is None


def test_the_norm_is_of_the_clipped_gradient_before_corrections_and_decay() -> None:
    data = collection()
    net = nn.Linear(4, 3)
    base = pr.fedprox(mu=5.0, cohort=1, epochs=1, batch=None, lr=0.1, momentum=0.9, weight_decay=0.5, clip=0.3)
    watched = base | pr.parts.critical_periods(act=False)
    _, log = logged(federation=dealt(data, [60]), model=net, recipe=watched, rounds=1)
    inputs, targets = data.train.batch(torch.arange(60))
    loss = functional.cross_entropy(net(inputs), targets)
    gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(net.parameters()))])
    clipped = gradient * min(1.0, 0.3 / (float(gradient.norm()) + 1e-6))
    assert log.visits[0].measures["gradient_square"] == pytest.approx(float(clipped.norm()) ** 2, rel=1e-5)
    assert log.versions[1].measures["gradient_norm"] == pytest.approx(0.1 * float(clipped.norm()) ** 2, rel=1e-5)
    assert log.versions[1].measures["critical"] == 1.0


@pytest.mark.parametrize("base", [pr.fedprox, pr.vrl_sgd, pr.fednova, pr.scaffold, pr.fedadam])
def test_watching_changes_nothing_and_acting_changes_the_cohort(base: object) -> None:
    recipe = base(cohort=2, epochs=1, batch=5)  # type: ignore[operator]
    plain = logged(recipe=recipe)[0]["digest"]
    watching = recipe | CriticalPeriods(act=False, watch=(FisherTrace(), GradientNorm(reduce="sum")))
    assert logged(recipe=watching)[0]["digest"] == plain
    _, log = logged(recipe=recipe | CriticalPeriods())
    assert [v.cohort for v in log.versions[1:3]] == [2, 4]


def test_random_resizing_that_never_moves_is_the_inner_policy() -> None:
    recipe = pr.fedavg(cohort=2, epochs=1, batch=5)
    still = recipe | RandomResize(up=0.0, down=0.0)
    assert logged(recipe=still)[0]["digest"] == logged(recipe=recipe)[0]["digest"]
    _, log = logged(recipe=recipe | RandomResize(up=0.5, down=0.5), rounds=20)
    sizes = [v.cohort for v in log.versions[1:]]
    assert set(sizes) == {1, 2, 4}
    assert all(b in (a, 2 * a, (a + 1) // 2) for a, b in itertools.pairwise(sizes))


# The Fisher trace.


class Tied(nn.Module):
    """One matrix used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4, bias=False)
        self.second = nn.Linear(4, 4, bias=False)
        self.second.weight = self.first.weight
        self.out = nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.out(torch.tanh(self.second(torch.tanh(self.first(inputs)))))


class Recurrent(nn.Module):
    """Has no rule for many samples at once."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTM(1, 5, batch_first=True)
        self.out = nn.Linear(5, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.out(self.cell(inputs[:, :, None])[0][:, -1])


def frozen() -> nn.Module:
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    net[0].requires_grad_(False)
    return net


NETS = {
    "linear": lambda: nn.Linear(4, 3),
    "dropout and batch norm": lambda: nn.Sequential(
        nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 3)
    ),
    "convolution": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(9, 3)
    ),
    "tied": Tied,
    "frozen": frozen,
    "recurrent": Recurrent,
}
TASKS: dict[str, tuple[Task, Tensor]] = {
    "classification": (task("classification"), torch.arange(11) % 3),
    "multilabel": (task("multilabel"), (torch.arange(33).reshape(11, 3) % 2).float()),
    "regression": (task("regression"), torch.arange(33).reshape(11, 3) / 10),
}


def by_hand(net: nn.Module, what: Task, inputs: Tensor, targets: Tensor) -> float:
    """The mean squared norm of single samples' gradients, one by one."""
    net = net.eval()
    parameters = [p for p in net.parameters() if p.requires_grad]
    total = 0.0
    for i in range(len(inputs)):
        loss = what.loss(net(inputs[i : i + 1]), targets[i : i + 1])
        total += sum(float(g.double().square().sum()) for g in torch.autograd.grad(loss, parameters))
    return total / len(inputs)


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("what", TASKS)
def test_the_trace_is_that_of_single_samples(name: str, what: str) -> None:
    torch.manual_seed(3)
    net = NETS[name]()
    inputs, (judge, targets) = torch.randn(11, 4), TASKS[what]
    data = Holding(ArraySamples(inputs, targets))
    engine = TorchEngine(net, judge)
    model = engine.initial()
    state = torch.get_rng_state()
    expected = by_hand(net, judge, inputs, targets)
    for chunk in (None, 1, 4, 32):
        assert engine.fisher(model, data, chunk) == pytest.approx(expected, rel=1e-4)
    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(engine.weights, model.weights)


@pytest.mark.parametrize(
    ("watch", "gradients", "forward"),
    [
        ((GradientNorm(),), 0, 0),
        ((FisherTrace(),), 15, 0),
        ((FisherTrace(labels="model"),), 15, 15),
        ((FisherTrace(), FisherTrace(labels="model"), FisherTrace(weigh="equal")), 30, 15),
    ],
    ids=["norm", "data", "model", "both"],
)
def test_what_a_detector_costs_is_counted(watch: tuple[Detector, ...], gradients: int, forward: int) -> None:
    made = prepared(recipe=pr.fedavg(cohort=1, epochs=1, batch=5) | CriticalPeriods(watch=watch, act=False))
    layout = made.chosen.engine.layout
    first = made.chosen.engine.initial()
    assignment = Assignment(
        dispatch=0,
        client=0,
        visit=0,
        accepted=-1,
        kind="train",
        version=0,
        total_rounds=3,
        weights=first.weights,
        buffers=(),
        briefs={},
        recipe=made.recipe.digest,
    )
    _, found = work(made.recipe, made.setup, ClientState(), assignment, made.data_of(0), made.chosen.engine)
    assert layout.parameters == 15
    assert (found.gradient_samples, found.forward_samples) == (gradients, forward)
    summary, log = logged(recipe=made.recipe)
    assert summary["flops"] == (summary["samples"] + 3 * gradients) * 48 + 3 * forward * 24
    assert [v.forward_samples for v in log.visits] == [forward] * 3
