"""The observer that keeps what clients sent, so that the server's part of a run can be done again without them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, final, runtime_checkable

from polyrhythm.base.messages import Model, Report
from polyrhythm.runs.encoding import Codec
from polyrhythm.runs.records import ModelView, Plan, RunStatus, VersionRecord, VisitRecord
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
@dataclass(frozen=True, kw_only=True)
class Start:
    """What the server knew when the run began, beyond its description.

    Args:
        initial: version 0.
        population: clients that the federation declares.
        clients: those that may be invited, in order.
        shape: of one sample.
        outputs: of the model.
        task: what the model is asked to do.
    """

    initial: Model
    population: int
    clients: tuple[int, ...]
    shape: tuple[int, ...]
    outputs: int
    task: str


@runtime_checkable
class KeepsReports(Protocol):
    """An observer that is also told what clients sent."""

    def started(self, start: Start) -> None:
        """After `begin`, when the run begins or goes on."""

    def report(self, report: Report) -> None:
        """A report was heard."""


@final
class UpdateLog:
    """Keeps every report that is heard in a file of its own: as many bytes as have travelled, uncompressed.

    Args:
        folder: gives the run's, once it has begun.
        codec: knows reports.
    """

    def __init__(self, folder: Callable[[], Path], codec: Codec) -> None:
        self._folder, self._codec = folder, codec

    def begin(self, plan: Plan) -> None:
        """Nothing to do."""

    def started(self, start: Start) -> None:
        """Keeps what the server knows."""
        (self._folder() / START).parent.mkdir(exist_ok=True)
        store(self._folder() / START, self._codec, start, {})

    def report(self, report: Report) -> None:
        """Keeps a report."""
        store(self._folder() / file_of(report.dispatch), self._codec, report, {}, durable=False)

    def visit(self, record: VisitRecord) -> None:
        """The report was kept already."""

    def version(self, record: VersionRecord, model: ModelView) -> None:
        """Versions follow from reports."""

    def end(self, status: RunStatus, reason: str, summary: Mapping[str, Any]) -> None:
        """Nothing to do."""
