"""TensorBoard: one folder of event files for each run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from polyrhythm.runs.records import Plan, RunStatus
from polyrhythm.trackers.base import Tracker, settings_of


@final
class _TensorBoard:
    def __init__(self, folder: Path, writer: Any) -> None:
        self._folder, self._make = folder, writer
        self._writer: Any = None

    def begin(self, run_id: str, plan: Plan, version: int) -> None:
        """Begins a folder, or goes on with it: what it had of later versions is void."""
        self._writer = self._make(str(self._folder / run_id), purge_step=version or None)
        rows = "\n".join(f"| {key} | {value} |" for key, value in settings_of(plan).items())
        self._writer.add_text("settings", f"| setting | value |\n| --- | --- |\n{rows}", version)

    def log(self, version: int, numbers: Mapping[str, float]) -> None:
        """Adds a point to each curve, and has it on disk."""
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, version)
        self._writer.flush()

    def end(self, status: RunStatus, numbers: Mapping[str, float]) -> None:
        """Closes the file."""
        self._writer.close()


def tracker(folder: Path, project: str) -> Tracker:
    """The tracker."""
    from torch.utils.tensorboard import SummaryWriter

    return _TensorBoard(folder, SummaryWriter)
