"""Where what clients remember is kept beyond the memory that it may take."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from polyrhythm.runs.checkpoints import checkpoints, version_of
from polyrhythm.simulation.client_store.amount import budget
from polyrhythm.simulation.client_store.store import ClientStore, InMemory, Spilling
from polyrhythm.simulation.client_store.vector_files import VectorFiles

VECTORS = "clients"
"""The folder, in that of a run, of what its clients remember beyond that memory."""


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
        return Spilling(VectorFiles(lambda: Path(tempfile.mkdtemp(prefix="polyrhythm-")), lambda: ()), held)
    return Spilling(VectorFiles(lambda: folder() / VECTORS, lambda: map(version_of, checkpoints(folder()))), held)
