"""One run of a study: begun, or gone on with, and stopped early if it is behind."""

from __future__ import annotations

import contextlib
import errno
import sqlite3
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, final

from polyrhythm.base.errors import PolyrhythmError, UserError
from polyrhythm.experiments.experiment import Experiment
from polyrhythm.experiments.prepared import Planned, Prepared, prepare, what_and_how
from polyrhythm.experiments.resume import is_done
from polyrhythm.experiments.run import Launch
from polyrhythm.experiments.session import in_words
from polyrhythm.results import Run
from polyrhythm.runs.comparison import last_spread
from polyrhythm.runs.database import FILE
from polyrhythm.runs.observer import Enough, Observer
from polyrhythm.runs.plan_row import digest_of
from polyrhythm.runs.records import ModelView, Plan, VersionRecord
from polyrhythm.studies.running.trials import history_of
from polyrhythm.studies.space import Setting
from polyrhythm.trackers import Tracking

PRUNED = "pruned"
Tell = Callable[[int, int | None, float | None], None]
"""Hears of every version: its number, how many there will be, its score on the validation data."""


@final
@dataclass(frozen=True, kw_only=True)
class Job:
    """Job: one run to be made.

    Args:
        of: what the runs of its arm or cell are called, which has what makes it.
        name: what it is called.
        setting: that is tried, or was chosen.
        seed: of it.
        out: the folder of its record.
        bars: for each version the score that it must have reached; empty if it is never stopped.
        tracking: who else is told.
    """

    of: str
    name: str
    setting: Setting
    seed: int
    out: str
    bars: Mapping[int, float] = field(default_factory=dict)
    tracking: Tracking = field(default_factory=Tracking)


@final
@dataclass(frozen=True, kw_only=True)
class Ending:
    """Ending of a run: how it went.

    Args:
        run: its id; empty if it had no record yet.
        state: "died" if its process did, "hindered" if the machine did not let it go on, such as a full disk.
        reason: why it was pruned or failed.
        history: the validation score of every evaluated version.
        headline: the metric that this is.
        of_clients: the mean over clients of the model that each uses in the end; None where they have no tests.
    """

    run: str = ""
    state: Literal["finished", "pruned", "failed", "died", "hindered"] = "finished"
    reason: str = ""
    history: Sequence[tuple[int, float]] = ()
    headline: str = ""
    of_clients: float | None = None


def perform(job: Job, make: Callable[[Setting, int], Planned], tell: Tell) -> Ending:
    """Makes the run of a job, or what is left of it; one that is over already is only looked at.

    Raises:
        KeyboardInterrupt: it was stopped from outside; it can go on.
    """
    try:
        made, execution = what_and_how(make(job.setting, job.seed))
        experiment = replace(made, name=job.name)
        alone = replace(execution, driver="inline", workers=None, address=None, gpus=None)
        earlier = _earlier(job, experiment)
        if earlier is not None and _is_over(earlier):
            return _ending(earlier)
        return _ending(_carried_out(job, prepare(experiment, alone), earlier, tell))
    except UserError as error:  # what could be told before its first round only here
        return Ending(state="failed", reason=error.found)
    except _Failed as failed:
        return failed.ending


def begun(job: Job, make: Callable[[Setting, int], Planned]) -> Run | None:
    """The newest run of a job that has failed or made a version, over or not; None if there is none."""
    made, _ = what_and_how(make(job.setting, job.seed))
    run = _earlier(job, replace(made, name=job.name))
    if run is None or (run.status != "failed" and not any(row["version"] > 0 for row in run.versions)):
        return None
    return run


def _carried_out(job: Job, prepared: Prepared, earlier: Run | None, tell: Tell) -> Run:
    launch = Launch(prepared, job.out, earlier, tracking=job.tracking)
    try:
        summary = launch.carry_out([_Watch(job.bars, tell)])
    except UserError:
        raise
    except Exception as error:
        state: Literal["failed", "hindered"] = "hindered" if _of_the_machine(error) else "failed"
        if not launch.recorder.run_id:
            raise _Failed(Ending(state=state, reason=in_words(error))) from error
        run = launch.opened()
        if not isinstance(error, PolyrhythmError):
            _keep(run.path / "error.log", error)
        raise _Failed(replace(_ending(run), state=state, reason=in_words(error))) from error
    if summary["status"] == "stopped" and not str(summary["reason"]).startswith(PRUNED):
        raise KeyboardInterrupt(summary["reason"])
    return launch.opened()


_PASSING = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE)


def _of_the_machine(error: BaseException | None) -> bool:
    """Whether a failure says nothing of the experiment: a full disk, or a database that cannot be written."""
    while error is not None:
        if isinstance(error, sqlite3.Error) or (isinstance(error, OSError) and error.errno in _PASSING):
            return True
        error = error.__cause__ or error.__context__
    return False


class _Failed(Exception):
    def __init__(self, ending: Ending) -> None:
        self.ending = ending
        super().__init__(ending.reason)


def _earlier(job: Job, experiment: Experiment) -> Run | None:
    """The newest run of a job."""
    if not (Path(job.out) / FILE).is_file():
        return None
    called = [run for run in Run.all(job.out, archived=True) if run.first_name == job.name and run.seed == job.seed]
    if not called:
        return None
    digest = digest_of(experiment.describe())
    return next((run for run in reversed(called) if run.config_digest == digest), None)


def _is_over(run: Run) -> bool:
    return is_done(run) or (run.status == "stopped" and run.reason.startswith(PRUNED))


def _ending(run: Run) -> Ending:
    state: Literal["finished", "pruned"] = "finished" if run.status == "finished" else "pruned"
    reason = "" if state == "finished" else run.reason
    rows = run.versions
    history, last = history_of(rows, run.headline), last_spread([row for row in rows if row["version"] > 0])
    of_clients = last.get("personal_mean", last.get("global_mean"))
    return Ending(run=run.id, state=state, reason=reason, history=history, headline=run.headline, of_clients=of_clients)


def _keep(path: Path, error: Exception) -> None:
    with contextlib.suppress(OSError):  # such as a full disk, which may be what failed
        path.write_text("".join(traceback.format_exception(error)), encoding="utf-8")


@final
class _Watch(Observer):
    """The observer that tells how a run goes, and stops it if it is behind."""

    def __init__(self, bars: Mapping[int, float], tell: Tell) -> None:
        self._bars, self._tell = bars, tell
        self._headline, self._highest = "", float("-inf")
        self._rounds: int | None = None

    def begin(self, plan: Plan) -> None:
        """Keeps what is needed."""
        self._headline, self._rounds = plan.headline, plan.rounds

    def version(self, record: VersionRecord, model: ModelView) -> None:
        """Tells of it, and stops the run if the best score so far is below the bar.

        Raises:
            Enough: it is.
        """
        score = None if record.validation is None else record.validation.get(self._headline)
        self._tell(record.version, self._rounds, score)
        if score is None:
            return
        self._highest = max(self._highest, score)
        bar = self._bars.get(record.version)
        if bar is not None and self._highest < bar:
            raise Enough(
                f"{PRUNED}: {self._headline} {self._highest:.4f} after {record.version} versions, where earlier trials "
                f"had {bar:.4f} in the median"
            )
