"""Where a run ran: what a reader needs to tell two numbers apart that should have been equal."""

from __future__ import annotations

import functools
import os
import platform
import re
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any


def library_versions() -> dict[str, str]:
    """Versions of Python and of the libraries that decide numbers."""
    return {"python": platform.python_version()} | {name: _version(name) for name in ("polyrhythm", "torch", "numpy")}


@functools.cache  # the whole of a library's metadata is parsed for it
def _version(library: str) -> str:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return "not installed as a package"


def machine() -> dict[str, str | int]:
    """The processor, its cores that this process may use, the threads of one torch operation, the system.

    `instructions` is the instruction set that torch's kernels use, `MKL_CBWR` how MKL chooses its own.
    """
    import torch

    # Only Linux can say which cores are this process's own.
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return {
        "cpu": _processor(),
        "cores": usable,
        "threads": torch.get_num_threads(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "MKL_CBWR": os.environ.get("MKL_CBWR", "not set"),
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        "system": platform.platform(terse=True),
    }


def differences(libraries: Mapping[str, Any], where: Mapping[str, Any]) -> list[str]:
    """How what computes here differs from what computed there, as far as numbers may depend on it; in words.

    Args:
        libraries: as `library_versions` gave them there.
        where: as `machine` did.
    """
    here = {**library_versions(), **{key: machine()[key] for key in ("cpu", "instructions", "MKL_CBWR", "accelerator")}}
    there = {**libraries, **where}
    return [f"{name} {there[name]} there, {now} here" for name, now in here.items() if there.get(name, now) != now]


@functools.cache
def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def peak_memory() -> int:
    """The most bytes that this process has held; on Linux of this program alone.

    Elsewhere the system's figure may begin with that of the program that started it.
    """
    try:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    except OSError:
        found = None
    if found:
        return int(found[1]) * 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
