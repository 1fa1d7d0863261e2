"""What any worker process does beside its visits: takes over settings, reports errors."""

from __future__ import annotations

import traceback
from typing import Any

import torch

from polyrhythm.base.errors import RunFailed
from polyrhythm.base.threads import keep_freed_memory
from polyrhythm.simulation.workers import packing

DEATHS = 3
"""How many workers one visit may kill before the run is given up."""


class FromWorker(Exception):
    """The traceback of an error in a worker process, as the cause of that error here."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class Unsendable(Exception):
    """Something that visits need cannot be sent to another process."""


def given_up(*clients: int) -> RunFailed:
    """The error of a visit, or of several that are taken together, that has killed its workers."""
    what = "visit, of client" if len(clients) == 1 else "visits, of clients"
    fewer = "fewer workers need less" if len(clients) == 1 else "fewer workers, or a smaller stack, need less"
    return RunFailed(
        f"{DEATHS} worker processes died on the same {what} {', '.join(map(str, clients))}: perhaps for lack of memory "
        f"({fewer}), or in native code; with driver=inline the error may show itself"
    )


def settings() -> tuple[Any, ...]:
    """What the driver has told torch, as far as it can change a number."""
    return torch.get_default_dtype(), torch.get_float32_matmul_precision()


def settle(told: tuple[Any, ...]) -> None:
    """Takes over what `settings` gave in the driver's process, and computes with one thread from now on."""
    torch.set_num_threads(1)
    keep_freed_memory()
    dtype, precision = told
    torch.set_default_dtype(dtype)
    torch.set_float32_matmul_precision(precision)


def out_of_memory(error: Exception) -> bool:
    """Whether an error says that there was not enough memory, in whatever words."""
    # Without a GPU torch says so in words only: "DefaultCPUAllocator: can't allocate memory" or "not enough memory".
    words = ("can't allocate memory", "not enough memory")
    return isinstance(error, MemoryError | torch.cuda.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and any(w in str(error) for w in words)
    )


def sendable(error: Exception) -> tuple[Exception, str]:
    """The error, its words alone if it cannot be sent, and its traceback."""
    told = "".join(traceback.format_exception(error))
    try:
        copy: Exception = packing.unpack([bytes(part) for part in packing.pack(error)])
        if type(copy) is type(error) and str(copy) == str(error):
            return error, told
    except Exception:  # whatever a user's own class does
        pass
    words = RuntimeError(f"{type(error).__name__}: {error}")
    for note in getattr(error, "__notes__", ()):
        words.add_note(note)
    return words, told
