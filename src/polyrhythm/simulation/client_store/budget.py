"""How much of what clients remember is in memory, and where the rest of it goes."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from pathlib import Path

from polyrhythm.base.errors import UserError
from polyrhythm.runs.checkpoints import checkpoints, version_of
from polyrhythm.simulation.client_store.shelf import Shelf
from polyrhythm.simulation.client_store.store import ClientStore, InMemory, Spilling

ALL = "all"
VECTORS = "clients"
"""The folder, in that of a run, of what its clients remember beyond that memory."""

_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def budget(memory: object) -> int | None:
    """Bytes of a text such as "1 GiB"; None for "all".

    >>> budget("1.5 GiB")
    1610612736

    Raises:
        UserError: it is no such text.
    """
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,6})?) ?([KMGT]i?B|B)", memory) if isinstance(memory, str) else None
    if match is not None:
        return int(float(match[1]) * _UNITS[match[2]])
    if memory != ALL:
        raise UserError(
            f"client_memory = {memory!r}",
            expected='an amount of memory with its unit, such as "1 GiB" or "500 MB", or "all"',
            why="so much of what clients remember is kept in memory, and the rest in files",
            fix='client_memory="1 GiB"',
        )
    return None


def store_of(memory: str, folder: Callable[[], Path] | None) -> ClientStore:
    """Where a run keeps what its clients remember: in memory, or beyond that in files.

    Those are in the run's folder, where its checkpoints find them; if there are none, in the system's temporary one.

    Args:
        memory: an amount, or "all".
        folder: gives the folder of the run that keeps checkpoints, once it has begun; None if nobody keeps any.
    """
    held = budget(memory)
    if held is None:
        return InMemory()
    if folder is None:
        return Spilling(Shelf(lambda: Path(tempfile.mkdtemp(prefix="polyrhythm-")), lambda: ()), held)
    return Spilling(Shelf(lambda: folder() / VECTORS, lambda: map(version_of, checkpoints(folder()))), held)
