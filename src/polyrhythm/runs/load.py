"""Load of a run on its machine: processor and memory of this process and of those that it has started."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_MOST = 256  # processes


class Load(NamedTuple):
    """Processor seconds so far, and bytes of memory now."""

    seconds: float
    bytes: int


def load() -> Load | None:
    """The load of this process and of its children; of this one alone where no more is told; None if nothing is."""
    if (found := _of_tree()) is not None:
        return found
    if sys.platform == "win32":
        return None
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF)
    scale = 1 if sys.platform == "darwin" else 1024
    return Load(used.ru_utime + used.ru_stime, used.ru_maxrss * scale)


def _of_tree() -> Load | None:
    """From `/proc`; None where there is none."""
    waiting, seen, seconds, memory = [os.getpid()], set[int](), 0.0, 0
    while waiting and len(seen) < _MOST:
        process = waiting.pop()
        if process in seen:
            continue
        seen.add(process)
        try:
            fields = (_PROC / str(process) / "stat").read_text().rpartition(")")[2].split()
            # Of its own threads, and of children that have ended and were waited for.
            seconds += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
            memory += int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
            tasks = list((_PROC / str(process) / "task").iterdir())
        except (OSError, ValueError, IndexError):
            if process == os.getpid():
                return None
            continue
        for task in tasks:
            try:
                waiting += map(int, (task / "children").read_text().split())
            except (OSError, ValueError):
                continue
    return Load(seconds, memory)
