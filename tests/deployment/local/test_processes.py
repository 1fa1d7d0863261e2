"""What was started is stopped, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from polyrhythm.deployment.local.processes import Processes, Started

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="process numbers are read from /proc")

SLEEPS = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]
DEAF = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)",
]
PARENT = [
    sys.executable,
    "-c",
    "import subprocess, sys, time; child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']);"
    "print(child.pid, flush=True); time.sleep(60)",
]


def said(started: Started) -> str:
    for _ in range(200):
        if text := Path(started.log).read_text():
            return text
        time.sleep(0.05)
    raise AssertionError("it has said nothing")


def test_a_program_is_stopped_by_whoever_reads_its_number(tmp_path: Path) -> None:
    started = Processes(tmp_path).start("node 1", SLEEPS, os.environ)
    said(started)
    later = Processes(tmp_path)
    assert later.alive() == [started]
    assert later.stop(started)
    assert not started.alive
    assert later.known() == []
    assert not (tmp_path / "processes.json").exists()


def test_what_it_has_started_ends_too(tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    started = processes.start("superlink", PARENT, os.environ)
    child = int(said(started))
    os.kill(started.pid, signal.SIGKILL)
    while not processes.ended(started):
        time.sleep(0.02)
    assert Path(f"/proc/{child}").exists()
    processes.stop(started)
    for _ in range(100):
        try:
            state = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return
        if state == "Z":  # nobody is there to take it away
            return
        time.sleep(0.05)
    raise AssertionError("the child lives")


def test_what_an_ended_program_has_left_is_gone_at_once_and_nothing_else(tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    started, other = (processes.start(name, PARENT, os.environ) for name in ("superlink", "node 1"))
    left, child = int(said(started)), int(said(other))
    os.kill(started.pid, signal.SIGKILL)
    while not processes.ended(started):
        time.sleep(0.02)
    for one in processes.known():
        processes.bury(one)
    state = Path(f"/proc/{left}/stat")
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"
    assert other.alive
    assert Path(f"/proc/{child}").exists()
    processes.stop(other)


@pytest.mark.parametrize("leads", [True, False])
def test_an_orphan_goes_with_its_group_unless_somebody_else_s(tmp_path: Path, leads: bool) -> None:
    processes = Processes(tmp_path)
    ended, other = processes.start("superlink", SLEEPS, os.environ), processes.start("node 1", PARENT, os.environ)
    child = int(said(other))
    os.kill(ended.pid, signal.SIGKILL)
    while not processes.ended(ended):
        time.sleep(0.02)
    processes.bury(ended, lambda process: process == (other.pid if leads else child))
    state = Path(f"/proc/{child}/stat")
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"
    assert other.alive is not leads
    processes.stop(other)


def test_a_program_that_does_not_listen_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polyrhythm.deployment.local.processes._PATIENCE", 0.3)
    processes = Processes(tmp_path)
    started = processes.start("node 1", DEAF, os.environ)
    said(started)
    assert not processes.stop(started)
    while not processes.ended(started):
        time.sleep(0.02)


def test_another_process_with_the_same_number_is_left_alone(tmp_path: Path) -> None:
    stranger = subprocess.Popen(SLEEPS, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        time.sleep(0.1)  # births are counted in hundredths of a second
        processes = Processes(tmp_path)
        started = processes.start("node 1", [sys.executable, "-c", ""], os.environ)
        while not processes.ended(started):
            time.sleep(0.02)
        taken = replace(started, pid=stranger.pid)
        assert not taken.alive
        processes.stop(taken)
        time.sleep(0.2)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_program_takes_the_place_of_one_that_has_ended(tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    first = processes.start("node 1", [sys.executable, "-c", ""], os.environ)
    second = processes.start("node 1", SLEEPS, os.environ)
    assert [s.pid for s in processes.known()] == [second.pid] != [first.pid]
    processes.stop(second)
