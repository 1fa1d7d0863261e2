"""Runs once more, in the order in which their servers heard things: whole ones, or servers from logged updates."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from torch import Tensor

from polyrhythm.base.errors import RunFailed, UserError
from polyrhythm.base.messages import Assignment, Report
from polyrhythm.base.threads import one_thread, settled_memory
from polyrhythm.core.server import Server
from polyrhythm.core.server_state import ServerDecision
from polyrhythm.engines.selection import AnyEngine
from polyrhythm.experiments.execution import AUTO, Execution
from polyrhythm.experiments.experiment import Experiment
from polyrhythm.experiments.prepared import Prepared, prepare
from polyrhythm.experiments.runstate import CODEC
from polyrhythm.experiments.verify import Verdict, because_of, check_noise, check_recorded, explanations
from polyrhythm.methods.mechanism import Model, Setup
from polyrhythm.methods.recipe import Recipe
from polyrhythm.results import Run
from polyrhythm.runs import holes
from polyrhythm.runs.database import read_records, unpacked
from polyrhythm.runs.observer import Start
from polyrhythm.runs.stored import Damaged, load
from polyrhythm.runs.summary import model_digest
from polyrhythm.runs.updates import START, file_of, logged
from polyrhythm.simulation import replay as driving
from polyrhythm.simulation.replay import Logged, LoggedRoster, Visits
from polyrhythm.simulation.roster import Answer
from polyrhythm.simulation.simulator import InlineDriver


@final
@dataclass(frozen=True, kw_only=True)
class ServerSide:
    """What a server needs to know.

    Args:
        recipe: the method.
        setup: what is fixed for the run.
        engine: holds the model; it computes nothing here.
        initial: version 0.
        clients: those that may be invited, in order.
    """

    recipe: Recipe
    setup: Setup
    engine: AnyEngine
    initial: Model
    clients: Sequence[int]

    @classmethod
    def of(cls, prepared: Prepared) -> ServerSide:
        """The server's side of an experiment."""
        return cls(
            recipe=prepared.recipe,
            setup=prepared.setup,
            engine=prepared.chosen.engine,
            initial=prepared.initial,
            clients=prepared.eligible.tolist(),
        )


def replay(run: Run, experiment: Experiment, *, execution: Execution = AUTO, from_updates: bool = False) -> Verdict:
    """Takes a recorded run's events in their order, and compares the model of every version with its digest on record.

    The fleet is not asked: who was there, who answered when, and who was lost are in the log.

    Args:
        run: what was recorded.
        experiment: what it is a run of.
        execution: how visits are computed again.
        from_updates: take the clients' reports from the log, too (`log_updates` when it was run), so that only the
            server works; else every visit is computed again.

    Raises:
        UserError: there is no such log, or there is no server in the recipe.
        RunFailed: the log is of another run.
    """
    check_recorded(run, experiment)
    check_noise(run, experiment)
    prepared = prepare(experiment, execution)
    side, why = ServerSide.of(prepared), explanations(run, prepared)
    if from_updates:
        return replay_server(run, side, why)
    with one_thread(), settled_memory(), _trained(prepared) as visits:
        return _compared(run, side, visits, why)


def replay_server(run: Run, side: ServerSide, explained_by: tuple[str, ...]) -> Verdict:
    """The same for the server alone: neither data nor devices are needed."""
    log_start(run)
    unkept = holes.unkept(run.folder, run.number, logged(run.path) or ())
    try:
        with one_thread(), settled_memory():
            return _compared(run, side, _from_files(run.path), explained_by)
    except RunFailed as error:
        if unkept:
            raise RunFailed(f"{error}; {holes.in_words(unkept)}") from error
        raise


def log_start(run: Run) -> Start:
    """What a run's log of updates says of its beginning.

    Raises:
        UserError: there is no such log.
    """
    try:
        start, _ = load(run.path / START, CODEC)
    except Damaged as damage:
        raise UserError(
            f"{run.id} has no log of updates ({damage})",
            expected="a run that was started with --log-updates",
            why="without the clients' reports they must be computed again",
            fix="leave --from-updates out, or run it again with --log-updates",
        ) from damage
    assert isinstance(start, Start)
    return start


@contextlib.contextmanager
def _trained(prepared: Prepared) -> Iterator[Visits]:
    """Visits that are computed again."""
    executor = prepared.crew.executor(prepared.clients)
    driver = InlineDriver(
        prepared.recipe,
        prepared.setup,
        prepared.chosen.engine,
        prepared.data_of,
        prepared.world(),
        executor=executor,
    )

    def visits(assignments: Sequence[Assignment], now: float) -> list[Report | None]:
        reports, transit = driver.visits.carry_out(assignments, now), driver.visits.transit
        return [*reports] if transit is None else [*map(transit.arrives, reports)]

    try:
        yield visits
    finally:
        executor.close()


def _from_files(folder: Path) -> Visits:
    def visits(assignments: Sequence[Assignment], now: float) -> list[Report | None]:
        return [_report(folder, assignment.dispatch) for assignment in assignments]

    return visits


def _report(folder: Path, dispatch: int) -> Report | None:
    path = folder / file_of(dispatch)
    if not path.exists():
        return None
    try:
        report, _ = load(path, CODEC)
    except Damaged as damage:
        raise RunFailed(f"{path} is damaged: {damage}") from damage
    assert isinstance(report, Report)
    return report


def _compared(run: Run, side: ServerSide, visits: Visits, explained_by: tuple[str, ...]) -> Verdict:
    if side.recipe.regime == "local":
        raise UserError(
            f"{run.id} is a run in which nothing arrives",
            expected="a recipe with a server",
            why="where clients exchange nothing there is no order of arrival",
            fix="polyrhythm verify computes it again",
        )
    missing = run.missing
    log, roster = _log(run), LoggedRoster(side.setup.population, side.clients, _answers(run))
    digests = {row["version"]: row["digest"] for row in run.versions if row["digest"]}
    differs_at: int | None = None
    differs_in: tuple[str, ...] = ()
    compared: list[int] = []
    for turn in _as_far_as_it_goes(run, log, side, roster, visits, gaps=bool(missing)):
        version = turn.state.version
        if version in digests and (version == 0 or turn.released is not None) and version not in compared:
            compared.append(version)
            if _digest(side, turn) != digests[version]:
                differs_at, differs_in = version, ("digest",)
                break
    unmade = sorted(digests.keys() - set(compared))
    if differs_at is None and unmade and not missing:
        differs_at, differs_in = unmade[0], ("that it is not made",)
    return Verdict(
        run_id=run.id,
        first=0,
        last=max(compared, default=-1),
        differs_at=differs_at,
        differs_in=differs_in,
        explained_by=() if differs_at is None else (*because_of(missing), *explained_by),
        missing=missing,
        compared=len(compared),
    )


def _as_far_as_it_goes(
    run: Run, log: Sequence[Logged], side: ServerSide, roster: LoggedRoster, visits: Visits, *, gaps: bool
) -> Iterator[ServerDecision]:
    """The turns. Where a run could not go on it may not go on here, after as many; nor where its log has gaps."""
    server = Server(recipe=side.recipe, setup=side.setup, layout=side.engine.layout)
    turns, made = driving.replay(server, side.initial, roster, log, visits), 0
    try:
        for turn in turns:
            made += 1
            yield turn
    except RunFailed:
        if not gaps and (run.status != "failed" or made < len(log)):
            raise


def _digest(side: ServerSide, turn: ServerDecision) -> str:
    model = Model(weights=turn.state.weights, buffers=turn.state.buffers)
    state: Mapping[str, Tensor] = side.engine.state_of(model)
    return model_digest(state)


def _log(run: Run) -> list[Logged]:
    visits = {row["dispatch"]: row for row in _rows(run, "visits") if row["status"] == "lost"}
    lost = {dispatch: {"lost": row["reason"], "fault": row["fault"] or "lost"} for dispatch, row in visits.items()}
    log = [
        Logged(
            number=row["event"],
            kind=row["kind"],
            about=row["number"],
            time=row["time"],
            **lost.get(row["number"], {}) if row["kind"] == "visit" else {},
        )
        for row in _rows(run, "events")
    ]
    if not log:
        raise UserError(
            f"{run.id} has no log of events",
            expected="a run of this version of polyrhythm that has heard something",
            why="the order of arrival is read from there",
            fix="polyrhythm verify computes it again, on the fleet's clock",
        )
    return log


def _answers(run: Run) -> dict[int, list[Answer]]:
    answers: dict[int, list[Answer]] = {}
    for row in _rows(run, "answers"):
        clients = () if row["clients"] is None else unpacked(row["clients"])
        answers.setdefault(row["event"], []).append(Answer(question=row["question"], clients=clients))
    return answers


def _rows(run: Run, table: Any) -> list[dict[str, Any]]:
    return read_records(run.folder, table, run.number)
