"""Does a recorded run come out again? It is run anew, and compared version by version."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from polyrhythm.base.errors import UserError, check_kind
from polyrhythm.experiments.execution import AUTO, Execution
from polyrhythm.experiments.experiment import Experiment
from polyrhythm.experiments.prepared import Prepared, prepare
from polyrhythm.experiments.resume import COMPUTED_BY, other_engine, other_settings
from polyrhythm.experiments.runstate import last_kept
from polyrhythm.experiments.session import carry_out
from polyrhythm.results import Run
from polyrhythm.runs import holes
from polyrhythm.runs.environment import differences
from polyrhythm.runs.json_text import to_json
from polyrhythm.runs.observer import Enough, Observer
from polyrhythm.runs.records import ModelView, VersionRecord

_OF_A_CLOCK = {"wall"}


@final
@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What came of comparing a run with its record.

    Args:
        run_id: of the run.
        first, last: the versions that were compared; last is first - 1 if there were none.
        differs_at: the first that differs; None if all are equal.
        differs_in: what differs there, such as "digest" or "test"; "model" if only its weights do.
        explained_by: what computes otherwise here than it did there, as far as it is known.
        notes: what else is to be said.
        missing: what the record lacks, in words; the versions among them could not be compared.
        compared: how many versions were.
    """

    run_id: str
    first: int
    last: int
    differs_at: int | None
    differs_in: tuple[str, ...]
    explained_by: tuple[str, ...]
    notes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    compared: int = 0

    @property
    def equal(self) -> bool:
        """Whether the record is whole, and every version that was compared is the same to the last bit."""
        return self.differs_at is None and not self.missing

    def __str__(self) -> str:
        if self.differs_at is None:
            span = f", {self.first} to {self.last}, all equal to the last bit" if self.compared else " were compared"
            return f"{self.run_id}: {'; '.join((*because_of(self.missing), f'{self.compared:,} versions{span}'))}"
        reason = "; ".join(self.explained_by) or (
            "nothing that is recorded of the two machines does: if the data are the same, please report it"
        )
        return (
            f"{self.run_id} differs from version {self.differs_at} on, in {', '.join(self.differs_in)}\n"
            f"  explained by: {reason}"
        )


def verify(
    run: Run,
    experiment: Experiment,
    *,
    execution: Execution = AUTO,
    from_checkpoint: bool = False,
    versions: int | None = None,
) -> Verdict:
    """Runs a recorded run again and compares it with its record, until the first version that differs.

    Compared are the digest of every version's model, and all other numbers of its record but wall time. Nothing is
    recorded.

    Args:
        run: what was recorded, whatever became of it.
        experiment: what it is a run of.
        execution: how it is computed again.
        from_checkpoint: begin at the newest checkpoint that has enough versions after it, and not anew.
        versions: how many to compare; None for all that are recorded.

    Raises:
        UserError: there is nothing recorded to compare with.
        RunFailed: the run could not go on.
    """
    check_recorded(run, experiment)
    check_noise(run, experiment)
    rows = run.versions
    if run.on_nodes:
        raise UserError(
            f"{run.id} is a run on nodes",
            expected="one in the simulation",
            why="how long nodes took is no part of the experiment, and would not come out again",
            fix="polyrhythm replay takes its events in their order",
        )
    if not rows:
        raise UserError(
            f"{run.id} has no version on record",
            expected="a run that has made some",
            why="there is nothing to compare with",
            fix="give another run",
        )
    kept, notes = None, list[str]()
    if from_checkpoint:
        kept, notes = last_kept(run.path, before=rows[-1]["version"] + 1 - (versions or 1))
        if kept is None:
            notes.append("there is no checkpoint with so many versions after it, so it is compared from the beginning")
    start = None if kept is None else kept.run
    first = 0 if start is None else start.driver.server.version + 1
    wanted = [row for row in rows if row["version"] >= first]
    judge = Judge(wanted if versions is None else wanted[:versions])
    missing, prepared = run.missing, prepare(experiment, execution)
    if wanted:
        carry_out(prepared, [judge], start=start)
    return Verdict(
        run_id=run.id,
        first=first,
        last=judge.last if judge.compared else first - 1,
        differs_at=judge.differs_at,
        differs_in=judge.differs_in,
        explained_by=() if judge.differs_at is None else (*because_of(missing), *explanations(run, prepared)),
        notes=tuple(notes),
        missing=missing,
        compared=judge.compared,
    )


def check_recorded(run: object, experiment: object) -> None:
    """Goes on if these are a run and an experiment.

    Raises:
        UserError: one of them is something else, such as a run's name.
    """
    check_kind("run", run, Run, f"pr.Run.open({run!r})" if isinstance(run, str) else "pr.Run.open('night')")
    check_kind("experiment", experiment, Experiment, "pr.Experiment(federation=…, model='mlp', recipe=…, rounds=30)")


def check_noise(run: Run, experiment: Experiment) -> None:
    """Goes on unless a run's noise came from a key that nobody has.

    Raises:
        UserError: it did.
    """
    if run.on_nodes and experiment.recipe.releasing.private:
        raise UserError(
            f"{run.id} is a run on nodes with dp",
            expected="a run whose noise follows from its seed",
            why="its noise came from a key that its server has kept nowhere: whoever had it could take the noise away",
            fix="show it, or run the same experiment in the simulation",
        )


def because_of(missing: Sequence[str]) -> tuple[str, ...]:
    """What is missing from a record, as one of the things that explain a difference; nothing for a whole one."""
    return (holes.in_words(missing),) if missing else ()


def explanations(run: Run, prepared: Prepared) -> tuple[str, ...]:
    """What is another experiment, or computes otherwise, here than where the run was recorded; in words."""
    settings, engine = other_settings(run, prepared.experiment), other_engine(run, prepared)
    earlier = [notice for notice in run.notices if notice.startswith(COMPUTED_BY)]
    return (*settings, *engine, *earlier, *differences(run.libraries, run.machine))


@final
class Judge(Observer):
    """Compares versions with their records, and stops the run at the first difference, or when all are compared.

    Args:
        rows: the records, as the database gives them; versions that are not among them are passed over.
    """

    wants_digests = True

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._rows = {row["version"]: row for row in rows}
        self.compared, self.last = 0, -1
        self.differs_at: int | None = None
        self.differs_in: tuple[str, ...] = ()

    def version(self, record: VersionRecord, model: ModelView) -> None:
        """Compares one.

        Raises:
            Enough: nothing more is to be compared.
        """
        if record.version not in self._rows:
            return
        row = json.loads(to_json(self._rows[record.version]))  # both as JSON has them, which knows no infinity
        found = json.loads(to_json(dataclasses.asdict(record)))
        # What is not there was not kept when the run was recorded.
        differing = [n for n, v in row.items() if n not in _OF_A_CLOCK and v not in (None, "") and v != found[n]]
        self.compared, self.last = self.compared + 1, record.version
        if differing:
            self.differs_at, self.differs_in = record.version, tuple(differing)
        if differing or self.compared == len(self._rows):
            raise Enough
