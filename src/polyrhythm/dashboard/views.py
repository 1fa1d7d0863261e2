"""What the pages of a run and of a comparison show, as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from polyrhythm.base.errors import UserError
from polyrhythm.dashboard.listing import is_alive
from polyrhythm.figures import colours
from polyrhythm.figures.theme import THEMES
from polyrhythm.results import Run, compare
from polyrhythm.runs.checkpoints import checkpoints, version_of
from polyrhythm.runs.costs import On, lines, score, totals
from polyrhythm.runs.database import read_last_version, read_runs

MOST = 60
"""Runs side by side, at most."""

_COSTS = ("virtual_seconds", "bytes_up", "bytes_down", "joules", "flops", "client_updates")


def row_of(folder: Path, run_id: str) -> dict[str, Any]:
    """The row of the run with this id, and of none with a like one; its status is how it stands now.

    Raises:
        UserError: there is none, or the database cannot be read.
    """
    alive = is_alive(folder, run_id)  # first: a run writes its end before it lets go of its lock
    rows = read_runs(folder, run_id)
    if not rows:
        raise UserError(
            f"no run {run_id!r} in {folder}",
            expected="the id of a run in the list",
            why="it may have been in another folder",
            fix="go back to the list of runs",
        )
    return {**rows[0], "status": "killed" if rows[0]["status"] == "running" and not alive else rows[0]["status"]}


def standing(folder: Path, row: Mapping[str, Any]) -> dict[str, Any]:
    """How a run stands: what changes while it goes on."""
    last, summary = read_last_version(folder, row["number"]), row["summary"] or {}
    told = {
        **{name: row[name] for name in ("status", "reason", "ended", "rounds")},
        **{
            name: summary.get(name) for name in ("best_accuracy", "best_by", "best_version", "last20_mean", "last20_sd")
        },
        "digest": summary.get("digest"),
    }
    if last is None:
        return {**told, "version": None, "costs": {}}
    return {
        **told,
        **{name: last[name] for name in ("version", "wall", "train_loss", "client_updates")},
        "score": summary.get("final_accuracy", score(last, row["headline"])),
        "costs": lines({**totals(last), "faults": last["faults"]}),
    }


def details(folder: Path, row: Mapping[str, Any]) -> dict[str, Any]:
    """All of a run but its curves."""
    path, method = Run(folder, dict(row)).path, row["config"].get("method")
    return {
        "id": row["run_id"],
        "method": method if isinstance(method, str) else row["recipe"],
        **{name: row[name] for name in ("name", "seed", "headline", "started", "clients", "parameters")},
        **{name: row[name] for name in ("config", "notices", "libraries", "machine")},
        "weights": [which for which in ("best", "final") if (path / f"{which}.safetensors").is_file()],
        "checkpoints": [version_of(file) for file in reversed(checkpoints(path))],
        **standing(folder, row),
    }


def compared(runs: Sequence[Run], on: On) -> dict[str, Any]:
    """Methods beside each other, over their seeds: results, what they cost, and what a reader should know.

    Raises:
        UserError: nothing to compare, or runs that are judged by different metrics.
    """
    found = compare(runs)
    shades = {theme: colours(runs, theme) for theme in THEMES}
    rows = []
    for entry in found.results(on=on):
        members = found.methods[entry["method"]]
        colour = {theme: of_run[members[0].id] for theme, of_run in shades.items()}
        rows.append({**entry, "colour": colour, "costs": _mean_costs(members)})
    return {"headline": found.headline, "methods": rows, "notes": found.notes}


def _mean_costs(runs: Sequence[Run]) -> dict[str, float | None]:
    """Means over seeds; None where a record does not say."""
    rows = [row for run in runs if (row := read_last_version(run.folder, run.number)) is not None]
    found: dict[str, float | None] = {}
    for name in _COSTS:
        values = [totals(row)[name] for row in rows]
        found[name] = sum(values) / len(values) if values and None not in values else None
    return found
