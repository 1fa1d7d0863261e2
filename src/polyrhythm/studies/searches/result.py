"""What came of a sweep, to look at: while it goes on, or years later."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from polyrhythm.base.errors import unknown
from polyrhythm.results import Run
from polyrhythm.studies.searches.definition import called
from polyrhythm.studies.searches.trials import Record, Trial, best, names, read

if TYPE_CHECKING:
    import pandas as pd

    from polyrhythm.figures import Chart, Theme
    from polyrhythm.results import Comparison


@final
class Swept:
    """The trials of a sweep, the best of them, and the runs of that over fresh seeds.

        found = pr.sweep("sweep.toml")        # or Swept.open("sweep", "runs"), while it goes on
        found.table()                         # a row for each trial
        found.best().setting
        found.comparison().table()            # the chosen settings over fresh seeds, on the test set

    Args:
        record: what is kept of it.
        out: the folder of its runs.
    """

    def __init__(self, record: Record, out: Path) -> None:
        self.record, self.out = record, out

    @classmethod
    def open(cls, name: str, out: Path | str = "runs") -> Swept:
        """Finds a sweep by its name.

        Raises:
            UserError: there is none of this name.
        """
        record = read(Path(out), name)
        if record is None:
            raise unknown("sweep", name, names(Path(out)), where=str(out), why="there is no record under that name")
        return cls(record, Path(out))

    @property
    def name(self) -> str:
        """What it is called."""
        return self.record.name

    @property
    def sides(self) -> tuple[str, ...]:
        """The methods that are tuned."""
        return tuple(self.record.many)

    @property
    def headline(self) -> str:
        """The metric that judges."""
        return self.record.headline

    @property
    def trials(self) -> list[Trial]:
        """All trials that were chosen so far."""
        return self.record.trials

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do but runs over fresh seeds."""
        return len(self.trials) == sum(self.record.many.values()) and all(trial.over for trial in self.trials)

    def best(self, side: str | None = None) -> Trial | None:
        """The best trial of a side so far; of the only one, if there is one. None if none has finished.

        Raises:
            UserError: no such side.
        """
        if side is None and len(self.sides) == 1:
            side = self.sides[0]
        if side not in self.sides:
            raise unknown("method", side, self.sides, where=f"the sweep {self.name}", why="each has a best setting")
        return best(self.trials, side)

    def chosen(self, side: str) -> list[Run]:
        """The runs of a side's best setting: over fresh seeds if there are any, else those of its trial."""
        found = self.record.chosen.get(side) or (getattr(self.best(side), "runs", None) or {})
        return [Run.open(run, self.out) for run in found.values()]

    def comparison(self) -> Comparison:
        """The chosen settings of all sides side by side, which may be looked at on the test set now.

        Raises:
            UserError: there is no run to compare.
        """
        from polyrhythm.results import Comparison

        return Comparison([run for side in self.sides for run in self.chosen(side)])

    def rows(self) -> list[dict[str, Any]]:
        """One plain entry per trial."""
        return [
            {
                "sweep": self.name,
                "method": trial.side,
                "trial": trial.number,
                "run_name": called(self.name, trial.side, trial.same_as or trial.number),
                "setting": dict(trial.setting),
                "state": trial.state,
                "score": trial.score,
                "scores": {str(seed): score for seed, score in trial.scores.items()},
                "runs": list(trial.runs.values()),
                "reason": trial.reason,
            }
            for trial in self.trials
        ]

    def table(self) -> pd.DataFrame:
        """The trials as a table, a column for each key of their settings."""
        import pandas as pd

        kept = ("method", "trial", "state", "score", "reason")
        rows = [{**{key: row[key] for key in kept}, **row["setting"]} for row in self.rows()]
        return pd.DataFrame(rows)

    def plot(self, side: str | None = None, *, theme: Theme = "light") -> Chart:
        """Parallel coordinates of a side's trials: a line for each, an axis for each key, and one for the score.

        Args:
            side: of which method; the only one if None.
            theme: "light" or "dark".

        Raises:
            UserError: no such side, or nothing to draw yet.
        """
        from polyrhythm.studies.searches.figure import parallel

        self.best(side)
        side = self.sides[0] if side is None else side
        return parallel(self.record, side, theme)

    def describe(self) -> Mapping[str, Any]:
        """What it is, as plain data."""
        return self.record.definition
