"""What the pages of a run and of a comparison show, as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from polyrhythm.errors import UserError
from polyrhythm.runs import Run, compare
from polyrhythm.runs.checkpoints import checkpoints, version_of
from polyrhythm.runs.costs import On, lines, score, totals
from polyrhythm.runs.database import read_last_version, read_runs

MOST = 60
"""Runs side by side."""


def opened(folder: Path, run_id: str) -> Run:
    """The run with this id, and none with a like one.

    Raises:
        UserError: there is none, or the database cannot be read.
    """
    rows = read_runs(folder, run_id)
    if not rows:
        raise UserError(
            f"no run {run_id!r} in {folder}",
            expected="the id of a run in the list",
            why="it may have been in another folder",
            fix="go back to the list of runs",
        )
    return Run(folder, rows[0])


def status_of(run: Run) -> dict[str, Any]:
    """How a run stands: what changes while it goes on."""
    status = run.status
    last = read_last_version(run.folder, run.number)
    summary = run.summary
    return {
        "status": status,
        "reason": run.reason,
        "ended": run.ended,
        "version": None if last is None else last["version"],
        "rounds": run.config.get("rounds"),
        "wall": None if last is None else last["wall"],
        "score": None if last is None else score(last, run.headline),
        "loss": None if last is None else last["train_loss"],
        "best": summary.get("best_accuracy"),
        "best_by": summary.get("best_by"),
        "final": summary.get("final_accuracy"),
        "last20_mean": summary.get("last20_mean"),
        "last20_sd": summary.get("last20_sd"),
        "client_updates": None if last is None else last["client_updates"],
        "costs": {} if last is None else lines({**totals(last), "faults": last["faults"]}),
    }


def details_of(run: Run) -> dict[str, Any]:
    """All of a run but its curves."""
    path = run.path
    return {
        "id": run.id,
        "name": run.name,
        "method": run.config["method"] if isinstance(run.config.get("method"), str) else run.recipe,
        "seed": run.seed,
        "headline": run.headline,
        "started": run.started,
        "config": run.config,
        "notices": run.notices,
        "libraries": run.libraries,
        "machine": run.machine,
        "digest": run.summary.get("digest"),
        "weights": [which for which in ("best", "final") if (path / f"{which}.safetensors").is_file()],
        "checkpoints": [version_of(file) for file in reversed(checkpoints(path))],
        **status_of(run),
    }


def compared(runs: Sequence[Run], on: On) -> dict[str, Any]:
    """Methods beside each other, over their seeds: results, what they cost, and what a reader should know.

    Raises:
        UserError: nothing to compare, or runs that are judged by different metrics.
    """
    found = compare(runs)
    rows = []
    for entry in found.results(on=on):
        members = found.methods[entry["method"]]
        rows.append({**entry, "status": [run.status for run in members], "costs": _mean_costs(members)})
    return {"headline": found.headline, "on": on, "methods": rows, "notes": found.notes}


_COSTS = ("virtual_seconds", "bytes_up", "bytes_down", "joules", "flops", "client_updates")


def _mean_costs(runs: Sequence[Run]) -> Mapping[str, float | None]:
    """Means over seeds; None where a record does not say."""
    rows = [row for run in runs if (row := read_last_version(run.folder, run.number)) is not None]
    all_costs = [totals(row) for row in rows]
    return {
        name: None if any(costs[name] is None for costs in all_costs) or not all_costs
        else sum(costs[name] for costs in all_costs) / len(all_costs)
        for name in _COSTS
    }  # fmt: skip
