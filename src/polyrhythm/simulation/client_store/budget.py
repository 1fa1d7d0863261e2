"""Where what clients remember is kept beyond the memory that it may take."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from polyrhythm.runs.checkpoints import checkpoints, version_of
from polyrhythm.runs.records import KeepsState
from polyrhythm.simulation.client_store.amount import budget
from polyrhythm.simulation.client_store.shelf import Shelf
from polyrhythm.simulation.client_store.store import ClientStore, InMemory, Spilling

VECTORS = "clients"
"""The folder, in that of a run, of what its clients remember beyond that memory."""


def store_of(memory: str, keepers: Sequence[KeepsState]) -> ClientStore:
    """Where a run keeps what its clients remember: in memory, or beyond that in files.

    Those are in the run's folder, where its checkpoints find them; if nobody keeps any, in the system's temporary one.

    Args:
        memory: an amount, or "all".
        keepers: observers that keep the run's state.
    """
    held = budget(memory)
    if held is None:
        return InMemory()
    if not keepers:
        return Spilling(Shelf(lambda: Path(tempfile.mkdtemp(prefix="polyrhythm-")), lambda: ()), held)
    keeper = keepers[0]
    return Spilling(Shelf(lambda: keeper.path / VECTORS, lambda: map(version_of, checkpoints(keeper.path))), held)
