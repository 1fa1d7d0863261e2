"""Traces that are whole are read; damaged ones are refused with the file, the place in it, and what belongs there."""

from __future__ import annotations

import gzip
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polyrhythm.base.errors import UserError
from polyrhythm.base.settings import canonical_json
from polyrhythm.fleet import (
    ArrivalTrace,
    AvailabilityTrace,
    BandwidthTrace,
    Device,
    DeviceTrace,
    Fleet,
    ListedDevices,
    Place,
    UserSpeeds,
)

PLACE = Place(population=10, seed=0)
CAPACITY = "client_id,computation_ms_per_sample,communication_kbps\n1,153.0,2209.62\n2,39.0,18437.31\n"
USERS = "user,down_mean_kb_s,down_std_kb_s,up_mean_kb_s,up_std_kb_s\n0,7491.4,3369.3,4935.2,2767.3\n"
BANDWIDTH = "trace,time_s,mbps\nbus,0,1\nbus,1,2\nbus,3,0\ntram,5,1\ntram,9,4\n"


def npz(**arrays: Any) -> Callable[[Path], None]:
    return lambda path: np.savez(path, **arrays)


def cut_short(path: Path) -> None:
    np.savez(path, time_s=np.arange(9.0), mbps=np.ones(9), offset=np.array([0, 9]))
    path.write_bytes(path.read_bytes()[:200])


def not_numpys(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("time_s", "mbps", "offset"):
            archive.writestr(f"{name}.npy", b"nothing")


ENDLESS = np.array([0.0, np.inf, 1.0, 1.0, 1.0])
TIMES, SPEEDS = np.array([0.0, 1.0, 2.0, 0.0, 4.0]), np.array([1.0, 2.0, 0.0, 1.0, 1.0])


def available(**changes: Any) -> str:
    return json.dumps({"9": {"active": [5], "inactive": [60], "finish_time": 100} | changes})


DAMAGED: list[tuple[type, str, str | Callable[[Path], None], str, str]] = [
    # part, file, content, what is found (with its place), what is expected
    (DeviceTrace, "a.csv", CAPACITY.replace("39.0", "fast"), "line 3: computation_ms_per_sample = 'fast'", "above 0"),
    (DeviceTrace, "a.csv", CAPACITY.replace("18437.31", "0"), "line 3: communication_kbps = '0'", "above 0"),
    (DeviceTrace, "a.csv", CAPACITY.replace("18437.31", "nan"), "line 3: communication_kbps = 'nan'", "above 0"),
    (DeviceTrace, "a.csv", CAPACITY + "3,20\n", "line 4: communication_kbps = ''", "above 0"),
    (DeviceTrace, "a.csv", CAPACITY.replace("_kbps", "_mbps"), "line 1: no column communication_kbps", "a header"),
    (DeviceTrace, "a.csv", CAPACITY.splitlines()[0], "line 2: no rows", "at least one row"),
    (DeviceTrace, "a.csv", "", "line 1: no column", "a header"),
    (DeviceTrace, "a.json", '{"1": {"computation": 1.0,\n "communication" 3}}', "line 2: Expecting", "JSON such as"),
    (DeviceTrace, "a.json", '{"1": {"computation": 1.0}}', "client 1: communication = None", "above 0"),
    (DeviceTrace, "a.json", '{"7": {"computation": true, "communication": 1}}', "client 7: computation = True", ""),
    (DeviceTrace, "a.json", '{"7": 3}', "client 7: 3", "JSON such as") ,
    (DeviceTrace, "a.json", "[1, 2]", "line 1: a list", "JSON such as"),
    (DeviceTrace, "a.json", "{}", "line 1: no client", "JSON such as"),
    (DeviceTrace, "a", lambda path: path.write_bytes(pickle.dumps({"1": 2})), "byte 0 is not text", "JSON such as"),
    (ListedDevices, "a.json", "{}", "line 1: a dict", "a JSON list"),
    (ListedDevices, "a.json", "[]", "line 1: no device", "a JSON list"),
    (ListedDevices, "a.json", '[{"seconds_per_sample": 1}, {"speed": 3}]', "device 2: speed", "seconds_per_sample"),
    (ListedDevices, "a.json", '[{"memory": 1e9}]', "device 1: no speed", "seconds_per_sample"),
    (ListedDevices, "a.json", '[{"seconds_per_sample": -1}]', "device 1: seconds_per_sample = -1", "0 or more"),
    (ListedDevices, "a.json", '[{"seconds_per_sample": 1, "memory": 0}]', "device 1: memory = 0", "above 0"),
    (UserSpeeds, "a.csv", USERS.replace("2767.3", "-1"), "line 2: up_std_kb_s = '-1'", "0 or more"),
    (UserSpeeds, "a.csv", USERS.replace("7491.4", "0"), "line 2: down_mean_kb_s = '0'", "above 0"),
    (BandwidthTrace, "a.csv", BANDWIDTH.replace("bus,3", "bus,1"), "trace bus: time_s does not rise", "in order"),
    (BandwidthTrace, "a.csv", BANDWIDTH.replace("9,4", "9,-4"), "line 6: mbps = '-4'", "0 or more"),
    (BandwidthTrace, "a.csv", BANDWIDTH.replace("9,4", "9,0"), "trace tram: mbps is never above 0", "not 0 throughout"),
    (BandwidthTrace, "a.csv", BANDWIDTH + "ferry,0,1\n", "trace ferry: time_s does not rise", "two points"),
    (BandwidthTrace, "a.csv", BANDWIDTH + ",0,1\n", "line 7: trace = ''", "a name"),
    (BandwidthTrace, "a.npz", npz(time_s=TIMES, mbps=SPEEDS), "arrays: offset", "offset"),
    (BandwidthTrace, "a.npz", npz(time_s=TIMES, mbps=SPEEDS, offset=[0, 3, 4]), "array offset", "offset"),
    (BandwidthTrace, "a.npz", npz(time_s=TIMES, mbps=SPEEDS[:4], offset=[0, 3, 5]), "array offset", "offset"),
    (BandwidthTrace, "a.npz", npz(time_s=TIMES, mbps=SPEEDS, offset=[0, 3, 3, 5]), "array offset", "offset"),
    (BandwidthTrace, "a.npz", npz(time_s=TIMES, mbps=SPEEDS, offset=[0, 5]), "trace 0: time_s does not rise", ""),
    (BandwidthTrace, "a.npz", npz(time_s=TIMES, mbps=SPEEDS - 1.5, offset=[0, 3, 5]), "trace 0: mbps is never", ""),
    (BandwidthTrace, "a.npz", npz(time_s=TIMES, mbps=ENDLESS, offset=[0, 3, 5]), "trace 0: mbps is never", ""),
    (BandwidthTrace, "a.npz", npz(time_s=np.array([object()]), mbps=SPEEDS, offset=[0, 5]), "cannot be read", ""),
    (BandwidthTrace, "a.npz", cut_short, "as a whole: cannot be read", "an .npz file"),
    (BandwidthTrace, "a.npz", not_numpys, "as a whole: cannot be read", "an .npz file"),
    (BandwidthTrace, "a.npz", "not an archive", "as a whole: cannot be read", "an .npz file"),
    (AvailabilityTrace, "a.json", available(finish_time=0), "client 9: finish_time = 0", "above 0"),
    (AvailabilityTrace, "a.json", available(active=[]), "client 9: 0 times in active", "as many"),
    (AvailabilityTrace, "a.json", available(active=["5"]), "client 9: active is no list", ""),
    (AvailabilityTrace, "a.json", available(inactive=5), "client 9: inactive is no list", ""),
    (AvailabilityTrace, "a.json", available(inactive=[-5]), "client 9: inactive is no", ""),
    (AvailabilityTrace, "a.json", json.dumps({"9": [1]}), "client 9: [1]", "JSON such as"),
    (AvailabilityTrace, "a.json", "3", "line 1: a int", "JSON such as"),
    (AvailabilityTrace, "a.json", "{}", "line 1: no client", "JSON such as"),
    (ArrivalTrace, "a.csv", "time,client\n0,1\n5,2\n4,1\n", "line 4: time = 4 after 5", "never fall"),
    (ArrivalTrace, "a.csv", "time,client\n0,1.5\n", "line 2: client = '1.5'", "a whole number"),
    (ArrivalTrace, "a.csv", "time,client\n0,-1\n", "line 2: client = '-1'", "a whole number"),
    (ArrivalTrace, "a.csv", "time,client\ninf,1\n", "line 2: time = 'inf'", "0 or more"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("part", "name", "content", "found", "expected"), DAMAGED, ids=[f"{d[0].__name__}:{d[3]}" for d in DAMAGED]
)
def test_a_damaged_file_is_refused_with_the_place(
    part: Any, name: str, content: str | Callable[[Path], Any], found: str, expected: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    if isinstance(content, str):
        path.write_text(content)
    else:
        content(path)
    with pytest.raises(UserError) as refused:
        part(path=path)
    assert str(path) in refused.value.found
    assert found in refused.value.found
    assert expected in refused.value.expected


@pytest.mark.parametrize(
    "part", [DeviceTrace, ListedDevices, UserSpeeds, BandwidthTrace, AvailabilityTrace, ArrivalTrace]
)
def test_a_file_that_is_not_there_is_refused(part: Any, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no such file or folder: .*nowhere\.csv"):
        part(path=tmp_path / "nowhere.csv")


def test_a_pickle_is_refused_with_the_way_to_write_it_as_json(tmp_path: Path) -> None:
    path = tmp_path / "client_device_capacity"
    path.write_bytes(pickle.dumps({1: {"computation": 1.0, "communication": 2.0}}))
    with pytest.raises(UserError) as refused:
        DeviceTrace(path=path)
    assert "json.dump(pickle.load(" in refused.value.fix


def test_capacities_are_the_same_from_every_form(tmp_path: Path) -> None:
    """153 ms of inference is 0.459 s of training; 2,209.62 kbit/s is 276,202.5 bytes per second, both ways."""
    entries = {
        "1": {"computation": 153.0, "communication": 2209.62},
        "2": {"computation": 39, "communication": 18437.31},
    }
    (tmp_path / "a.csv").write_text("\ufeff" + CAPACITY)
    (tmp_path / "a.json").write_text(json.dumps(entries))
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(CAPACITY.encode()))
    for name in ("a.csv", "a.json", "a.csv.gz"):
        trace = DeviceTrace(path=tmp_path / name, latency=0.5)
        assert trace.device(PLACE, 0) == Device(seconds_per_sample=0.153 * 3)
        line = trace.bind(PLACE)
        for way in ("down", "up"):
            assert line.seconds(0, way, 276_202, 9.0) == pytest.approx(1.5, rel=1e-5)  # type: ignore[arg-type]


def test_clients_beyond_the_file_get_drawn_rows_and_the_same_for_speed_and_link(tmp_path: Path) -> None:
    rows = [f"{i},{i + 1},{(i + 1) * 8}" for i in range(50)]
    (tmp_path / "a.csv").write_text("\n".join(["id,computation_ms_per_sample,communication_kbps", *rows]))
    trace, place = DeviceTrace(path=tmp_path / "a.csv", training_factor=1.0), Place(population=1000, seed=1)
    line = trace.bind(place)
    speeds = [round((trace.device(place, client).seconds_per_sample or 0) * 1000) for client in range(1000)]
    links = [round(1 / line.seconds(client, "up", 1000, 0.0)) for client in range(1000)]
    assert speeds == links
    assert speeds[:50] == list(range(1, 51))
    assert set(speeds[50:]) == set(range(1, 51))
    drawn = DeviceTrace(path=tmp_path / "a.csv", rows="drawn")
    assert [drawn.device(place, c) for c in range(50)] != [trace.device(place, c) for c in range(50)]


def test_a_trace_goes_to_both_places_of_a_fleet_and_a_link_after_it_replaces_one(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(CAPACITY)
    trace = DeviceTrace(path=tmp_path / "a.csv")
    fleet = Fleet() | trace
    assert (fleet.devices, fleet.links) == (trace, trace)
    (tmp_path / "b.csv").write_text(BANDWIDTH)
    fleet = fleet | BandwidthTrace(path=tmp_path / "b.csv")
    assert isinstance(fleet.links, BandwidthTrace)
    assert fleet.devices == trace


def test_the_record_of_a_fleet_names_the_bytes_of_its_files(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(CAPACITY)
    before = canonical_json((Fleet() | DeviceTrace(path=path)).describe())
    assert path.as_posix() in before
    path.write_text(CAPACITY.replace("39.0", "38.0"))
    assert canonical_json((Fleet() | DeviceTrace(path=path)).describe()) != before


def test_listed_devices_repeat(tmp_path: Path) -> None:
    devices = (Device(seconds_per_sample=0.1, group="phone"), Device(flops_per_second=1e9, memory=2e9))
    path = tmp_path / "devices.json"
    path.write_text('[{"seconds_per_sample": 0.1, "group": "phone"}, {"flops_per_second": 1e9, "memory": 2e9}]')
    for listed in (ListedDevices(devices=devices), ListedDevices(path=path)):
        assert [listed.device(PLACE, client) for client in range(5)] == [*devices, *devices, devices[0]]
        assert listed.bounded
        assert canonical_json(listed.describe())
    assert not ListedDevices(devices=devices[:1]).bounded


def test_listed_devices_need_one_list(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no device"):
        ListedDevices()
    with pytest.raises(UserError, match="both"):
        ListedDevices(devices=(Device(seconds_per_sample=1.0),), path="devices.json")
    with pytest.raises(UserError, match=r"device 1: seconds_per_sample = nan"):
        ListedDevices(devices=(Device(seconds_per_sample=float("nan")),))


def test_arrivals_come_as_listed_and_then_no_more(tmp_path: Path) -> None:
    path = tmp_path / "arrivals.csv"
    path.write_text("time,client\n0.5,3\n0.5,1\n20,3\n")
    following = ArrivalTrace(path=path).bind(Place(population=4, seed=0))
    assert [following() for _ in range(4)] == [(0.5, 3), (0.5, 1), (20.0, 3), (float("inf"), -1)]
    with pytest.raises(UserError, match=r"line 2: client = 3"):
        ArrivalTrace(path=path).bind(Place(population=3, seed=0))
