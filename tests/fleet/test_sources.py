"""Whole fleets by name, and what a survey finds in them."""

from __future__ import annotations

import importlib.util
import json
import math
import os
from pathlib import Path

import numpy as np
import pytest

from polyrhythm.base.errors import UserError
from polyrhythm.fleet import (
    AvailabilityTrace,
    BandwidthTrace,
    Device,
    DeviceTrace,
    FixedLinks,
    Fleet,
    FleetState,
    ListedDevices,
    Markov,
    Periodic,
    Place,
    Poisson,
    phones,
    trace,
)
from polyrhythm.fleet.survey import survey

ROOT = Path(__file__).parents[2]


def real(name: str) -> Path:
    place = Path(os.environ.get("POLYRHYTHM_TEST_DATA", "nowhere")) / "fl_traces" / name
    if not place.exists():
        pytest.skip(f"no {name} in the folder fl_traces under POLYRHYTHM_TEST_DATA")
    return place


def test_a_trace_takes_what_there_is(tmp_path: Path) -> None:
    capacity, bandwidth, availability = (tmp_path / name for name in ("c.csv", "b.csv", "a.json"))
    capacity.write_text("computation_ms_per_sample,communication_kbps\n5,8\n")
    bandwidth.write_text("trace,time_s,mbps\na,0,1\na,5,1\n")
    availability.write_text(json.dumps({"1": {"active": [1], "inactive": [2], "finish_time": 3}}))
    assert trace(capacity=capacity) == Fleet() | DeviceTrace(path=capacity)
    assert trace(availability=str(availability)) == Fleet() | AvailabilityTrace(path=str(availability))
    whole = trace(capacity=capacity, availability=availability, bandwidth=bandwidth)
    assert whole.devices == DeviceTrace(path=capacity)
    assert whole.links == BandwidthTrace(path=bandwidth)
    assert whole.availability == AvailabilityTrace(path=availability)
    with pytest.raises(UserError, match="without any file"):
        trace()


def test_phones_are_as_they_were_fitted() -> None:
    found = survey(phones(), 5000, 0, horizon=7 * 86_400)
    milliseconds = found.seconds_per_sample / 3 * 1000
    assert abs(np.mean(milliseconds < 75) - 0.59) < 0.03
    assert abs(milliseconds.mean() - 84.3) < 3
    assert abs(np.median(found.down) / 849_000 - 1) < 0.15
    assert abs(found.share.mean() - 0.2026) < 0.01
    assert found.groups.keys() == {"tier 1", "tier 2"}


def test_a_survey_by_hand() -> None:
    """Two kinds of devices, there for the first quarter of a day of 24,000 s."""
    devices = (Device(seconds_per_sample=2.0, memory=7.0, group="a"), Device(flops_per_second=5.0))
    fleet = Fleet(devices=ListedDevices(devices=devices)) | FixedLinks(down=100.0)
    fleet = fleet | Periodic(period=24_000.0, on=0.25, zones=1, spread=0.0) | Poisson(rate=0.01)
    found = survey(fleet, 4, 0, horizon=48_000.0)
    assert (found.clients, found.followed, found.groups) == (4, 4, {"a": 2})
    assert found.seconds_per_sample.tolist() == [2.0, 2.0]
    assert found.flops_per_second.tolist() == [5.0, 5.0]
    assert found.memory.tolist() == [7.0, 7.0]
    assert found.down.tolist() == [100.0] * 4
    assert found.up.tolist() == [math.inf] * 4
    assert np.allclose(found.share, 0.25)
    assert np.allclose(found.there, ([1, 1, 1] + [0] * 9) * 2)
    assert found.stays.tolist() == [6000.0] * 4  # the first ones began before anybody looked
    assert found.arrivals is not None
    assert abs(found.arrivals - 1920) < 6 * 44


def test_a_survey_of_many_follows_a_thousand() -> None:
    found = survey(Fleet(availability=Markov()), 3000, 0, horizon=3600.0)
    assert (found.clients, found.followed, len(found.share), len(found.seconds_per_sample)) == (3000, 1000, 1000, 3000)


def test_a_million_clients_are_cheap() -> None:
    """The first question makes an array of zones; then a look at everybody is a few operations on arrays."""
    world = FleetState(Fleet(availability=Periodic(zones=1, on=0.1, spread=3600.0)), 10**6, 0, range(10**6))
    coming = world.next_arrival(50_000.0)
    assert coming is not None
    time, client = coming
    assert 86_400 <= time < 86_401
    assert world.span(client, 50_000.0) == (False, time)


def test_the_fit_finds_what_made_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = importlib.util.spec_from_file_location("fit_phones", ROOT / "docs" / "fit_phones.py")
    assert spec is not None
    assert spec.loader is not None
    maker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)
    found = survey(phones(), 3000, 5, horizon=60.0)
    place, rows = Place(population=3000, seed=5), ["computation_ms_per_sample,communication_kbps"]
    rows += [
        f"{(phones().devices.device(place, c).seconds_per_sample or 0) / 3 * 1000},{rate / 125}"
        for c, rate in zip(range(0, 3000, 3), found.down, strict=False)
    ]
    (tmp_path / "phones.csv").write_text("\n".join(rows))
    table = DeviceTrace(path=tmp_path / "phones.csv").table
    medians, sigmas, shares = maker.two_lognormals(table[:, 0])
    assert np.allclose(medians, [31, 159], rtol=0.1)
    assert np.allclose(sigmas, [0.455, 0.126], rtol=0.15)
    assert np.allclose(shares, [0.605, 0.395], atol=0.05)
    assert maker.distance(table[:, 0], maker.mixture(medians, sigmas, shares)) < 0.03
    maker.main(str(tmp_path / "phones.csv"))
    assert "mean_on 3829 s, mean_off 15067 s" in capsys.readouterr().out


def test_real_capacities() -> None:
    table = DeviceTrace(path=real("fedscale_capacity_189.csv")).table
    assert table.shape == (189, 2)
    assert np.round(table.mean(axis=0), 1).tolist() == [84.4, 14762.2]


def test_real_bandwidths() -> None:
    """Every trace passes its bytes in its own time, from wherever one begins."""
    traces = BandwidthTrace(path=real("bandwidth_traces_mbps.npz")).traces
    assert len(traces) == 269
    for one in traces:
        for part in (0.0, 0.3, 0.9):
            seconds = one.seconds(3 * one.bytes, part * one.period)
            assert 2 * one.period < seconds <= 3 * one.period * (1 + 1e-9)


def test_real_recordings() -> None:
    """The time there of each client is the one that its entry states."""
    path = real("fedscale_availability_10.json")
    entries = list(json.loads(path.read_text()).values())
    presence = AvailabilityTrace(path=path, rows="file").bind(Place(population=10, seed=0))
    for client, entry in enumerate(entries):
        now, there_for = 0.0, 0.0
        while now < entry["finish_time"]:
            there, until = presence.span(client, now)
            until = min(until, entry["finish_time"])
            there_for += there * (until - now)
            now = until
        assert there_for == entry["duration"]
