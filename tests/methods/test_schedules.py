"""Schedules by hand, and how the rate follows the run's versions and not a client's visits."""

from __future__ import annotations

import itertools
import math
import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from polyrhythm.base.errors import UserError
from polyrhythm.base.messages import Report
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.fleet import Fleet, FleetState
from polyrhythm.methods.local.schedules import Constant, Cosine, Exponential, Power, Schedule, StepDecay, WarmUp
from polyrhythm.methods.mechanism import Setup
from polyrhythm.methods.papers import fedavg
from polyrhythm.models.tasks import Regression
from polyrhythm.simulation.simulator import InlineDriver


@pytest.mark.parametrize(
    ("schedule", "factors"),
    [
        (Constant(), [1, 1, 1, 1, 1]),
        (StepDecay(every=2, gamma=0.1), [1, 1, 0.1, 0.1, 0.01]),
        (StepDecay(every=1), [1, 0.1, 0.01, 1e-3, 1e-4]),
        (Exponential(gamma=0.5), [1, 0.5, 0.25, 0.125, 0.0625]),
        (Cosine(), [1, (2 + math.sqrt(2)) / 4, 0.5, (2 - math.sqrt(2)) / 4, 0]),
        (Cosine(floor=0.5), [1, 0.5 + (2 + math.sqrt(2)) / 8, 0.75, 0.5 + (2 - math.sqrt(2)) / 8, 0.5]),
        (Power(alpha=1.0, power=0.75), [1, 2**-0.75, 3**-0.75, 4**-0.75, 5**-0.75]),
        (Power(), [1, 1.001**-0.75, 1.002**-0.75, 1.003**-0.75, 1.004**-0.75]),
    ],
)
def test_factors(schedule: Schedule, factors: list[float]) -> None:
    assert [schedule.factor(at, 4) for at in range(5)] == pytest.approx(factors, rel=1e-12, abs=1e-12)


schedules = st.one_of(
    st.builds(StepDecay, every=st.integers(1, 9), gamma=st.floats(0.01, 1)),
    st.builds(Exponential, gamma=st.floats(0.01, 1)),
    st.builds(Cosine, floor=st.floats(0, 1)),
    st.builds(Power, alpha=st.floats(0, 3), power=st.floats(0, 3)),
    st.just(Constant()),
)


@given(schedules, st.integers(1, 40))
def test_every_schedule_begins_with_the_whole_rate_and_never_rises(schedule: Schedule, end: int) -> None:
    factors = [schedule.factor(at, end) for at in range(end + 5)]
    assert factors[0] == 1.0
    assert all(b <= a for a, b in itertools.pairwise(factors))
    assert all(factor > 0 for factor in factors[:end])


def test_only_cosine_by_version_needs_to_know_the_end() -> None:
    assert Cosine().needs_horizon
    assert not Cosine(unit="step").needs_horizon
    assert not any(s.needs_horizon for s in (Constant(), StepDecay(every=1), Exponential(gamma=0.9), Power()))
    assert "total_rounds" in fedavg(schedule=Cosine()).needs()
    assert fedavg(schedule=Cosine(unit="step")).needs() == frozenset()
    with pytest.raises(ValueError, match="end"):
        Cosine().factor(0, None)
    assert Cosine().factor(7, 4) == 0.0
    assert Cosine().factor(0, 0) == 1.0


def test_a_factor_of_zero_is_refused() -> None:
    with pytest.raises(UserError, match="gamma"):
        Exponential(gamma=0.0)


class Held:
    augmented = False

    def __len__(self) -> int:
        return 6

    def batch(self, positions: object, generator: object) -> tuple[Tensor, Tensor]:
        return torch.ones(2, 1), torch.zeros(2, 1)


def reports(schedule: Schedule) -> list[Report]:
    """Six versions of two out of six clients, so that most are absent in between; three steps per visit."""
    engine = TorchEngine(nn.Linear(1, 1), Regression())
    setup = Setup(size=engine.layout.size, dtype=engine.layout.dtype, population=6, total_rounds=6, seed=1)
    recipe = fedavg(cohort=2, epochs=1, batch=2, lr=0.5, schedule=schedule)
    driver = InlineDriver(recipe, setup, engine, lambda c: Held(), FleetState(Fleet(), 6, 0, range(6)))
    return [moment.report for moment in driver.moments(engine.initial()) if moment.report is not None]


def test_a_schedule_by_version_follows_the_run_and_does_not_restart_for_the_absent() -> None:
    heard = reports(StepDecay(every=2, gamma=0.1))
    assert len(heard) == 12
    for report in heard:
        rate = 0.5 * 0.1 ** (report.version // 2)
        assert report.rate == pytest.approx(rate, rel=1e-12)
        assert report.travel == pytest.approx(3 * rate, rel=1e-12), "the last step has the rate of the first"
    back = [r for r in heard if r.visit == 1 and r.version >= 2]
    assert back, "some client must come back later"
    assert any(r.version - max(o.version for o in heard if o.client == r.client and o.visit == 0) >= 2 for r in back)


def test_a_schedule_by_step_restarts_with_every_visit() -> None:
    for report in reports(StepDecay(every=2, gamma=0.1, unit="step")):
        assert report.rate == 0.5
        assert report.travel == pytest.approx(0.5 + 0.5 + 0.05, rel=1e-12)


def test_cosine_by_version_ends_with_the_run() -> None:
    for report in reports(Cosine()):
        assert report.rate == pytest.approx(0.25 * (1 + math.cos(math.pi * report.version / 6)), rel=1e-12)


@given(schedules, st.integers(0, 6), st.integers(1, 40))
def test_a_warm_up_rises_in_a_line_and_goes_on_with_the_other_schedule(then: Schedule, length: int, end: int) -> None:
    unit = then.unit
    warm = WarmUp(length=length, then=then, unit=unit)
    factors = [warm.factor(at, end + length) for at in range(end + length)]
    assert factors[:length] == [(at + 1) / (length + 1) for at in range(length)]
    assert factors[length:] == [then.factor(at, end) for at in range(end)]
    assert warm.needs_horizon == then.needs_horizon


def test_no_warm_up_is_the_schedule_itself() -> None:
    assert [WarmUp(length=0, then=Cosine()).factor(at, 9) for at in range(9)] == [
        Cosine().factor(at, 9) for at in range(9)
    ]


def test_a_warm_up_is_torchs() -> None:
    parameter = nn.Parameter(torch.zeros(1))
    optimiser = torch.optim.SGD([parameter], lr=1.0)
    first = torch.optim.lr_scheduler.LinearLR(optimiser, start_factor=1 / 5, total_iters=4)
    rest = torch.optim.lr_scheduler.ExponentialLR(optimiser, gamma=0.9)
    both = torch.optim.lr_scheduler.SequentialLR(optimiser, [first, rest], milestones=[4])
    warm = WarmUp(length=4, then=Exponential(gamma=0.9))
    for at in range(10):
        assert warm.factor(at, None) == pytest.approx(optimiser.param_groups[0]["lr"])
        optimiser.step()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that SequentialLR calls its schedules in a way that torch calls old
            both.step()


def test_a_warm_up_goes_in_front_in_either_order() -> None:
    recipe = fedavg(cohort=2)
    one, other = recipe | Cosine() | WarmUp(length=3), recipe | WarmUp(length=3) | Cosine()
    assert one.schedule == other.schedule == WarmUp(length=3, then=Cosine())
    assert not one.notices
    assert not other.notices
    again = one | WarmUp(length=5)
    assert again.schedule == WarmUp(length=5, then=Cosine())
    assert len(again.notices) == 1
    with pytest.raises(UserError, match="warm_up by version in front of power by step"):
        recipe | Power() | WarmUp(length=3)
    assert WarmUp(length=2, unit="step", then=Power()).factor(2, None) == 1.0
