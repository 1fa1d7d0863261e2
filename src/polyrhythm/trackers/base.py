"""What every tracker is told, and what becomes of one that fails."""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, final

from annotated_types import MinLen

from polyrhythm.base.errors import Mistakes, UserError
from polyrhythm.base.settings import Settings, Takes
from polyrhythm.runs.observer import Observer
from polyrhythm.runs.records import ModelView, Plan, RunStatus, VersionRecord

Name = Literal["tensorboard", "mlflow", "wandb"]
TRACKERS: tuple[Name, ...] = ("tensorboard", "mlflow", "wandb")
Say = Callable[[str], None]
Folder = Annotated[str, MinLen(1), Takes("the path of a folder, in a file one inside the folder that you run in")]


@final
@dataclass(frozen=True, kw_only=True)
class Tracking(Settings):
    """Who is told how runs go, and where they keep it. Changes no number.

    Servers and keys are given where each of them looks for them (`MLFLOW_TRACKING_URI`, `WANDB_API_KEY` and so on in
    the environment), and are never written into a record.

    Args:
        track: trackers that are told how it goes.
        directory: where files go; None for a folder of the tracker's name in the output folder.
        project: what MLflow calls an experiment, and Weights & Biases a project.
    """

    track: tuple[Name, ...] = ()
    directory: Folder | None = None
    project: Annotated[str, MinLen(1)] = "polyrhythm"

    def check(self) -> None:
        """Goes on if all that is needed is installed.

        Raises:
            UserError: something is not, with the line that installs it; of all that are missing.
        """
        wrong = Mistakes()
        for name in self.track:
            if importlib.util.find_spec(name) is None:
                wrong.add(
                    UserError(
                        f'track = "{name}", but {name} is not installed',
                        expected=f"the package {name}",
                        why="it would be told how the run goes",
                        fix=f"pip install 'polyrhythm[{name}]', or leave it out",
                    )
                )
        wrong.refuse()

    def place(self, name: Name, out: Path) -> Path:
        """The folder of one of them."""
        return out / name if self.directory is None else Path(self.directory)


class Tracker(Protocol):
    """One of them. Whatever it raises is borne."""

    def begin(self, run_id: str, plan: Plan, version: int) -> None:
        """A run begins, or goes on, with this version."""

    def log(self, version: int, numbers: Mapping[str, float]) -> None:
        """The numbers of a version, by name."""

    def end(self, status: RunStatus, numbers: Mapping[str, float]) -> None:
        """The run has ended, with the numbers of its summary."""


@final
class Tracked(Observer):
    """The observer that tells a tracker. One that fails is warned of once, and told no more.

    Args:
        name: of the tracker.
        tracker: it.
        run_id: gives the run's id, once it has begun.
        say: takes the warning.
    """

    def __init__(self, name: Name, tracker: Tracker, run_id: Callable[[], str], say: Say) -> None:
        self._name, self._tracker, self._run_id, self._say = name, tracker, run_id, say
        self._plan: Plan | None = None
        self._begun = self._failed = False

    def begin(self, plan: Plan) -> None:
        """Keeps the plan until the first version, whose number is not known before."""
        self._plan = plan

    def version(self, record: VersionRecord, model: ModelView) -> None:
        """Tells of a version."""
        if not self._begun and self._plan is not None:
            self._begun = True
            plan = self._plan
            self._softly(lambda: self._tracker.begin(self._run_id(), plan, record.version))
        self._softly(lambda: self._tracker.log(record.version, dict(_numbers(record))))

    def end(self, status: RunStatus, reason: str, summary: Mapping[str, Any]) -> None:
        """Tells of the end."""
        if self._begun:
            numbers = {key: float(value) for key, value in summary.items() if isinstance(value, (int, float))}
            self._softly(lambda: self._tracker.end(status, numbers))

    def _softly(self, act: Callable[[], None]) -> None:
        if self._failed:
            return
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of libraries that are none of the user's business
                act()
        except Exception as error:  # a full disk, a server that has gone, whatever a library raises
            self._failed = True
            self._say(f"{self._name} is told no more, and the run goes on: {type(error).__name__}: {_short(error)}")


def trackers(tracking: Tracking, out: Path, run_id: Callable[[], str], say: Say | None = None) -> list[Tracked]:
    """The observers for those that are asked for.

    Raises:
        UserError: one of them is not installed, or cannot be imported.
    """
    tracking.check()
    return [Tracked(name, _tracker(name, tracking, out), run_id, say or _warn) for name in tracking.track]


def _tracker(name: Name, tracking: Tracking, out: Path) -> Tracker:
    try:
        home = importlib.import_module(f"polyrhythm.trackers.{name}_tracker")
        made: Tracker = home.tracker(tracking.place(name, out), tracking.project)
    except Exception as error:  # an installation that is broken
        raise UserError(
            f'track = "{name}", but it cannot be imported ({type(error).__name__}: {_short(error)})',
            expected=f"a whole installation of {name}",
            why="it would be told how the run goes",
            fix=f"pip install --upgrade 'polyrhythm[{name}]', or leave it out",
        ) from error
    return made


def _numbers(record: VersionRecord) -> Iterator[tuple[str, float]]:
    """What a version has to say, by names with a slash between group and number."""
    for group in ("test", "validation", "train", "clients", "groups", "measures"):
        for key, value in (getattr(record, group) or {}).items():
            yield f"{group}/{key}", float(value)
    for name in ("train_loss", "rate", "cohort", "accepted", "dropped", "staleness_mean"):
        if (value := getattr(record, name)) is not None:
            yield f"round/{name}", float(value)
    for name in ("time", "client_updates", "local_steps", "samples", "flops", "bytes_up", "bytes_down", "joules"):
        yield f"cost/{name}", float(getattr(record, name))


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, str | int | float | bool]:
    """A configuration on one level, with dots between keys; without what has no value."""
    found: dict[str, str | int | float | bool] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        elif isinstance(value, (str, int, float, bool)):
            found[f"{prefix}{key}"] = value
        elif value is not None:
            found[f"{prefix}{key}"] = str(value)
    return found


def settings_of(plan: Plan) -> dict[str, str | int | float | bool]:
    """What a run is, for a table of runs: its configuration as it was written, and what it came to."""
    written = {key: value for key, value in plan.config.items() if key != "resolved"}
    return flat(written) | {"recipe": plan.recipe, "parameters": plan.parameters}


def title(run_id: str, plan: Plan) -> str:
    """What a run is called in a list of runs."""
    return f"{plan.name} (seed {plan.seed})" if plan.name else run_id


def _short(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 200 else f"{text[:197]}..."


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=2)
