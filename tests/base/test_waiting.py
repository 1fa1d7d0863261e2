"""Calls that wait for somebody else."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

from polyrhythm.base.waiting import WaitingCalls


def test_calls_give_what_they_return_or_raise() -> None:
    calls = WaitingCalls(2, "test")
    numbers = [calls.submit(pow, 2, n) for n in range(20)]
    wrong = calls.submit(int, "none")
    assert [number.result(timeout=120) for number in numbers] == [2**n for n in range(20)]
    with pytest.raises(ValueError, match="none"):
        wrong.result(timeout=120)


def test_no_more_than_so_many_wait_at_the_same_time() -> None:
    calls, gate, begun = WaitingCalls(3, "test-most"), threading.Event(), list[int]()
    futures = [calls.submit(lambda n: (begun.append(n), gate.wait(120)), n) for n in range(8)]
    deadline = time.monotonic() + 120
    while len(begun) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.1)  # for a fourth, if there were one
    assert sorted(begun) == [0, 1, 2]
    gate.set()
    assert all(future.result(timeout=120) for future in futures)
    assert sum(thread.name.startswith("test-most") for thread in threading.enumerate()) <= 3


def test_a_process_ends_though_something_is_waited_for() -> None:
    program = """
import threading
from polyrhythm.base.waiting import WaitingCalls
begun = threading.Event()
WaitingCalls(2, "answers").submit(lambda: (begun.set(), threading.Event().wait()))
assert begun.wait(120)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=240)
