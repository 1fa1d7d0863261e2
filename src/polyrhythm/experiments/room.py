"""Whether there is room on the disk for what clients will remember."""

from __future__ import annotations

import shutil
from pathlib import Path

from polyrhythm.base.errors import UserError
from polyrhythm.experiments.dry_run import dry_run
from polyrhythm.experiments.prepared import Prepared
from polyrhythm.simulation.client_store.amount import budget

DRY_RUN_SECONDS = 1.0  # seconds in which it is counted how much clients will remember


def check_room(prepared: Prepared, folder: Path) -> None:
    """Refuses a run whose clients will remember more than there is room for, as far as a short dry run can say.

    Raises:
        UserError: with what it takes, and what there is.
    """
    memory = budget(prepared.execution.client_memory)
    if memory is None:
        return
    dry = dry_run(prepared, within=DRY_RUN_SECONDS)
    there = folder.absolute()
    while not there.exists():
        there = there.parent
    needed = dry.client_bytes + dry.table_bytes - (0 if prepared.execution.checkpoint.wanted else memory)
    free = shutil.disk_usage(there).free
    if needed > free:
        raise UserError(
            f"{free:,} bytes are free in {folder}",
            expected=f"at least {needed:,}, in which clients remember what {prepared.recipe.title} has them remember",
            why="the run would end when the disk is full",
            fix="free some space, use another folder (--out), fewer clients, or a smaller model",
        )
