"""Trials, what came of them, and the record that keeps both."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, final

from polyrhythm.base.errors import UserError
from polyrhythm.base.input_file import json_of
from polyrhythm.runs.files import write_whole
from polyrhythm.runs.json_text import to_json
from polyrhythm.studies.space import Setting

State = Literal["waiting", "finished", "pruned", "failed"]
FILE = "record.json"


@final
@dataclass(kw_only=True)
class Trial:
    """Trial: one setting, and what it gave.

    Args:
        arm: the name of the cell that it is of.
        number: its number among the trials of that, from 1.
        setting: a value for each key.
        state: "waiting" until it is over; "pruned" if its first run was stopped early; "failed" if a run could not go
            on or gave no number, such as one that diverged.
        score: the mean over seeds, on the validation data, of the number that it is judged by.
        scores: of each seed.
        runs: the id of each seed's run.
        reason: why it was pruned or failed.
        same_as: an earlier trial with the same setting, whose results these are; None if it has runs of its own.
    """

    arm: str
    number: int
    setting: Setting
    state: State = "waiting"
    score: float | None = None
    scores: dict[int, float] = field(default_factory=dict)
    runs: dict[int, str] = field(default_factory=dict)
    reason: str = ""
    same_as: int | None = None

    @property
    def over(self) -> bool:
        """Whether nothing is left to do."""
        return self.state != "waiting"


def best(trials: Iterable[Trial], arm: str) -> Trial | None:
    """The finished trial of an arm with the highest score; of equal ones the first."""
    finished = [t for t in trials if t.arm == arm and t.state == "finished" and t.score is not None]
    return max(finished, key=lambda trial: (trial.score or 0.0, -trial.number), default=None)


@final
@dataclass(kw_only=True)
class ArmRecord:
    """Record of an arm.

    Args:
        called: what the names of its runs begin with.
        definition: what decides its trials, in full.
        many: how many trials it will have.
        best: the number of its best trial, once all are over.
        template: an experiment file without the setting, as plain data; None if a function makes the experiments.
    """

    called: str
    definition: Mapping[str, Any]
    many: int
    best: int | None = None
    template: Mapping[str, Any] | None = None


@final
@dataclass(kw_only=True)
class Record:
    """Record of a study.

    Args:
        name: of the study.
        headline: the metric that judges.
        arms: those for which settings are tried, by name.
        trials: those that were chosen so far.
        runs: the ids of the runs that are compared, by cell and seed.
        failed: why others of them have no result, likewise.
        wanted: how many runs are to be compared, all seeds of all cells.
    """

    name: str
    headline: str = ""
    arms: dict[str, ArmRecord] = field(default_factory=dict)
    trials: list[Trial] = field(default_factory=list)
    runs: dict[str, dict[int, str]] = field(default_factory=dict)
    failed: dict[str, dict[int, str]] = field(default_factory=dict)
    wanted: int = 0

    def of(self, arm: str) -> list[Trial]:
        """The trials of an arm, in order."""
        return [trial for trial in self.trials if trial.arm == arm]

    def run_name(self, trial: Trial) -> str:
        """What the runs are called that a trial has its results from."""
        parts = (self.arms[trial.arm].called, str(trial.same_as or trial.number))
        return "/".join(part for part in parts if part)

    def write(self, folder: Path) -> None:
        """Keeps it."""
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / FILE, to_json(asdict(self)).encode(), durable=False)


def read(folder: Path) -> Record | None:
    """What a folder keeps of a study; None if there is none.

    Raises:
        UserError: it is damaged.
    """
    path = folder / FILE
    try:
        told = json_of(path)
        trials = [Trial(**one | {key: _by_seed(one[key]) for key in ("scores", "runs")}) for one in told["trials"]]
        arms = {name: ArmRecord(**arm) for name, arm in told["arms"].items()}
        cells = {key: {cell: _by_seed(of) for cell, of in told[key].items()} for key in ("runs", "failed")}
        return Record(**told | {"trials": trials, "arms": arms} | cells)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path} cannot be read ({error})",
            expected="the record of a study",
            why="it says which trials are done",
            fix="move it away; the runs themselves are in the run database",
        ) from None


def differences(before: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> list[str]:
    """The keys in which two definitions differ."""
    found: list[str] = []
    for key in sorted({*before, *now}):
        one, other = before.get(key), now.get(key)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            found += differences(one, other, f"{prefix}{key}.")
        elif one != other:
            found.append(f"{prefix}{key}")
    return found


def _by_seed(values: Mapping[str, Any]) -> dict[int, Any]:
    return {int(seed): value for seed, value in values.items()}


def history_of(rows: Sequence[Mapping[str, Any]], headline: str) -> list[tuple[int, float]]:
    """The validation score of every evaluated version of a run: (version, score), NaN where it has no value."""
    found = [(int(row["version"]), row["validation"].get(headline)) for row in rows if row["validation"]]
    return [(version, math.nan if score is None else float(score)) for version, score in found]
