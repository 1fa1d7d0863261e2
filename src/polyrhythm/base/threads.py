"""How many threads compute, one wherever numbers must be the same everywhere, and what memory a run keeps."""

from __future__ import annotations

import contextlib
import ctypes
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
    keep_freed_memory()
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(500_000, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


@contextlib.contextmanager
def lean_memory() -> Iterator[None]:
    """Gives back to the system whatever is freed and large; the garbage collector looks as often as by default.

    For a server to which others send: what comes is large, comes in many threads, and lies in cycles for a while (a
    response and its stream know each other). Kept for reuse, it would be many times what is needed.
    """
    return_freed_memory()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def return_freed_memory() -> None:
    """Tells glibc to give blocks of half a MiB and more back to the system when they are freed.

    By default it raises that size to whatever was freed last, up to 32 MiB, and keeps twice as much for each group of
    threads. Lasts as long as the process. Nothing happens with another C library.
    """
    _keeping(2**20, 2**19)


def keep_freed_memory() -> None:
    """Tells glibc to keep up to 256 MiB of what was freed, in place of handing it back to the system and asking again.

    A training step frees all that it took. By default that memory may leave the process after every step and come back
    page by page, which can take as long as the arithmetic. Lasts as long as the process. Nothing happens with another C
    library.
    """
    _keeping(2**28, 2**25)  # the most there is


def hand_back_freed_memory() -> None:
    """Hands what was freed back to the system. Nothing happens with another C library than glibc."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's mallopt


def _keeping(at_the_end: int, of_its_own: int) -> None:
    """Sets from how many free bytes at its end a heap shrinks, and from how many a block is the system's own."""
    with contextlib.suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_TRIM_THRESHOLD, at_the_end)
        mallopt(_MMAP_THRESHOLD, of_its_own)
