"""Weights & Biases: runs of a project; WANDB_MODE says whether they go to the server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from polyrhythm.runs.records import Plan, RunStatus
from polyrhythm.trackers.base import Tracker, settings_of, title


@final
class _WandB:
    def __init__(self, folder: Path, project: str, wandb: Any) -> None:
        self._folder, self._project, self._wandb = folder, project, wandb
        self._run: Any = None

    def begin(self, run_id: str, plan: Plan, version: int) -> None:
        """Begins the run, or goes on with it: it has our id there, too."""
        self._folder.mkdir(parents=True, exist_ok=True)
        # Console, source code and machine are not sent: only what is told here.
        quiet = self._wandb.Settings(
            console="off", silent=True, disable_code=True, disable_git=True, x_disable_stats=True
        )
        self._run = self._wandb.init(
            project=self._project,
            id=run_id,
            resume="allow",
            name=title(run_id, plan),
            config=settings_of(plan),
            dir=str(self._folder),
            settings=quiet,
        )

    def log(self, version: int, numbers: Mapping[str, float]) -> None:
        """Adds a point to each curve."""
        self._run.log(dict(numbers), step=version)

    def end(self, status: RunStatus, numbers: Mapping[str, float]) -> None:
        """Ends the run."""
        self._run.summary.update(dict(numbers))
        self._run.finish(exit_code=0 if status == "finished" else 1)


def tracker(folder: Path, project: str) -> Tracker:
    """The tracker."""
    import wandb

    return _WandB(folder, project, wandb)
