"""What an experiment will cost, before it is run: counted in a dry run, and timed on a few real steps."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np
import torch

from polyrhythm.base.errors import UserError
from polyrhythm.base.messages import Assignment
from polyrhythm.base.threads import one_thread, settled_memory
from polyrhythm.core.client import work
from polyrhythm.core.client_state import ClientState
from polyrhythm.core.measuring import measuring
from polyrhythm.data.holding import Holding
from polyrhythm.engines.selection import AnyEngine
from polyrhythm.experiments.dry_run import DryRun, dry_run
from polyrhythm.experiments.execution import AUTO, Execution
from polyrhythm.experiments.experiment import Experiment
from polyrhythm.experiments.prepared import Prepared, prepare
from polyrhythm.methods.work.base import Steps, WorkModifier
from polyrhythm.runs.database import read_runs
from polyrhythm.runs.environment import machine, peak_memory
from polyrhythm.simulation.client_store.amount import budget

DRY_RUN_SECONDS = 5.0  # seconds that a dry run may take
MEASURED = 2.0  # seconds that measuring steps may take
_MANY, _TIMES = 6, 1000  # steps in the longer of two visits; pairs of visits at most
_VERY_LONG = 10.0  # seconds of a first step that is not repeated
_PERIODS = 8  # in which what was measured is looked at apart, for the spread
_OF_TEST = 1000  # test samples that are timed


@final
@dataclass(frozen=True, kw_only=True)
class Seconds:
    """How long a run is expected to take, and how that is known.

    Args:
        expected: by the means of what was measured, or the median of what was recorded.
        low, high: the least and the most, by what was measured in each eighth of the time, or recorded in each run;
            None where there is only one.
        source: in words.
    """

    expected: float
    low: float | None
    high: float | None
    source: str


@final
@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What an experiment will cost.

    Args:
        versions: in the whole run; None if nobody can know, and then all else is of `counted` versions.
        counted: versions of the dry run; what is beyond them is taken to be like them.
        visits, steps, samples, flops, bytes_up, bytes_down, virtual_seconds: as in a run's summary.
        kept: bytes that the run itself will hold at most: what clients and server remember, and updates under way.
        memory: bytes of this process at most: what it has used so far, data, model and a training step included, and
            `kept`.
        seconds: how long it takes on this machine, beside loading the data.
        notes: what could make it otherwise.
    """

    versions: int | None
    counted: int
    visits: int
    steps: int
    samples: int
    flops: int
    bytes_up: int
    bytes_down: int
    virtual_seconds: float
    kept: int
    memory: int
    seconds: Seconds
    notes: tuple[str, ...]


def estimate(experiment: Experiment, *, execution: Execution = AUTO, out: Path | str = "runs") -> Estimate:
    """Estimates what an experiment will cost. Nothing is written, and nothing is trained but a few steps.

    Visits, steps, samples, FLOPs and bytes are counted in a dry run of the whole run, or of as much of it as fits
    into five seconds. They are exact where nothing decides by what training gives; a note says what does. The time is
    that of runs of the same method, data and model recorded in `out` on this kind of processor, where there are any.
    Otherwise it follows from steps, visits and an evaluation measured now, in about three seconds.

    Args:
        experiment: what would run; not changed.
        execution: how.
        out: the folder in which runs may be recorded.

    Raises:
        UserError: something is wrong that can be known before the first round.
    """
    prepared = prepare(experiment, execution)  # with an engine of its own, as measuring trains it
    with one_thread(), settled_memory():  # as a run has it: whose steps do not take their memory anew
        until = experiment.until
        endless = experiment.rounds is None and until.time is None and until.updates is None
        dry = dry_run(prepared, within=1.0 if endless else DRY_RUN_SECONDS)
        versions = dry.planned
        factor = 1.0 if dry.whole or not versions else versions / max(1, dry.versions)
        seconds = _recorded(prepared, Path(out), versions) or _measured(prepared, dry, factor)
    return Estimate(
        versions=versions,
        counted=dry.versions,
        visits=round(factor * dry.visits),
        steps=round(factor * dry.steps),
        samples=round(factor * dry.samples),
        flops=round(factor * dry.flops),
        bytes_up=round(factor * dry.bytes_up),
        bytes_down=round(factor * dry.bytes_down),
        virtual_seconds=factor * dry.virtual_seconds,
        kept=_kept(prepared, dry),
        memory=peak_memory() + _kept(prepared, dry),
        seconds=seconds,
        notes=tuple(_notes(prepared, dry)),
    )


def _notes(prepared: Prepared, dry: DryRun) -> list[str]:
    notes = []
    if dry.failure:
        notes.append(f"the run would end early: {dry.failure}")
    if dry.guessed:
        notes.append(
            f"{', '.join(dry.guessed)} will decide by what training gives, which nobody knows before: counted as "
            "if all losses were equal and nothing ended early"
        )
    if dry.planned is None:
        notes.append(f"how many versions it takes nobody knows: this is for {dry.versions:,}")
    elif not dry.whole and not dry.failure:
        notes.append(f"counted for {dry.versions:,} versions; the others are taken to be like them")
    if filed := _in_files(prepared, dry):
        notes.append(f"of what clients remember, {filed / 1e6:,.1f} MB lie in files")
    if prepared.crew.workers > 1:
        notes.append(f"the time is for {prepared.crew.workers} workers with a processor each")
    if prepared.execution.gpus is not None:
        notes.append("GPUs of workers are not in it: nobody knows how fast they are")
    return notes


def _kept(prepared: Prepared, dry: DryRun) -> int:
    """What is held in memory beside data and model; of clients and server as it is at the end of the dry run."""
    update = dry.bytes_up // max(1, dry.visits)
    return dry.client_bytes - _in_files(prepared, dry) + dry.server_bytes + dry.under_way * update


def _in_files(prepared: Prepared, dry: DryRun) -> int:
    """What clients remember beyond the memory that they have."""
    memory = budget(prepared.execution.client_memory)
    return 0 if memory is None else max(0, dry.client_bytes + dry.table_bytes - memory)


def _recorded(prepared: Prepared, out: Path, versions: int | None) -> Seconds | None:
    """From finished runs that did the same work in each version, on the same kind of processor."""
    try:
        rows = read_runs(out)
    except UserError:  # no record yet, or none that can be read
        return None
    config, cpu, crew = prepared.experiment.describe(), machine()["cpu"], prepared.crew
    same = {key: config.get(key) for key in ("data", "partition", "model", "fleet", "evaluation")}
    took = []
    for row in rows:
        summary = row["summary"] or {}
        if (
            row["status"] == "finished"
            and row["recipe_digest"] == prepared.recipe.digest
            and row["clients"] == prepared.federation.clients
            and (row["machine"].get("cpu"), row["machine"].get("computed_by")) == (cpu, prepared.chosen.name)
            and {key: row["config"].get(key) for key in same} == same
            and (summary.get("driver"), summary.get("workers")) == (crew.driver, crew.workers)
            and summary.get("rounds")
            and summary.get("wall_seconds") is not None
        ):
            took.append(summary["wall_seconds"] / summary["rounds"])
    if not took:
        return None
    whole = versions or 1
    several = len(took) > 1
    return Seconds(
        expected=statistics.median(took) * whole,
        low=min(took) * whole if several else None,
        high=max(took) * whole if several else None,
        source=f"{len(took)} recorded run{'s' if several else ''} of this method, data and model on this kind of "
        "processor, by the version",
    )


def _measured(prepared: Prepared, dry: DryRun, factor: float) -> Seconds:
    """From a few steps, visits and an evaluation, made now."""
    timed = _steps(prepared)
    evaluation = _evaluation(prepared)
    looks = 1 + math.ceil(dry.versions / prepared.experiment.evaluation.every)

    def whole(some: list[tuple[float, float]]) -> float:
        # Means, since a run meets whatever else the machine does, too.
        one, many = (statistics.fmean(taken) for taken in zip(*some, strict=True))
        step = max(0.0, (many - one) / (_MANY - 1)) if many else one
        visit = max(0.0, one - step)
        clients = (dry.steps * step + dry.visits * visit) / prepared.crew.workers
        return factor * (clients + looks * evaluation + dry.seconds)

    size = max(1, len(timed) // _PERIODS)
    periods = [whole(timed[i : i + size]) for i in range(0, len(timed), size)]
    several = len(periods) > 1
    return Seconds(
        expected=whole(timed),
        low=min(periods) if several else None,
        high=max(periods) if several else None,
        source=f"a visit of one step and one of {_MANY} steps, measured {len(timed)} times just now, an evaluation and "
        "the dry run; no run"
        if several
        else "one step, measured once just now, an evaluation and the dry run; no run",
    )


def _steps(prepared: Prepared) -> list[tuple[float, float]]:
    """Seconds for a visit of one step, and for one of several, in turn, as often as time allows.

    On the client of median size. If one step takes long, one is all that is measured, after another one to warm up
    unless that took very long; the other time is 0.
    """
    holders = prepared.eligible
    client = int(holders[np.argsort(prepared.federation.sizes[holders])[len(holders) // 2]])
    short, long = _visit(prepared, client, 1), _visit(prepared, client, _MANY)
    begun, first = time.perf_counter(), short()
    if first > MEASURED / _MANY:
        return [(short() if first < _VERY_LONG else first, 0.0)]
    long()  # to warm up
    timed = [(short(), long())]
    while len(timed) < _TIMES and time.perf_counter() - begun < MEASURED:
        timed.append((short(), long()))
    return timed


def _visit(prepared: Prepared, client: int, steps: int) -> Callable[[], float]:
    """Carries out a visit of so many steps, and says how long that took."""
    setup, engine = prepared.setup, prepared.chosen.engine
    looking = tuple(m for m in prepared.recipe.modifiers if m.watches or not isinstance(m, WorkModifier))
    recipe = replace(prepared.recipe, work=Steps(steps=steps), modifiers=looking)  # to look takes time
    initial, data = engine.initial(), prepared.data_of(client)
    states = recipe.server_start(setup)
    assignment = Assignment(
        dispatch=0,
        client=client,
        visit=0,
        accepted=-1,
        kind="train",
        version=0,
        total_rounds=setup.total_rounds,
        weights=initial.weights,
        buffers=initial.buffers,
        briefs={key: part.brief(setup, states[key], client) for key, part in recipe.mechanisms()},
        recipe=recipe.digest,
    )

    state = ClientState()

    def carried_out() -> float:
        nonlocal state  # only the first visit of a client is one without an earlier model
        begun = time.perf_counter()
        state, _ = work(recipe, setup, state, assignment, data, engine)
        return time.perf_counter() - begun

    return carried_out


def _evaluation(prepared: Prepared) -> float:
    """Seconds for measuring the model once on all the sets that it is measured on."""
    federation, engine = prepared.federation, prepared.chosen.engine
    per_sample = _per_test_sample(engine, federation.test)
    own = 0 if federation.local_tests is None else int(federation.local_tests.sizes.sum())
    if prepared.recipe.has_personal and not prepared.recipe.personal.tunes:
        own *= 2  # once more, with clients' own models
    own += 0 if federation.unseen is None else int(federation.unseen.tests.sizes.sum())
    validation = 0 if federation.validation is None else len(federation.validation)
    pooled = len(federation.test) + validation + prepared.experiment.evaluation.train_samples
    models = len(prepared.eligible) if prepared.recipe.regime == "local" else 1
    return per_sample * (models * pooled + own)


def _per_test_sample(engine: AnyEngine, test: Any) -> float:
    some = Holding(test, torch.arange(min(_OF_TEST, len(test))))
    model = engine.initial()
    with measuring(engine, some, 0, "estimate"):
        engine.tally(model, some)  # to warm up
        begun = time.perf_counter()
        engine.tally(model, some)
    return (time.perf_counter() - begun) / len(some)
