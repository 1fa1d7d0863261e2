"""Studies of a folder: their trials as they were recorded, read from files and the run database alone."""

from __future__ import annotations

import functools
import math
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, final

from polyrhythm.base.errors import UserError, unknown
from polyrhythm.base.input_file import json_of
from polyrhythm.figures.trials import Trials, Tried
from polyrhythm.runs import run_lock
from polyrhythm.runs.database import FILE, reading
from polyrhythm.runs.view import as_it_stands

_FOLDER, _RECORD = "studies", "record.json"
_DEPTHS = ("*", "*/*", "*/*/*")  # NAME, NAME/SCALE, and names with a slash in them
_TIMES = "SELECT run_id, name, status, started, ended FROM runs"


class _Row(NamedTuple):
    """What is known of when a run was made."""

    name: str
    status: str
    started: float | None
    ended: float | None


def studies(folder: Path) -> list[dict[str, Any]]:
    """A line for each study of a folder, by its name; one whose record cannot be read says so."""
    found = []
    for place in _places(folder):
        try:
            study = StudyFiles(folder, place)
        except UserError as error:
            found.append({"study": place, "name": place, "problem": error.found})
            continue
        found.append({"study": place, "name": study.name, "problem": "", **study.standing()})
    return found


def has_studies(folder: Path) -> bool:
    """Whether there is one."""
    return next(_places(folder), None) is not None


def _places(folder: Path) -> Iterator[str]:
    root = folder / _FOLDER
    own = Path(os.path.realpath(folder)) / _FOLDER  # a link that leads elsewhere is no study of this folder
    files = (file for depth in _DEPTHS for file in root.glob(f"{depth}/{_RECORD}"))
    places = ((file, file.parent.relative_to(root).as_posix()) for file in files)
    found = [place for file, place in places if Path(os.path.realpath(file)) == own / place / _RECORD]
    yield from sorted(found)


@final
class StudyFiles:
    """One study at one moment.

    Args:
        folder: the output folder.
        place: of its record among the studies, as `studies` gives it.

    Raises:
        UserError: there is none there, or its record is damaged.
    """

    def __init__(self, folder: Path, place: str) -> None:
        known = list(_places(folder))
        if place not in known:
            raise unknown("study", place, known, where=str(folder), why="there is no record under that name")
        self._folder, self._path = folder, folder / _FOLDER / place
        try:
            told = json_of(self._path / _RECORD)
            self.name, self.headline = str(told["name"]), str(told["headline"])
            self._arms = {str(name): _arm(arm) for name, arm in told["arms"].items()}
            self._trials = [_tried(trial) for trial in told["trials"]]
            self._wanted = int(told.get("wanted", 0))
            self._cells = {key: {str(c): dict(of) for c, of in told[key].items()} for key in ("runs", "failed")}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            raise UserError(
                f"{self._path / _RECORD} cannot be read ({error!r:.80})",
                expected="the record of a study",
                why="it says which trials there are",
                fix="move it away; the runs themselves are in the run database",
            ) from None
        tuning = self._path / "tuning"
        self.apart = (tuning / FILE).is_file()
        self._runs_in = tuning if self.apart else folder
        self._rows = self._read()

    @property
    def arms(self) -> tuple[str, ...]:
        """What settings are tried for."""
        return tuple(self._arms)

    def standing(self) -> dict[str, Any]:
        """How far it is: trials that are over, of how many; the best score; how long it may take."""
        over = [trial for _, trial in self._trials if trial.state != "waiting"]
        many = sum(arm["many"] for arm in self._arms.values())
        compared, failed = (sum(map(len, self._cells[key].values())) for key in ("runs", "failed"))
        going_on = run_lock.is_alive(self._path / ".going-on")
        scores = [t.score for arm in self._arms for t in self.trials(arm).finished if t.score is not None]
        return {
            "headline": self.headline,
            "trials": many,
            "over": len(over),
            "failed": sum(trial.state == "failed" for trial in over),
            "best": max(scores, default=None),
            "compared": compared,
            "without": failed,
            "wanted": self._wanted,
            "state": "running" if going_on else "finished" if self._all_over(len(over), many) else "stopped",
            "left": self._left(many - len(over), self._wanted - compared - failed) if going_on else None,
        }

    def _all_over(self, trials: int, many: int) -> bool:
        return trials >= many and sum(len(of) for key in self._cells.values() for of in key.values()) >= self._wanted

    def _left(self, trials: int, runs: int) -> float | None:
        """Seconds until all is over, by the means of trials and of runs that are, and as many at once as now."""
        took = [t.ended - t.started for _, t in self._timed if t.ended is not None and t.started is not None]
        theirs = self._theirs if runs > 0 else {}
        known = _durations(theirs.values()) or _durations(self._rows.values())
        if (trials > 0 and not took) or (runs > 0 and not known):
            return None
        seconds = (trials * sum(took) / len(took) if trials > 0 else 0.0) + (
            runs * sum(known) / len(known) if runs > 0 else 0.0
        )
        at_once = sum(row.status == "running" for row in {**self._rows, **theirs}.values()) or 1
        return seconds / at_once or None

    def details(self) -> dict[str, Any]:
        """All of it."""
        arms = []
        for name, arm in self._arms.items():
            trials = self.trials(name)
            best = None if trials.best is None else trials.best.number
            rows = [{**vars(trial), "best": trial.number == best} for trial in trials.tried]
            search = {key: arm["definition"].get(key) for key in ("search", "by", "seeds", "prune")}
            shown = {"name": name, "many": arm["many"], "keys": trials.keys, "varied": trials.varied, "search": search}
            arms.append({**shown, "counted": trials.counted, "trials": rows})
        cells = [
            {"name": cell, "runs": self._cells["runs"].get(cell, {}), "failed": self._cells["failed"].get(cell, {})}
            for cell in dict.fromkeys([*self._cells["runs"], *self._cells["failed"]])
        ]
        return {"name": self.name, **self.standing(), "apart": self.apart, "arms": arms, "cells": cells}

    def trials(self, arm: str) -> Trials:
        """The trials of an arm.

        Raises:
            UserError: no such arm.
        """
        if arm not in self._arms:
            raise unknown("row", arm, self._arms, where=f"the study {self.name}", why="each has trials of its own")
        title = f"{self.name}{f', {arm}' if arm else ''}"
        return Trials(title, self.headline, tuple(trial for of, trial in self._timed if of == arm))

    @functools.cached_property
    def _timed(self) -> list[tuple[str, Tried]]:
        """Trials by their arms, with their times, from when the first of all began."""
        of_trials = [[row for run in trial.runs.values() if (row := self._rows.get(run))] for _, trial in self._trials]
        zero = min((row.started for rows in of_trials for row in rows if row.started is not None), default=0.0)
        found = []
        for (arm, trial), rows in zip(self._trials, of_trials, strict=True):
            begun = [row.started - zero for row in rows if row.started is not None]
            ended = [row.ended - zero for row in rows if row.ended is not None]
            timed = replace(trial, started=min(begun, default=None), ended=max(ended, default=None))
            found.append((arm, timed))
        return found

    def _read(self) -> dict[str, _Row]:
        """When the runs were made that are called like trials; nothing where nobody knows."""
        prefixes = tuple(f"{arm['called']}/" if arm["called"] else "" for arm in self._arms.values())
        return _rows(self._runs_in, lambda run_id, name: name.startswith(prefixes))

    @functools.cached_property
    def _theirs(self) -> dict[str, _Row]:
        """When the runs were made that are compared, as far as they are over; nothing where nobody knows."""
        ids = {str(run_id) for of in self._cells["runs"].values() for run_id in of.values()}
        return _rows(self._path if self.apart else self._folder, lambda run_id, name: run_id in ids)


def _rows(folder: Path, wanted: Callable[[str, str], bool]) -> dict[str, _Row]:
    """When the runs of a folder were made, of those whose id and name are wanted."""
    found = dict[str, _Row]()
    try:
        with reading(folder) as connection:
            rows = [] if connection is None else _all(connection)
    except UserError:
        return {}
    for run_id, name, status, started, ended in rows:
        if not wanted(str(run_id), str(name)):
            continue
        if status == "running":
            status = as_it_stands(folder, str(run_id), {"status": status}, lambda: {})["status"]
        found[str(run_id)] = _Row(str(name), str(status), _seconds(started), _seconds(ended))
    return found


def _durations(rows: Iterable[_Row]) -> list[float]:
    return [row.ended - row.started for row in rows if row.ended is not None and row.started is not None]


def _all(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
    connection.text_factory = lambda found: found.decode(errors="replace")
    return connection.execute(_TIMES).fetchall()


def _seconds(moment: Any) -> float | None:
    try:
        return datetime.fromisoformat(moment).timestamp()
    except (TypeError, ValueError):
        return None


def _arm(told: Mapping[str, Any]) -> dict[str, Any]:
    return {"called": str(told["called"]), "many": int(told["many"]), "definition": dict(told["definition"])}


def _plain(value: Any) -> Any:
    """A value of a setting; a number that no float can be is a text."""
    try:
        fits = not isinstance(value, (int, float)) or math.isfinite(value)
    except OverflowError:
        fits = False
    return value if fits else str(value)[:40]


def _tried(told: Mapping[str, Any]) -> tuple[str, Tried]:
    score, same_as = told["score"], told.get("same_as")
    return str(told["arm"]), Tried(
        number=int(told["number"]),
        setting={str(key): _plain(value) for key, value in told["setting"].items()},
        state=str(told["state"]),
        score=float(score) if isinstance(score, (int, float)) and math.isfinite(score) else None,
        reason=str(told.get("reason", "")),
        runs={str(seed): str(run) for seed, run in told["runs"].items()},
        same_as=None if same_as is None else int(same_as),
    )
