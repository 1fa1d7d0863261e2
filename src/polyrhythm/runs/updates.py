"""The observer that keeps what clients sent, so that the server's part of a run can be done again without them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import final

from polyrhythm.base.messages import Report
from polyrhythm.runs.encoding import Codec
from polyrhythm.runs.observer import Observer, Start
from polyrhythm.runs.stored import store

START = "updates/start.safetensors"


def file_of(dispatch: int) -> str:
    """Where a report is kept in a run's folder, by dispatch number."""
    return f"updates/{dispatch:08d}.safetensors"


def logged(folder: Path) -> set[int] | None:
    """The dispatch numbers of reports that a run's folder has; None if no log of updates was kept."""
    if not (folder / START).exists():
        return None
    return {int(path.stem) for path in (folder / START).parent.glob("[0-9]*.safetensors") if path.stem.isdecimal()}


@final
class UpdateLog(Observer):
    """Keeps every report that is heard in a file of its own: as many bytes as have travelled, uncompressed.

    Args:
        folder: gives the run's, once it has begun.
        codec: knows reports.
    """

    def __init__(self, folder: Callable[[], Path], codec: Codec) -> None:
        self._folder, self._codec = folder, codec

    def started(self, start: Start) -> None:
        """Keeps what the server knows."""
        (self._folder() / START).parent.mkdir(exist_ok=True)
        store(self._folder() / START, self._codec, start, {})

    def report(self, report: Report) -> None:
        """Keeps a report."""
        store(self._folder() / file_of(report.dispatch), self._codec, report, {}, durable=False)
