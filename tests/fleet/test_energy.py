"""Energy and batteries, by hand."""

from __future__ import annotations

import pytest

import polyrhythm as pr
from polyrhythm.base.errors import UserError
from polyrhythm.fleet import Energy, FixedLinks, Fleet, FleetState, Load, Spent, Uniform

# 2 s and 2 J to receive, 4 s and 12 J to work, 2 s and 2 J to send.
WORK = Load(samples=4, flops=12, forward_flops=4, bytes_down=20, bytes_up=20)
A_VISIT = Spent(
    down=2.0,
    compute=4.0,
    up=2.0,
    flops=12,
    forward_flops=4,
    bytes_down=20,
    bytes_up=20,
    joules=16.0,
    compute_joules=12.0,
)


def world(**energy: float) -> FleetState:
    fleet = Fleet(devices=Uniform(seconds_per_sample=1.0)) | FixedLinks(down=10.0, up=10.0)
    return FleetState(fleet | Energy(joules_per_flop=1.0, joules_per_byte=0.1, **energy), 3, 0, range(3))


def test_a_visit_is_priced_by_its_work_and_its_bytes() -> None:
    assert world().price(0, WORK, 0.0) == A_VISIT
    assert world().undertake(0, 0, WORK, 5.0).spent == A_VISIT


@pytest.mark.parametrize(
    ("seconds", "joules", "worked"),
    [
        (0.0, 0.0, 0.0),
        (1.0, 1.0, 0.0),
        (2.0, 2.0, 0.0),
        (3.0, 5.0, 3.0),
        (6.0, 14.0, 12.0),
        (7.0, 15.0, 12.0),
        (9.0, 16.0, 12.0),
    ],
)
def test_energy_is_spent_when_it_is_used(seconds: float, joules: float, worked: float) -> None:
    """1 W on the way down, 3 W at work, 1 W on the way up."""
    spent = A_VISIT.until(seconds)
    assert (spent.joules, spent.compute_joules) == (joules, worked)


@pytest.mark.parametrize(
    ("left", "charging", "empty"),
    [
        (0.0, 0.0, 0.0),
        (1.0, 0.0, 1.0),
        (5.0, 0.0, 3.0),
        (15.0, 0.0, 7.0),
        (16.0, 0.0, None),
        (2.0, 1.0, 3.0),
        (8.0, 1.0, None),
    ],
)
def test_a_battery_lasts_as_long_as_what_is_in_it(left: float, charging: float, empty: float | None) -> None:
    assert A_VISIT.lasts(left, charging) == (float("inf") if empty is None else empty)


def test_a_full_battery_takes_no_more() -> None:
    """Charged with 2 W: 2 J more than used on the way down, if there is room; at work 1 W is missing for 4 s."""
    assert A_VISIT.lasts(2.0, 2.0) == float("inf")
    assert A_VISIT.lasts(2.0, 2.0, full=2.0) == 4.0


def test_what_takes_no_time_spends_at_once() -> None:
    free = Spent(compute=4.0, bytes_down=10, bytes_up=10, joules=6.0, compute_joules=4.0)
    assert [free.lasts(left) for left in (0.5, 1.0, 3.0, 5.5)] == [0.0, 0.0, 2.0, 4.0]


def test_who_has_an_empty_battery_is_lost_and_comes_back_charged() -> None:
    """20 J, of which the first visit leaves 4: the second has 2 J left for work at 3 W."""
    fleet = world(battery=20.0, reserve=0.2)
    first, second = fleet.undertake(0, 0, WORK, 0.0), fleet.undertake(1, 0, WORK, 8.0)
    assert (first.time, first.lost) == (8.0, "")
    assert (second.time, second.lost) == (pytest.approx(8 + 2 + 2 / 3), "its battery was empty")
    assert second.spent.joules == pytest.approx(4.0)
    assert (second.spent.bytes_down, second.spent.bytes_up) == (20, 0)
    assert second.spent.flops in (1, 2)  # two, rounded down
    assert fleet.span(0, 11.0) == (False, float("inf"))
    assert fleet.span(1, 11.0)[0]
    charged = world(battery=20.0, reserve=0.2, charging=0.5)
    assert charged.undertake(0, 0, WORK, 0.0).time == 8.0
    lost = charged.undertake(1, 0, WORK, 8.0)
    assert lost.time == pytest.approx(8 + 2 + 3 / 2.5)
    there, until = charged.span(0, lost.time)
    assert (there, until) == (False, pytest.approx(lost.time + 4 / 0.5))
    assert charged.span(0, until)[0]


def test_a_report_needs_energy_even_where_sending_takes_no_time() -> None:
    fleet = Fleet() | Energy(joules_per_flop=1.0, joules_per_byte=0.1, battery=15.0)
    outcome = FleetState(fleet, 1, 0, range(1)).undertake(0, 0, WORK, 0.0)
    assert (outcome.time, outcome.lost) == (0.004, "its battery was empty")


def test_an_empty_battery_cannot_be_enough() -> None:
    with pytest.raises(UserError, match="reserve = 0"):
        pr.fleet.Energy(battery=1.0, reserve=0.0)
