"""Asks a run to stop, by a file in its folder that the run notices between two visits.

A signal would end everything else that the process does, such as other runs of a sweep; it would not reach another
machine that shares the folder; and in a program that is not ours it may mean something else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, final

from polyrhythm.base.errors import UserError
from polyrhythm.runs.observer import Observer
from polyrhythm.runs.recorded import RecordedRun
from polyrhythm.runs.records import Plan, RunStatus

_FILE = "stop"
_PAUSE = 0.1  # seconds between two looks; each is a system call, and visits may take less


def ask_to_stop(run: RecordedRun) -> None:
    """Asks a run to stop when the visit in progress is over. It will be "stopped", and can be resumed.

    Raises:
        UserError: it is not going on, or its folder cannot be written.
    """
    if run.status != "running":
        raise UserError(
            f"{run.id} is {run.status}",
            expected="a run that is going on",
            why="there is nothing to stop",
            fix="`polyrhythm runs` lists the runs of a folder and how they stand",
        )
    try:
        (run.path / _FILE).touch()
    except OSError as error:
        raise UserError(
            f"{run.path} cannot be written: {error.strerror or error}",
            expected="the folder of a run of yours",
            why="a run is asked to stop by a file in its folder",
            fix="end its process with Ctrl-C or SIGTERM, which stop it in the same way",
        ) from error


@final
class Stopping(Observer):
    """The observer that ends a run which was asked to stop.

    Args:
        folder: gives the folder of the run, when it has one.
    """

    def __init__(self, folder: Callable[[], Path]) -> None:
        self._folder = folder
        self._request: Path | None = None
        self._next = 0.0

    def begin(self, plan: Plan) -> None:
        """Forgets a request that an earlier part of the run did not live to see."""
        self._request = self._folder() / _FILE
        self._request.unlink(missing_ok=True)

    def why_end(self) -> str:
        """What is said of a run that was asked to stop."""
        now = time.monotonic()
        if now < self._next or self._request is None:
            return ""
        self._next = now + _PAUSE
        return "asked to stop" if self._request.exists() else ""

    def end(self, status: RunStatus, reason: str, summary: Mapping[str, Any]) -> None:
        """Whatever was asked, it is over."""
        if self._request is not None:
            self._request.unlink(missing_ok=True)
