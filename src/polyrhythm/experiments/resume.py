"""May this run go on as this experiment, and from where?"""

from __future__ import annotations

import functools
import json
from pathlib import Path

from polyrhythm.base.errors import UserError
from polyrhythm.experiments.experiment import Experiment
from polyrhythm.experiments.prepared import Prepared
from polyrhythm.experiments.runstate import RunState, last_kept
from polyrhythm.results import Run
from polyrhythm.runs import holes
from polyrhythm.runs.checkpointing import Unfit
from polyrhythm.runs.database import FILE, damaged_runs
from polyrhythm.runs.database_writer import Cut
from polyrhythm.runs.environment import differences
from polyrhythm.runs.json_text import to_json
from polyrhythm.runs.plan_row import digest_of
from polyrhythm.runs.recorder import Kept, TakenUp, going_on
from polyrhythm.runs.updates import logged

_NOT_COMPARED = {"rounds"}  # which may grow
COMPUTED_BY = "local steps were computed by"
"""How the notice of a run begins that went on with another engine."""


def same_experiment(experiment: Experiment, out: Path | str, *, on_nodes: bool = False) -> Run | None:
    """The newest run of an experiment in a folder, of those in the simulation or of those on nodes."""
    if not (Path(out) / FILE).is_file():
        return None
    digest = digest_of(experiment.describe())
    runs = (run for run in reversed(Run.all(out, archived=True)) if run.config_digest == digest)
    return next((run for run in runs if run.on_nodes == on_nodes), None)


def lost_runs(out: Path | str) -> tuple[str, ...]:
    """Runs of a folder with which nobody can go on, as their record is missing or damaged; in words."""
    out = Path(out)
    there = (out / FILE).is_file()
    known = {run.id for run in Run.all(out, archived=True)} if there else set[str]()
    damaged = damaged_runs(out) if there else dict[str, str]()
    folders = sorted({path.parent.name for path in out.glob("*/checkpoint-*.safetensors")} - known - damaged.keys())
    return (
        *(f"the record of the run {name} is damaged ({damage})" for name, damage in damaged.items()),
        *(f"there is a folder of the run {name}, but its rows are missing from {out / FILE}" for name in folders),
    )


def is_done(run: Run) -> bool:
    """Whether nothing is left to do of a run: it has finished, and its record is whole."""
    return run.status == "finished" and not run.missing


def take_up(run: Run, prepared: Prepared, *, on_nodes: bool = False) -> TakenUp:
    """What a run needs to go on.

    Args:
        run: killed, stopped or failed; or finished, if the experiment has more rounds than it or its record has holes.
        prepared: what it is a run of, and how it is to go on: also with another driver or engine.
        on_nodes: whether nodes of a real federation are to carry it out.

    Raises:
        UserError: it cannot go on, with the reason.
    """
    if run.status == "running":
        raise going_on(run.id)
    if run.on_nodes != on_nodes:
        raise UserError(
            f"{run.id} is a run {'on nodes' if run.on_nodes else 'in the simulation'}",
            expected=f"one {'on nodes' if on_nodes else 'in the simulation'}",
            why="what its clients remember lies elsewhere",
            fix="go on with it where it was: on nodes with `polyrhythm flower up` or `flwr run`, which do so by "
            "themselves, and else with `polyrhythm resume`",
        )
    experiment = prepared.experiment
    _same(run, experiment)
    missing = run.missing
    rounds: int | None = run.config["rounds"]
    if experiment.rounds != rounds:
        _extends(run, experiment, rounds)
    elif run.status == "finished" and not missing:
        raise UserError(
            f"{run.id} has finished: {run.reason}",
            expected="a run that was killed, stopped or failed",
            why="there is nothing left to do",
            fix="ask for more versions than it made (--rounds), or start a new run",
        )
    kept, notes = _last_that_fits(run)
    if missing:
        notes.insert(0, f"{holes.in_words(missing)}: what was lost is made again")
    notes += other_engine(run, prepared)
    notes += [f"it goes on elsewhere: {difference}" for difference in differences(run.libraries, run.machine)]
    state: RunState | None = None if kept is None else kept.run
    if state is None:
        notes.append("there is no whole checkpoint, so the run begins anew")
    else:
        notes.append(f"the run went on from its checkpoint of version {state.driver.server.version}")
    config = {**run.config, "rounds": experiment.rounds}
    return TakenUp(run_id=run.id, config=config, kept=kept, cut=_cut(state), notes=tuple(notes))


def _last_that_fits(run: Run) -> tuple[Kept | None, list[str]]:
    """The newest checkpoint with which a run's record and its log of updates agree, and what is to be said of others.

    Where none agrees with the log, which is no part of the record, the newest one that agrees with the record.
    """
    reports = logged(run.path)

    def check(state: RunState, *, with_log: bool) -> None:
        cut = _cut(state)
        if lacks := holes.lacking(run.folder, run.number, cut):
            raise Unfit(f"is of a record that had more ({holes.in_words(lacks)})")
        if unlike := holes.unlike(run.folder, run.number, cut):
            raise Unfit(f"is of another record ({unlike})")
        if with_log and (lost := holes.unkept(run.folder, run.number, reports or (), cut)):
            raise Unfit(f"is of a record that had more ({holes.in_words(lost)})")

    kept, notes = last_kept(run.path, check=functools.partial(check, with_log=reports is not None))
    if kept is not None or reports is None:
        return kept, notes
    kept, found = last_kept(run.path, check=functools.partial(check, with_log=False))
    if kept is not None and (lost := holes.unkept(run.folder, run.number, reports, _cut(kept.run))):
        found.append(f"{holes.in_words(lost)}: only the server's part cannot be replayed alone")
    return kept, found


def _cut(state: RunState | None) -> Cut:
    if state is None:
        return Cut()
    driver = state.driver
    return Cut(
        version=driver.server.version,
        dispatched=driver.server.dispatched,
        under_way=tuple(visit.assignment.dispatch for visit in driver.agenda.under_way()),
        events=state.events,
        answers=state.answers,
        digest=state.summary.digest,
        sums=state.ledger.over(),
    )


def _same(run: Run, experiment: Experiment) -> None:
    if differing := other_settings(run, experiment):
        raise UserError(
            f"{run.id} is a run of another experiment: {'; '.join(differing[:3])}",
            expected="the same experiment, but for the number of rounds",
            why="a run that goes on as another one would be a run of neither",
            fix="give the experiment that it was started with, or start a new run",
        )


def other_settings(run: Run, experiment: Experiment) -> list[str]:
    """Where an experiment is another one than a run's, but for the number of rounds; in words."""
    there, here = run.config, json.loads(to_json(experiment.describe()))
    keys = [key for key in sorted({*there, *here} - _NOT_COMPARED) if there.get(key, _NONE) != here.get(key, _NONE)]
    return [f"{key} was {_short(there.get(key))} and is {_short(here.get(key))}" for key in keys]


def other_engine(run: Run, prepared: Prepared) -> list[str]:
    """Whether another engine than a run's computes here, in words: then numbers may differ by its rounding."""
    there, here = str(run.machine.get("computed_by", "an unknown engine")), prepared.chosen.name
    if there == here:
        return []
    return [f"{COMPUTED_BY} {there}, and are by {here}: numbers may differ by its rounding"]


_NONE = object()


def _short(value: object) -> str:
    text = to_json(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _extends(run: Run, experiment: Experiment, rounds: int | None) -> None:
    """Refuses another number of rounds where that would not give the run that it would have been from the start."""
    made, asked = rounds, experiment.rounds
    if made is None or asked is None or asked < made:
        raise UserError(
            f"{asked} rounds for {run.id}, which was started with {made}",
            expected="as many, or more",
            why="what a run has made is not taken back" if made and asked else "it ends on something else",
            fix="start a new run",
        )
    readers = [part.label() for part in experiment.recipe.parts() if "total_rounds" in part.needs()]
    if experiment.recipe.schedule.needs_horizon:
        readers.append(experiment.recipe.schedule.label())
    if readers:
        raise UserError(
            f"{asked} rounds for {run.id}, which was started with {made}, with {' and '.join(readers)}",
            expected=f"{made} rounds, or parts that do not read their number",
            why=f"{readers[0]} spreads over all rounds, so with {asked} the first {made} would have been others",
            fix=f"start a new run with {asked} rounds",
        )
