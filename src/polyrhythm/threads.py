"""How many threads compute: one, wherever numbers must be the same everywhere."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Client work and measuring run with one thread everywhere, since the number of threads changes bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def settled_memory() -> Iterator[None]:
    """Lets the garbage collector look less often, and not at what exists already.

    A run makes many small values, hardly any of them in cycles. Without this, each full collection would walk through
    every object of every imported module and of the data, which takes as long as the simulator's own work.
    """
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
