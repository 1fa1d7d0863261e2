"""MLflow: runs of an experiment, on the server that MLFLOW_TRACKING_URI names, or in a database of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from polyrhythm.runs.records import Plan, RunStatus
from polyrhythm.trackers.base import Tracker, settings_of, title

_ENDS = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}
_LONG = 500  # characters of a value that every store takes


@final
class _MLflow:
    def __init__(self, folder: Path, project: str, client: Any) -> None:
        self._folder, self._project, self._client_of = folder, project, client
        self._client: Any = None
        self._run = ""

    def begin(self, run_id: str, plan: Plan, version: int) -> None:
        """Finds the run, if it goes on, or makes it."""
        # A server that has gone should be told of in seconds, and not hold up the training for minutes.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
        uri = os.environ.get("MLFLOW_TRACKING_URI")
        if uri is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            uri = f"sqlite:///{(self._folder / 'mlflow.db').absolute()}"
        self._client = client = self._client_of(tracking_uri=uri)
        there = client.get_experiment_by_name(self._project)
        where = client.create_experiment(self._project) if there is None else there.experiment_id
        known = client.search_runs([where], f"tags.polyrhythm = '{run_id}'", max_results=1)
        if known:
            self._run = known[0].info.run_id
            client.update_run(self._run, status="RUNNING")
            return
        self._run = client.create_run(where, tags={"polyrhythm": run_id}, run_name=title(run_id, plan)).info.run_id
        for key, value in settings_of(plan).items():
            client.log_param(self._run, _key(key), str(value)[:_LONG])

    def log(self, version: int, numbers: Mapping[str, float]) -> None:
        """Adds a point to each curve, in one message."""
        import time

        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        found = [Metric(_key(name), value, now, version) for name, value in numbers.items()]
        self._client.log_batch(self._run, metrics=found)

    def end(self, status: RunStatus, numbers: Mapping[str, float]) -> None:
        """Ends the run."""
        self._client.set_terminated(self._run, _ENDS[status])


def _key(name: str) -> str:
    """A name with the signs that MLflow takes."""
    return "".join(sign if sign.isalnum() or sign in "_-./ " else "_" for sign in name)


def tracker(folder: Path, project: str) -> Tracker:
    """The tracker."""
    from mlflow.tracking import MlflowClient

    return _MLflow(folder, project, MlflowClient)
