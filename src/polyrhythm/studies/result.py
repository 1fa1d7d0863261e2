"""A study's result, to look at: while it goes on, or years later."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from polyrhythm.base import html
from polyrhythm.base.errors import UserError, unknown
from polyrhythm.base.metric_names import in_words
from polyrhythm.figures.trials import Trials, Tried
from polyrhythm.results import Run
from polyrhythm.studies.page.findings import Findings
from polyrhythm.studies.planning import FOLDER
from polyrhythm.studies.running.trials import FILE, Record, Trial, best, read

if TYPE_CHECKING:
    import pandas as pd

    from polyrhythm.figures import Chart, Theme
    from polyrhythm.results import Comparison

_MOST_TRIALS = 20  # in a notebook; `table` has them all


@final
class StudyResult:
    """Result of a study: its trials, the best of them, and the runs that are compared.

        found = pr.study("tune.toml")         # or StudyResult.open("tune", "runs"), while it goes on
        found.table()                         # a row for each trial
        found.best().setting
        found.comparison().table()            # what was chosen, over fresh seeds, on the test set
        found.findings.verdict, found.page    # what came of the claims, and where the page is

    Args:
        record: what is kept of it.
        trials_folder: of the runs of trials.
        runs_folder: of the runs that are compared.
        findings: what was found, once it is over.
        page: where that is written.
    """

    def __init__(
        self,
        record: Record,
        trials_folder: Path,
        runs_folder: Path,
        findings: Findings | None = None,
        page: Path | None = None,
    ) -> None:
        self.record, self.trials_folder, self.runs_folder = record, trials_folder, runs_folder
        self.findings, self.page = findings or Findings(), page

    @classmethod
    def open(cls, name: str, out: Path | str = "runs") -> StudyResult:
        """Finds a study by its name.

        Args:
            name: of one whose runs lie in the folder itself.
            out: the folder of all records.

        Raises:
            UserError: there is none of this name.
        """
        folder = Path(out) / FOLDER
        record = read(folder / name)
        if record is None:
            known = sorted(path.parent.name for path in folder.glob(f"*/{FILE}"))
            raise _unknown_study(name, known, out)
        return cls(record, Path(out), Path(out))

    @property
    def name(self) -> str:
        """What it is called."""
        return self.record.name

    @property
    def arms(self) -> tuple[str, ...]:
        """What settings are tried for: rows, or cells where there are columns."""
        return tuple(self.record.arms)

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
        """Whether nothing is left to be tried."""
        return len(self.trials) == sum(a.many for a in self.record.arms.values()) and all(t.over for t in self.trials)

    def best(self, arm: str | None = None) -> Trial | None:
        """The best trial of an arm so far; of the only one, if there is one. None if none has finished.

        Raises:
            UserError: no such arm.
        """
        if arm is None and len(self.arms) == 1:
            arm = self.arms[0]
        if arm not in self.arms:
            raise unknown("row", arm, self.arms, where=f"the study {self.name}", why="each has a best setting")
        return best(self.trials, arm)

    def runs(self, cell: str) -> list[Run]:
        """The runs of a cell that are compared; if no cell has any, those of the best trial of its arm."""
        if self.record.runs or self.record.failed:
            return [Run.open(run, self.runs_folder) for _, run in sorted(self.record.runs.get(cell, {}).items())]
        trial = best(self.trials, cell)
        return [] if trial is None else [Run.open(run, self.trials_folder) for run in trial.runs.values()]

    def comparison(self) -> Comparison:
        """All cells side by side, with what was chosen for them, which may be looked at on the test set now.

        Raises:
            UserError: there is no run to compare.
        """
        from polyrhythm.results import Comparison

        return Comparison([run for cell in dict.fromkeys([*self.arms, *self.record.runs]) for run in self.runs(cell)])

    def rows(self) -> list[dict[str, Any]]:
        """One plain entry per trial."""
        return [
            {
                "study": self.name,
                "row": trial.arm,
                "trial": trial.number,
                "run_name": self.record.run_name(trial),
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

        kept = ("row", "trial", "state", "score", "reason")
        rows = [{**{key: row[key] for key in kept}, **row["setting"]} for row in self.rows()]
        return pd.DataFrame(rows)

    def tried(self, arm: str | None = None) -> Trials:
        """The trials of an arm, as figures are drawn of them; of the only one if None.

        Raises:
            UserError: no such arm.
        """
        self.best(arm)
        arm = self.arms[0] if arm is None else arm
        trials = [
            Tried(
                number=trial.number,
                setting=dict(trial.setting),
                state=trial.state,
                score=trial.score,
                reason=trial.reason,
                runs={str(seed): run for seed, run in trial.runs.items()},
                same_as=trial.same_as,
            )
            for trial in self.record.of(arm)
        ]
        return Trials(f"{self.name}{f', {arm}' if arm else ''}", self.headline, tuple(trials))

    def importance(self, arm: str | None = None) -> dict[str, float]:
        """How much each key matters: the share of the variance of trials' ranks that its values explain alone.

        What groups of values would explain by chance is taken off, and what two keys do together is in neither share.
        Empty with less than ten finished trials.

        Args:
            arm: of which; the only one if None.

        Raises:
            UserError: no such arm.
        """
        return {key: found.share for key, found in self.tried(arm).importance().items()}

    def plot(
        self, arm: str | None = None, *, figure: str = "parallel", x: str = "", y: str = "", theme: Theme = "light"
    ) -> Chart:
        """A figure of an arm's trials.

        Args:
            arm: of which; the only one if None.
            figure: "parallel", a line for each trial over an axis for each key and one for the score; "history";
                "importance"; "contour"; or "slice-KEY".
            x, y: the keys of a contour; the two that matter most if empty.
            theme: "light" or "dark".

        Raises:
            UserError: no such arm, figure or key, or nothing to draw yet.
        """
        from polyrhythm.figures.parallel import parallel
        from polyrhythm.figures.trial_figures import drawn

        trials = self.tried(arm)
        return parallel(trials, theme) if figure == "parallel" else drawn(figure, trials, theme=theme, x=x, y=y)

    def __repr__(self) -> str:
        tried = f"{len(self.trials):,} trials, " if self.arms else ""
        compared = sum(len(runs) for runs in self.record.runs.values())
        return f"<StudyResult {self.name}: {tried}{compared:,} runs compared>"

    def _repr_html_(self) -> str:
        """The trials, the best first, and what the compared runs gave."""
        from polyrhythm.results import tables

        shown = []
        for arm in self.arms:
            ranked = sorted(self.record.of(arm), key=lambda t: (t.score is None, -(t.score or 0.0), t.number))
            keys = list(dict.fromkeys(key for trial in ranked for key in trial.setting))
            rows = [
                (str(t.number), *(str(t.setting.get(key, "")) for key in keys), tables.score(t.score), t.state)
                for t in ranked
            ]
            caption = f"Tried for {arm or self.name}, the best first: mean over seeds, on the validation data."
            head = ("trial", *keys, f"validation {in_words(self.headline)}", "state")
            shown.append(html.table(caption, head, rows[:_MOST_TRIALS]))
        compared = self.comparison()._repr_html_() if self.record.runs else ""
        return html.framed("".join(shown)) + compared

    def describe(self) -> Mapping[str, Any]:
        """What decides its trials, as plain data, by arm."""
        return {name: arm.definition for name, arm in self.record.arms.items()}


def _unknown_study(name: str, known: list[str], out: Path | str) -> UserError:
    why = "there is no record under that name"
    if known and not name.endswith(".toml"):
        return unknown("study", name, known, where=str(out), why=why)
    return UserError(
        f"unknown study {name!r} in {out}",
        expected=f"the name of a study, not its file: {', '.join(known)}" if known else "a study that was carried out",
        why=why if known else f"there is no record of any in {Path(out) / FOLDER}",
        fix="give its name" if known else "polyrhythm study FILE, then `polyrhythm best NAME`; or give --out FOLDER",
    )
