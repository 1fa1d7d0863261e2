"""How long transfers take."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from polyrhythm.base.errors import UserError
from polyrhythm.fleet import BandwidthTrace, LognormalLinks, Place, UserSpeeds
from polyrhythm.fleet.bandwidth import Trace

PLACE = Place(population=1000, seed=0)


def test_a_transfer_by_hand() -> None:
    """2 B/s for 3 s, nothing for 2 s, 10 B/s for 1 s, and again."""
    trace = Trace(np.array([5.0, 8.0, 10.0, 11.0]), np.array([99.0, 2.0, 0.0, 10.0]))
    assert (trace.period, trace.bytes) == (6.0, 16.0)
    for size, at, seconds in [
        (4, 0.0, 2.0),
        (6, 0.0, 3.0),  # the last byte before the silence
        (7, 0.0, 5.1),  # and the first one after it
        (1, 4.0, 1.1),
        (16, 0.0, 6.0),
        (18, 0.0, 7.0),
        (160, 0.0, 60.0),
        (16, 3.0, 6.0),  # from the silence round to its beginning, though the same bytes are through until its end
        (0, 3.0, 0.0),
    ]:
        assert trace.seconds(size, at) == pytest.approx(seconds), (size, at)


def test_a_transfer_that_ends_with_its_repetition_does_not_wait_for_the_silence() -> None:
    """4 B/s for 1 s, then nothing for 1 s: 4 bytes take 1 s, and 8 take 3."""
    trace = Trace(np.array([0.0, 1.0, 2.0]), np.array([0.0, 4.0, 0.0]))
    assert [trace.seconds(size, 0.0) for size in (4, 8)] == [1.0, 3.0]


def test_clients_are_on_drawn_traces_at_drawn_moments(tmp_path: Path) -> None:
    path = tmp_path / "b.csv"
    path.write_text("trace,time_s,mbps\na,0,1\na,5,1\na,10,3\nb,0,0\nb,4,8\n")
    links = BandwidthTrace(path=path, down=2.0, up=0.5, latency=0.1)
    line = links.bind(PLACE)
    one_mb = [line.seconds(client, "down", 1_000_000, 0.0) for client in range(200)]
    fast = [seconds for seconds in one_mb if seconds == pytest.approx(0.1 + 0.5)]  # trace b: 8 Mbit/s, doubled
    assert 60 < len(fast) < 140
    others = {round(seconds, 6) for seconds in one_mb if seconds not in fast}
    assert len(others) > 50  # on trace a it depends on where one is
    later = line.seconds(3, "down", 1_000_000, 10.0)
    slow = next(client for client in range(200) if one_mb[client] not in fast)
    assert line.seconds(slow, "down", 1_000_000, 10.0) == pytest.approx(one_mb[slow])  # a whole repetition later
    assert later >= 0.1
    whole = line.seconds(slow, "up", 5_000_000, 0.0)  # 10 s of trace a are 2.5 MB, halved: 40 s
    assert whole == pytest.approx(40.1)


def test_npz_and_csv_hold_the_same_traces(tmp_path: Path) -> None:
    times, speeds = np.array([0.0, 1, 3, 2, 9], dtype=np.float32), np.array([1, 2, 0.5, 1, 4], dtype=np.float32)
    np.savez(tmp_path / "a.npz", time_s=times, mbps=speeds, offset=np.array([0, 3, 5]))
    names = ["x", "x", "x", "y", "y"]
    rows = [f"{n},{t},{s}" for n, t, s in zip(names, times, speeds, strict=True)]
    (tmp_path / "a.csv").write_text("\n".join(["trace,time_s,mbps", *rows]))
    one, other = (BandwidthTrace(path=tmp_path / f"a.{kind}").traces for kind in ("npz", "csv"))
    assert [(t.period, t.bytes) for t in one] == [(t.period, t.bytes) for t in other] == [(3.0, 375_000), (7.0, 3.5e6)]


def test_rows_of_one_trace_may_stand_apart(tmp_path: Path) -> None:
    head, *rows = ["trace,time_s,mbps", "a,0,1", "b,0,0", "a,5,1", "b,4,8", "a,10,3"]
    (tmp_path / "apart.csv").write_text("\n".join([head, *rows]))
    (tmp_path / "sorted.csv").write_text("\n".join([head, *sorted(rows, key=lambda row: row[0])]))
    apart, together = (BandwidthTrace(path=tmp_path / f"{name}.csv").traces for name in ("apart", "sorted"))
    assert [vars(trace) for trace in apart] == [vars(trace) for trace in together]
    assert len(apart) == 2
    (tmp_path / "twice.csv").write_text("\n".join([head, *rows, "a,1,2", "a,6,2"]))  # another trace of that name
    with pytest.raises(UserError, match="trace a: time_s does not rise"):
        BandwidthTrace(path=tmp_path / "twice.csv")


def test_a_users_speed_is_normal_and_the_same_whenever_it_is_asked(tmp_path: Path) -> None:
    """Means and standard deviations over moments; the second user's speed would be negative every third time."""
    path = tmp_path / "users.csv"
    path.write_text(
        "down_mean_kb_s,down_std_kb_s,up_mean_kb_s,up_std_kb_s\n1000,100,500,0\n1000,2000,500,0\n",
    )
    line = UserSpeeds(path=path).bind(PLACE)
    speeds = np.array(
        [[1e6 / 1024 / line.seconds(c, "down", 1_000_000, float(t)) for t in range(4000)] for c in (0, 1)]
    )
    assert abs(speeds[0].mean() - 1000) < 10
    assert abs(speeds[0].std() - 100) < 6
    assert speeds[1].min() > 0
    assert abs(speeds[1].mean() - 2018) < 80  # of a normal law cut off at 0: mean + std * phi(-1/2) / (1 - Phi(-1/2))
    assert line.seconds(0, "up", 512_000, 3.0) == 1.0
    assert line.seconds(0, "down", 512_000, 3.0) == line.seconds(0, "down", 512_000, 3.0)


def test_lognormal_links_have_their_median_and_spread() -> None:
    line = LognormalLinks(down=1e6, up=2e5, sigma=0.7).bind(PLACE)
    logs = np.log([[1e6 / line.seconds(c, way, 1_000_000, 0.0) for c in range(1000)] for way in ("down", "up")])
    assert np.allclose(np.median(logs, axis=1), np.log([1e6, 2e5]), atol=0.12)
    assert np.allclose(logs.std(axis=1), 0.7, atol=0.07)
    assert np.allclose(logs[0] - logs[1], np.log(5))  # who receives fast sends fast
