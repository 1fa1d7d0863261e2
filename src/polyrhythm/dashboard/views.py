"""What the pages of a run and of a comparison show, as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, final

from polyrhythm.base.errors import UserError
from polyrhythm.figures.subject import Subject
from polyrhythm.figures.theme import THEMES
from polyrhythm.results import Run, compare, tables
from polyrhythm.results.result_tables import corrected_words
from polyrhythm.results.verdict import best, verdict
from polyrhythm.runs import result_rule
from polyrhythm.runs.checkpoints import checkpoints, version_of
from polyrhythm.runs.costs import COSTS, On, Row
from polyrhythm.runs.database import read_last_version, read_run, read_versions
from polyrhythm.runs.labelling import labels_of
from polyrhythm.runs.settings_text import made_of
from polyrhythm.runs.view import RunView, as_it_stands

MOST = 60
"""Runs side by side, at most."""

_COSTS = [COSTS[name] for name in ("client_updates", "virtual_seconds", "bytes", "joules", "flops")]


def row_of(folder: Path, run_id: str) -> dict[str, Any]:
    """The row of the run with this id, and of none with a like one; its status is how it stands now.

    Raises:
        UserError: there is none, or the database cannot be read.
    """
    row = read_run(folder, run_id)
    if row is None:
        raise UserError(
            f"no run {run_id!r} in {folder}",
            expected="the id of a run in the list",
            why="it may have been in another folder",
            fix="go back to the list of runs",
        )
    return as_it_stands(folder, run_id, row, lambda: read_run(folder, run_id) or {})


@final
class Standings:
    """How runs of a folder stand. Looked at again, only what a run has done since then is read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[int, list[Row]] = {}  # by the number of a run that has not ended: what its numbers are from

    def of(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """What changes while a run goes on."""
        view = RunView(self._folder, row)
        numbers = view.numbers if view.summary else self._so_far(row["number"], row["headline"])
        told = {
            **{name: row[name] for name in ("status", "reason", "ended", "rounds")},
            **{name: value for name, value in numbers.items() if name != "final_accuracy"},
            "digest": view.summary.get("digest"),
            "costs": view.costs,
            # Of tests only in the end, as that takes a look at every client.
            "said": view.said_of_privacy if view.status == "running" else view.said,
        }
        if view.last is None:
            return {**told, "version": None}
        return {
            **told,
            **{name: view.last[name] for name in ("version", "wall", "train_loss", "client_updates")},
            "score": numbers["final_accuracy"],
        }

    def _so_far(self, run: int, headline: str) -> dict[str, Any]:
        """What a run has come to so far."""
        known = self._known.get(run, [])
        rows = self._since(run, known[-1]["version"] if known else 0)
        if known and [row["wall"] for row in rows[:1]] == [known[-1]["wall"]]:
            rows = [*known, *rows[1:]]
        elif known:  # resumed, it has made that version again
            rows = self._since(run, 0)
        self._known[run] = kept = result_rule.kept(rows, headline)
        return result_rule.numbers(kept, headline)

    def _since(self, run: int, version: int) -> list[Row]:
        return [*read_versions(self._folder, run, version, ("version", "wall", "test", "validation", "client_updates"))]


def details(folder: Path, row: Mapping[str, Any]) -> dict[str, Any]:
    """All of a run but its curves and how it stands."""
    path, method = Run(folder, dict(row)).path, row["config"].get("method")
    return {
        "id": row["run_id"],
        "name": row["called"],
        "method": method if isinstance(method, str) else row["recipe"],
        "made_of": made_of(row, path),
        **{name: row[name] for name in ("seed", "headline", "started", "clients", "parameters")},
        **{name: row[name] for name in ("config", "notices", "libraries", "machine")},
        "weights": [which for which in ("best", "final") if (path / f"{which}.safetensors").is_file()],
        "checkpoints": [version_of(file) for file in reversed(checkpoints(path))],
    }


def labelled(folder: Path, row: Mapping[str, Any]) -> dict[str, Any]:
    """What is said of a run: `called`, and its `labels`."""
    return {"name": row["called"], "first_name": row["name"], "labels": labels_of(folder, row["run_id"]).plain()}


def compared(
    runs: Sequence[Run], on: On, *, group_by: str | None = None, baseline: str | None = None
) -> dict[str, Any]:
    """Methods beside each other, over their seeds: results, what they cost, and what a reader should know.

    Raises:
        UserError: nothing to compare, runs that are judged by different metrics, or no such setting or method.
    """
    found = compare(runs, group_by=group_by, baseline=baseline)
    subject = Subject(runs, group_by)
    looks = {theme: subject.styles(theme) for theme in THEMES}
    gains, first = found.differences(on=on), best(found, "final", on)
    rows = []
    for entry in found.results(on=on):
        name = entry["method"]
        gain = gains.get(name)
        rows.append(
            {
                **entry,
                "colour": {theme: styles[name].colour for theme, styles in looks.items()},
                "dash": looks["light"][name].dash,
                "costs": _mean_costs(found.methods[name]),
                "best": first is not None and first.shown and first.method == name,
                "gain": None if gain is None else {**asdict(gain), "told": tables.gain(gain), "shown": gain.shown},
            }
        )
    heads = [{"name": cost.name, "words": cost.words, "unit": cost.unit} for cost in _COSTS]
    return {
        **{"headline": found.headline, "methods": rows, "costs": heads, "notes": found.notes},
        **{"baseline": found.baseline, "verdict": verdict(found, on), "corrected": corrected_words(gains)},
        "keys": found.grouping_keys,
        "settings": [[key, *values.values()] for key, values in found.settings.items()],
    }


def _mean_costs(runs: Sequence[Run]) -> dict[str, float | None]:
    """Means over seeds; None before there is a version."""
    rows = [row for run in runs if (row := read_last_version(run.folder, run.number)) is not None]
    return {cost.name: sum(cost.of(row) for row in rows) / len(rows) if rows else None for cost in _COSTS}
