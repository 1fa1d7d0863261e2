"""What a figure is about: runs by method, what was recorded of them, and how each method looks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, final

from polyrhythm.figures.theme import LOOKS, Style, Theme, style
from polyrhythm.runs.database import any_record, read_records, read_runs, read_versions
from polyrhythm.runs.grouping import by_method, method_of
from polyrhythm.runs.heard import Behind, Heard, behind, heard
from polyrhythm.runs.recorded import RecordedRun
from polyrhythm.runs.records import ClassResultsRecord
from polyrhythm.runs.schema import Table
from polyrhythm.runs.spread import ClientResults, of_classes, of_clients


@final
class Subject:
    """Runs to draw. Reads each table of a run at most once, and only the columns that are asked for.

    Args:
        runs: in any order; those that differ in nothing but their seed are one method.
        group_by: the dotted key of a setting; then its values take the place of methods.
        versions: what was read already, by the run's id; read into.

    Raises:
        UserError: nothing to draw, runs that are judged by different metrics, or no such setting.
    """

    def __init__(
        self,
        runs: Sequence[RecordedRun],
        group_by: str | None = None,
        versions: dict[str, list[dict[str, Any]]] | None = None,
    ) -> None:
        self.group_by = group_by
        self.methods: Mapping[str, tuple[RecordedRun, ...]] = by_method(runs, group_by)
        """The runs of each method by seed, in the order of the methods' first runs."""
        self.runs = tuple(run for members in self.methods.values() for run in members)
        self.headline = self.runs[0].headline
        """The metric that "accuracy" stands for."""
        self._versions = {} if versions is None else versions
        self._clients: dict[str, list[dict[str, Any]]] = {}
        self._of_clients: dict[str, ClientResults] = {}
        self._heard: dict[str, Heard] = {}
        self._behind: dict[str, list[Behind]] = {}
        self._of_classes: dict[str, list[ClassResultsRecord]] = {}
        self._places: dict[Path, dict[str, int]] | None = None
        self._visits: dict[tuple[str, tuple[str, ...]], list[dict[str, Any]]] = {}

    @property
    def alone(self) -> bool:
        """Whether there is but one run."""
        return len(self.runs) == 1

    def versions(self, run: RecordedRun) -> list[dict[str, Any]]:
        """A run's versions, in order."""
        if run.id not in self._versions:
            self._versions[run.id] = run.versions
        return self._versions[run.id]

    def visits(self, run: RecordedRun, *columns: str) -> list[dict[str, Any]]:
        """Some columns of a run's visits, by dispatch number."""
        key = (run.id, columns)
        if key not in self._visits:
            self._visits[key] = read_records(run.folder, "visits", run.number, columns)
        return self._visits[key]

    def clients(self, run: RecordedRun) -> list[dict[str, Any]]:
        """What a run's clients are: of a very large federation only those that are measured."""
        if run.id not in self._clients:
            self._clients[run.id] = read_records(run.folder, "clients", run.number)
        return self._clients[run.id]

    def client_results(self, run: RecordedRun) -> ClientResults:
        """What is on record of a run's single clients."""
        if run.id not in self._of_clients:
            self._of_clients[run.id] = of_clients(run.folder, run.number)
        return self._of_clients[run.id]

    def heard(self, run: RecordedRun) -> Heard:
        """Who was heard in a run, and what each client gets out of its newest version."""
        if run.id not in self._heard:
            self._heard[run.id] = heard(run.folder, run.number, run.clients)
        return self._heard[run.id]

    def behind(self, run: RecordedRun) -> list[Behind]:
        """The samples behind each version of a run."""
        if run.id not in self._behind:
            self._behind[run.id] = behind(run.folder, run.number, self.heard(run))
        return self._behind[run.id]

    def class_results(self, run: RecordedRun) -> list[ClassResultsRecord]:
        """What is on record of classes, version by version."""
        if run.id not in self._of_classes:
            self._of_classes[run.id] = of_classes(run.folder, run.number, len(run.classes))
        return self._of_classes[run.id]

    def has(self, table: Table, condition: str) -> bool:
        """Whether one of the runs has a record of which a condition in SQL holds; quick, whatever their length."""
        return any(any_record(run.folder, table, run.number, condition) for run in self.runs)

    def only(self, column: str, *, after: int = -1) -> Any:
        """The value of a column that all versions after one have, but those that have none; None if there are several.

        Args:
            column: of versions; one that is read without much work, a number.
            after: the version.
        """
        values = set[Any]()
        for run in self.runs:
            for row in read_versions(run.folder, run.number, after + 1, (column,)):
                values.add(row[column])
                if len(values - {None}) > 1:
                    return None
        return next(iter(values - {None}), None)

    def styles(self, theme: Theme) -> dict[str, Style]:
        """How each method looks: by its place among the methods of its folder, so alike in every figure."""
        if self._places is None:
            self._places = {folder: _ranks(folder) for folder in {run.folder for run in self.runs}}
        ranks = self._places
        taken: set[int] = set()
        found = {}
        for name, (first, *_) in self.methods.items():
            place = ranks[first.folder][first.id] % LOOKS
            # Of two that would look alike in one figure, the later gives way: methods of two folders, or dozens.
            while place in taken and len(taken) < LOOKS:
                place = (place + 1) % LOOKS
            taken.add(place)
            found[name] = style(place, theme)
        return found


def colours(runs: Sequence[RecordedRun] | Path | str, theme: Theme = "light") -> dict[str, str]:
    """The colour of each run, by its id: that of its method, in every figure.

    Args:
        runs: the runs, or a folder with them.
        theme: what they are drawn on.
    """
    return {run_id: look.colour for run_id, look in looks(runs, theme).items()}


def looks(runs: Sequence[RecordedRun] | Path | str, theme: Theme = "light") -> dict[str, Style]:
    """How each run looks, by its id. Arguments as for `colours`."""
    folders = {Path(runs)} if isinstance(runs, (Path, str)) else {run.folder for run in runs}
    wanted = None if isinstance(runs, (Path, str)) else {run.id for run in runs}
    return {
        run_id: style(place, theme)
        for folder in sorted(folders)
        for run_id, place in _ranks(folder).items()
        if wanted is None or run_id in wanted
    }


def _ranks(folder: Path) -> dict[str, int]:
    """The place of each run's method among the methods of a folder, in the order of their first runs."""
    places: dict[str, int] = {}
    return {
        row["run_id"]: places.setdefault(method_of(row["config"], row["name"]), len(places))
        for row in read_runs(folder)
    }
