"""A recorded run, to look at: while it goes on, or years later."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from polyrhythm.base.errors import UserError, check_kind, unknown
from polyrhythm.base.input_file import check_file
from polyrhythm.base.plain import plain
from polyrhythm.runs import costs, holes
from polyrhythm.runs.checkpoints import checkpoints, version_of
from polyrhythm.runs.costs import CostToGoal, On
from polyrhythm.runs.database import checked, damaged_run, damaged_runs, read_records, read_run, read_runs
from polyrhythm.runs.frames import costs_frame
from polyrhythm.runs.labelling import labels_of
from polyrhythm.runs.recorded_tables import RecordedTables
from polyrhythm.runs.settings_text import made_of
from polyrhythm.runs.shown import numbers_of, table_of
from polyrhythm.runs.unknown_run import unknown_run
from polyrhythm.runs.view import RunView, Status, as_it_stands, names_a_folder

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table as RichTable
    from torch import Tensor


class RecordedRun(RecordedTables):
    """The record of one run of an output folder, read anew at each use, so that a run that goes on shows what it has.

    What users are given is a `Run` (`polyrhythm.results`), which can be drawn, too.

    Args:
        folder: the output folder.
        row: of the run, as `read_runs` gives it.
    """

    def __init__(self, folder: Path, row: dict[str, Any]) -> None:
        self.folder = folder
        self._known = row
        self._versions: list[dict[str, Any]] | None = None

    @property
    def _row(self) -> dict[str, Any]:
        if self._known["status"] == "running":
            self._known = read_run(self.folder, self._known["run_id"]) or self._known
        return self._known

    @classmethod
    def open(cls, reference: str, folder: Path | str = "runs") -> Self:
        """Finds a run by its id, its name, or a beginning of its id that no other run shares.

        Raises:
            UserError: no run fits, or several do.
        """
        check_kind("reference", reference, str, "'night'")
        check_kind("folder", folder, (Path, str), "'runs'")
        fits = cls.find(reference, folder)
        if len(fits) > 1:
            raise UserError(
                f"{reference!r} fits {len(fits)} runs in {folder}: {', '.join(run.id for run in fits)}",
                expected="a name, id or beginning of an id that one run has",
                why="the runs are different experiments",
                fix=f"give one of these ids; the newest is {fits[-1].id}",
            )
        return fits[0]

    @classmethod
    def find(cls, reference: str, folder: Path | str = "runs") -> list[Self]:
        """All runs with this id, else with this name, else with this beginning of their ids; oldest first.

        Of a name those in the archive count only if no others have it.

        Raises:
            UserError: no run fits, or only one whose row is damaged.
        """
        folder = Path(folder)
        rows = read_runs(folder)
        for fits in (
            [row for row in rows if row["run_id"] == reference],
            [row for row in rows if row["called"] == reference and not row["archived"]],
            [row for row in rows if row["called"] == reference],
            [row for row in rows if reference and row["run_id"].startswith(reference)],
        ):
            if fits:
                return [cls(folder, row) for row in fits]
        for run_id, damage in damaged_runs(folder, reference).items():
            raise damaged_run(folder, run_id, damage)
        raise unknown_run(reference, folder, rows)

    @classmethod
    def all(cls, folder: Path | str = "runs", *, archived: bool = False) -> list[Self]:
        """The runs of an output folder, oldest first, without those whose row is damaged.

        Args:
            folder: the output folder.
            archived: whether those in the archive are wanted, too.

        Raises:
            UserError: there is no run database, or it cannot be read.
        """
        folder = Path(folder)
        return [cls(folder, row) for row in read_runs(folder) if archived or not row["archived"]]

    @property
    def id(self) -> str:
        """The run's id: sorts by time of start."""
        return str(self._row["run_id"])

    @property
    def number(self) -> int:
        """Its number in the database of its folder."""
        return int(self._row["number"])

    @property
    def name(self) -> str:
        """What it is called: as it was renamed, else as it began."""
        return str(self._row["called"])

    @property
    def first_name(self) -> str:
        """What it was called when it began, by which a study knows its runs."""
        return str(self._row["name"])

    @property
    def path(self) -> Path:
        """The folder of the run's own files.

        Raises:
            UserError: its id would lead elsewhere, as in a database that somebody has tampered with.
        """
        if not names_a_folder(self.id):
            raise UserError(
                f"the run database of {self.folder} has a run with the id {self.id!r}",
                expected="the name of a folder in it",
                why="files of that run would be looked for elsewhere",
                fix="use a record that you trust",
            )
        return self.folder / self.id

    @property
    def view(self) -> RunView:
        """How it stands and what it has come to, at this moment."""
        row = self._row
        return RunView(
            self.folder, as_it_stands(self.folder, self.id, row, lambda: read_run(self.folder, self.id) or {})
        )

    @property
    def status(self) -> Status:
        """How it stands. "killed": its process ended without a word, and what it had committed is here."""
        return self.view.status

    @property
    def reason(self) -> str:
        """Why it stopped or failed."""
        return str(self._row["reason"])

    @property
    def missing(self) -> tuple[str, ...]:
        """What is missing from its record, in words such as "versions 61 to 80"; nothing if it is whole.

        A database that was damaged, or rows that somebody has deleted, leave holes. `polyrhythm resume` fills them.
        """
        return self.view.missing

    @property
    def started(self) -> str:
        """When it started: ISO 8601, UTC."""
        return str(self._row["started"])

    @property
    def ended(self) -> str | None:
        """When it ended: ISO 8601, UTC."""
        return None if self._row["ended"] is None else str(self._row["ended"])

    @property
    def headline(self) -> str:
        """The metric that "accuracy" stands for in the summary."""
        return str(self._row["headline"])

    @property
    def config_digest(self) -> str:
        """SHA-256 of its configuration: runs of one experiment have the same one."""
        return str(self._row["config_digest"])

    @property
    def recipe(self) -> str:
        """The method, as text."""
        return str(self._row["recipe"])

    @property
    def seed(self) -> int:
        """The experiment's seed."""
        return int(self._row["seed"])

    @property
    def classes(self) -> tuple[str, ...]:
        """What classes are called, in the order of their numbers; () where samples have none."""
        return tuple(map(str, self._row["classes"]))

    @property
    def clients(self) -> int:
        """How many clients the federation has, whether or not they were ever asked."""
        return int(self._row["clients"])

    @property
    def config(self) -> dict[str, Any]:
        """The resolved configuration."""
        return dict(self._row["config"])

    @property
    def notices(self) -> tuple[str, ...]:
        """Deviations and substitutions that the run announced."""
        return tuple(self._row["notices"])

    @property
    def libraries(self) -> dict[str, str]:
        """Versions of Python and of the libraries that decide numbers."""
        return dict(self._row["libraries"])

    @property
    def machine(self) -> dict[str, Any]:
        """Where it ran."""
        return dict(self._row["machine"])

    @property
    def on_nodes(self) -> bool:
        """Whether nodes of a real federation carried out its visits, and not a simulation."""
        return self.machine.get("driver") == "flower"

    @property
    def summary(self) -> dict[str, Any]:
        """The fields of the `--json` line; empty until the run has ended."""
        return RunView(self.folder, self._row).summary

    @property
    def versions(self) -> list[dict[str, Any]]:
        """The rows of `history` as plain values."""
        return read_records(self.folder, "versions", self.number) if self._versions is None else self._versions

    def checked(self) -> str:
        """Reads its versions once for all later uses; what cannot be read in them or its visits, in words."""
        self._versions, damage = checked(self.folder, self.number)
        return damage

    def costs(self) -> pd.DataFrame:
        """What the run has cost so far: total and unit of each cost, by its name in the summary."""
        return costs_frame(self.versions)

    def costs_to(self, goal: float, *, on: On = "test") -> CostToGoal | None:
        """What it took until the first evaluated version whose headline metric is at least `goal`.

        Args:
            goal: of the headline metric.
            on: the set that it is judged on, "test" or "validation".

        Returns:
            `rounds`, `virtual_seconds`, `joules`, `bytes` (both ways), `client_updates`, `mean_cohort` (None if the
            initial model was good enough), `flops`, and `reached`, the metric then. None if no version is as good:
            there is no number for what did not happen. Nothing is interpolated between evaluations.

        Raises:
            UserError: the run was never judged on that set.
        """
        return costs.reached(self.versions, self.headline, goal, on)

    def rounds_to(self, goal: float, *, on: On = "test") -> int | None:
        """Versions until `costs_to` the goal; None if it was never reached."""
        took = self.costs_to(goal, on=on)
        return None if took is None else took["rounds"]

    def time_to(self, goal: float, *, on: On = "test") -> float | None:
        """Virtual seconds until then; None if it was never reached."""
        took = self.costs_to(goal, on=on)
        return None if took is None else took["virtual_seconds"]

    def energy_to(self, goal: float, *, on: On = "test") -> float | None:
        """Joules until then; None if it was never reached."""
        took = self.costs_to(goal, on=on)
        return None if took is None else took["joules"]

    def bytes_to(self, goal: float, *, on: On = "test") -> int | None:
        """Bytes, up and down, until then; None if it was never reached."""
        took = self.costs_to(goal, on=on)
        return None if took is None else took["bytes"]

    def updates_to(self, goal: float, *, on: On = "test") -> int | None:
        """Client updates until then; None if it was never reached."""
        took = self.costs_to(goal, on=on)
        return None if took is None else took["client_updates"]

    def mean_cohort_to(self, goal: float, *, on: On = "test") -> float | None:
        """Mean cohort of the versions until then; None if it was never reached, or by the initial model."""
        took = self.costs_to(goal, on=on)
        return None if took is None else took["mean_cohort"]

    def accuracy_at(self, seconds: float, *, on: On = "test") -> float | None:
        """The headline metric of the last version evaluated by a virtual time; None if the run ended before it."""
        return costs.score_at(self.versions, self.headline, seconds, on)

    @property
    def scores(self) -> list[tuple[int, float]]:
        """The headline metric on the test set: (version, value) of every version that was evaluated."""
        found = []
        for row in self.versions:
            value = (row["test"] or {}).get(self.headline)
            if value is not None:
                found.append((int(row["version"]), float(value)))
        return found

    def weights(self, which: Literal["final", "best"] = "final") -> dict[str, Tensor]:
        """The model of the last or of the best version, as a state dict.

        Raises:
            UserError: there is no such file, for example since the run was killed, or it is damaged.
        """
        if which not in ("final", "best"):
            raise unknown("weights", which, ("best", "final"), why="no others are kept")
        path = self.path / f"{which}.safetensors"
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            check_file(path)
            # Cloned, since what safetensors maps need not lie on the borders that fast kernels expect.
            return {name: tensor.clone() for name, tensor in load_file(path).items()}
        except (OSError, SafetensorError) as error:
            missing = isinstance(error, FileNotFoundError)
            raise UserError(
                f"{path} {'does not exist' if missing else f'is damaged ({error})'}",
                expected="weights that the run wrote",
                why=f"the run is {self.status}; final weights are written when a run ends, best ones as it goes",
                fix="ask for the other one of final and best, or run again",
            ) from error

    def __rich__(self) -> RichTable:
        view = self.view
        weights = ", ".join(which for which in ("best", "final") if (self.path / f"{which}.safetensors").is_file())
        there = ", ".join(str(version_of(path)) for path in reversed(checkpoints(self.path)))
        said = labels_of(self.folder, self.id)
        lines = {
            "status": f"{view.standing}: {self.reason}" if self.reason else view.standing,
            "method": self.recipe,
            **made_of(self._row, self.path),
            **said.lines(self.first_name),
            "started": self.started,
            **numbers_of(view, self.headline),
            **view.said,
            **view.costs,
            "weights": weights or "none yet",
            "checkpoints": f"of version {there}" if there else "none",
            **({"record": holes.in_words(view.missing)} if view.missing else {}),
        }
        return table_of(f"{self.id} {self.name}".strip(), lines)

    def __str__(self) -> str:
        from rich.console import Console

        console = Console(file=io.StringIO(), width=100, color_system=None, legacy_windows=False)
        with console.capture() as captured:
            console.print(self)
        return plain(captured.get().rstrip(), "")
