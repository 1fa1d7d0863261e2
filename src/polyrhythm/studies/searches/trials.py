"""The trials of a sweep and what came of them; and the file that keeps them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, final

from polyrhythm.base.errors import UserError
from polyrhythm.runs.files import write_whole
from polyrhythm.runs.json_text import to_json
from polyrhythm.studies.searches.space import Setting

State = Literal["waiting", "finished", "pruned", "failed"]
FOLDER = "sweeps"


@final
@dataclass(kw_only=True)
class Trial:
    """One setting, and what it gave.

    Args:
        side: the method that it is of.
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

    side: str
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


def best(trials: Iterable[Trial], side: str) -> Trial | None:
    """The finished trial of a side with the highest score; of equal ones the first."""
    finished = [t for t in trials if t.side == side and t.state == "finished" and t.score is not None]
    return max(finished, key=lambda trial: (trial.score or 0.0, -trial.number), default=None)


@final
@dataclass(kw_only=True)
class Record:
    """What is kept of a sweep, in `sweeps/NAME.json` of the output folder.

    Args:
        name: of the sweep.
        definition: what it is, in full.
        headline: the metric that judges.
        many: how many trials each side will have.
        trials: those that were chosen so far.
        best: the number of each side's best trial, once all are over.
        chosen: the runs of each side's best setting over fresh seeds, by seed.
        templates: an experiment file of each side without its setting, as plain data; where it was written as one.
    """

    name: str
    definition: Mapping[str, Any]
    headline: str = ""
    many: dict[str, int] = field(default_factory=dict)
    trials: list[Trial] = field(default_factory=list)
    best: dict[str, int] = field(default_factory=dict)
    chosen: dict[str, dict[int, str]] = field(default_factory=dict)
    templates: dict[str, dict[str, Any]] = field(default_factory=dict)

    def of(self, side: str) -> list[Trial]:
        """The trials of a side, in order."""
        return [trial for trial in self.trials if trial.side == side]

    def write(self, out: Path) -> None:
        """Keeps it."""
        path = place(out, self.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, to_json(asdict(self)).encode(), durable=False)


def place(out: Path, name: str) -> Path:
    """The file of a sweep."""
    return out / FOLDER / f"{name}.json"


def read(out: Path, name: str) -> Record | None:
    """What is kept of a sweep; None if there is none of this name.

    Raises:
        UserError: it is damaged.
    """
    path = place(out, name)
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        trials = [
            Trial(**trial | {key: _by_seed(trial[key]) for key in ("scores", "runs")}) for trial in told["trials"]
        ]
        chosen = {side: _by_seed(runs) for side, runs in told["chosen"].items()}
        return Record(**told | {"trials": trials, "chosen": chosen})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path} cannot be read ({error})",
            expected="the record of a sweep",
            why="it says which trials are done",
            fix="move it away; the runs themselves are in the run database",
        ) from None


def names(out: Path) -> list[str]:
    """The sweeps of a folder."""
    return sorted(path.stem for path in (out / FOLDER).glob("*.json"))


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
    """The validation score of every evaluated version of a run: (version, score)."""
    found = [(int(row["version"]), (row["validation"] or {}).get(headline)) for row in rows]
    return [(version, float(score)) for version, score in found if score is not None]
