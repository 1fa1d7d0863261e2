"""What memory a run keeps that it has freed."""

from __future__ import annotations

import gc
import platform
import subprocess
import sys

import pytest

from polyrhythm.base.threads import lean_memory, settled_memory

_MANY_THREADS = """
import re, sys, threading
from pathlib import Path
from polyrhythm.base import threads

def size():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024

kept = []

def come():
    for _ in range(4):
        parts = [bytes(6_000_000), b"x" * 3_000_000]
        kept.append(b"y" * 1_000)  # what is small and lives on
        del parts

with getattr(threads, sys.argv[1])():
    begun = size()
    for _ in range(3):
        group = [threading.Thread(target=come) for _ in range(12)]
        for one in group: one.start()
        for one in group: one.join()
    print(size() - begun)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="others keep nothing for each thread")
def test_what_was_large_goes_back_to_the_system_whichever_thread_had_it() -> None:
    assert _grown("lean_memory") < 6 < _grown("settled_memory")


def _grown(how: str) -> float:
    """MB by which a program grows that had 9 MB in each of 36 threads."""
    done = subprocess.run([sys.executable, "-c", _MANY_THREADS, how], capture_output=True, text=True, check=True)
    return float(done.stdout)


def test_the_collector_looks_as_often_as_before_where_messages_come_and_afterwards() -> None:
    before = gc.get_threshold()
    for how in (settled_memory, lean_memory):
        with how():
            assert (gc.get_threshold() == before) is (how is lean_memory)
        assert gc.get_threshold() == before
