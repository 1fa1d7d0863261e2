"""The distributions of speeds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from polyrhythm.base.errors import UserError
from polyrhythm.fleet import Energy, Exponential, Fleet, FleetState, HalfNormal, Load, Lognormal, Place, Tiers, Zipf

PLACE = Place(population=20_000, seed=2)


def speeds(source: Any) -> np.ndarray:
    return np.array([source.device(PLACE, client).seconds_per_sample for client in range(20_000)])


def test_lognormal() -> None:
    logs = np.log(speeds(Lognormal(median=0.02, sigma=0.8)))
    assert abs(logs.mean() - math.log(0.02)) < 0.03
    assert abs(logs.std() - 0.8) < 0.02


def test_half_normal_and_exponential() -> None:
    assert abs(speeds(HalfNormal(scale=2.0)).mean() - 2 * math.sqrt(2 / math.pi)) < 0.04
    drawn = speeds(Exponential(mean=3.0))
    assert abs(drawn.mean() - 3) < 0.1
    assert abs((drawn > 3).mean() - math.exp(-1)) < 0.015


@pytest.mark.parametrize("exponent", [0.0, 1.2, 3.0])
def test_zipf(exponent: float) -> None:
    factors = speeds(Zipf(exponent=exponent, slowest=5, seconds_per_sample=0.5)) / 0.5
    weights = np.arange(1, 6) ** -exponent
    found = np.bincount(factors.astype(int), minlength=6)[1:] / len(factors)
    assert np.abs(found - weights / weights.sum()).max() < 0.02


def test_tiers_spread_within_themselves() -> None:
    source = Tiers(slowdown=(1.0, 100.0), spread=(0.0, 0.5), seconds_per_sample=1.0)
    devices = [source.device(PLACE, client) for client in range(5000)]
    first, second = ([d.seconds_per_sample for d in devices if d.group == f"tier {t}"] for t in (1, 2))
    assert set(first) == {1.0}
    logs = np.log(second)
    assert abs(logs.std() - 0.5) < 0.03
    assert abs(logs.mean() - math.log(100)) < 0.05


def test_tiers_take_as_many_numbers_of_each_kind() -> None:
    for name in ("spread", "joules_per_flop"):
        with pytest.raises(UserError, match=f"3 numbers in slowdown and 2 in {name}"):
            Tiers(**{name: (0.1, 0.2)})


def test_a_device_may_need_energy_of_its_own() -> None:
    fleet = Fleet(
        devices=Tiers(slowdown=(1.0, 1.0), joules_per_flop=(2.0, 5.0)),
        energy=Energy(joules_per_flop=1.0, joules_per_byte=0.5),
    )
    world = FleetState(fleet, 30, 0, range(30))
    load = Load(flops=10, bytes_down=4, bytes_up=2)
    joules = {world.device(c).group: world.price(c, load, 0.0).joules for c in range(30)}
    assert joules == {"tier 1": 23.0, "tier 2": 53.0}
    plain = FleetState(Fleet(energy=fleet.energy), 1, 0, range(1))
    assert plain.price(0, load, 0.0).joules == 13.0
