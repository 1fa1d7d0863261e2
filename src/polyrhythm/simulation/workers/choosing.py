"""Who carries out the visits of an experiment: by a fixed rule, never by a timing. It changes no number."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any, Literal, final

from polyrhythm.base.errors import UserError
from polyrhythm.core.protocols import TakesCohorts
from polyrhythm.simulation.workers.cohorts import AtOnce
from polyrhythm.simulation.workers.drivers import Asked, Named
from polyrhythm.simulation.workers.executors import Clients, Executor, OneByOne, Threads

LARGE_VISIT = 10**7
"""Parameters times samples in a visit, from which sending it to a worker is small beside carrying it out."""
LARGE_RUN = 5 * 10**9
"""The same over all visits of a run, from which starting workers is small beside it."""


@final
@dataclass(frozen=True, kw_only=True)
class ExecutionPlan:
    """Who carries out visits.

    Args:
        driver: "inline", "processes", "threads" or "ray".
        workers: how many visits run at once.
        chosen: whether the rule chose it, and not the user.
        address: of the Ray cluster; None for one of its own.
        gpus: the share of a GPU that each of Ray's workers takes; None for none.
        stack: how many visits the stacked engine takes at once; None for all that begin at once, or without it.
    """

    driver: Named
    workers: int = 1
    chosen: bool = True
    address: str | None = None
    gpus: float | None = None
    stack: int | None = None

    def executor(self, clients: Clients) -> Executor:
        """Starts it.

        Raises:
            UserError: what visits need cannot be sent to worker processes; or there is no Ray.
        """
        if self.driver == "threads":
            return Threads(clients, self.workers)
        if self.driver == "inline":
            return AtOnce(clients, self.stack) if isinstance(clients.engine, TakesCohorts) else OneByOne(clients)
        from polyrhythm.simulation.workers.worker import Unsendable

        try:
            return self._elsewhere(clients)
        except Unsendable as reason:
            raise UserError(
                f"driver={self.driver}: the model or the data cannot be sent to another process: {reason}",
                expected="classes and functions that another process can import",
                why="each worker is a process of its own",
                fix="define the model or data set at the top of a module of its own and import it from there, or use "
                "driver=inline",
            ) from reason

    def _elsewhere(self, clients: Clients) -> Executor:
        if self.driver == "ray":
            from polyrhythm.simulation.workers.on_ray import OnRay

            return OnRay(clients, self.workers, self.address, self.gpus, self.stack or 1)
        from polyrhythm.simulation.workers.processes import Processes

        return Processes(clients, self.workers)


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def choose(
    asked: Asked,
    workers: int | None,
    engine: Any,
    *,
    parameters: int,
    num_samples: float,
    at_once: int,
    rounds: int | None,
    processors: int | None = None,
    address: str | None = None,
    gpus: float | None = None,
    stack: int | None = None,
    fills_places: bool = False,
) -> ExecutionPlan:
    """Who carries out visits.

    With an engine that takes cohorts it is this process, which takes all visits that begin at once together; or Ray if
    that was asked for, whose workers take so many of a turn together that each has one group, or each visit alone where
    a place is filled as soon as it is free. `stack` says otherwise.

    With other engines "auto" is in line, unless there are two processors or more, two visits or more can be computed at
    once, a visit is large (parameters * samples >= 10**7) and so is the run (parameters * samples * visits >= 5 *
    10**9). Then there is one worker for each processor, but no more than such visits: threads if the engine lets go of
    the interpreter's lock, otherwise processes, on Linux. `workers` alone, 2 or more, asks for that whatever the sizes.

    Args:
        asked: by the user.
        workers: by the user; None for as many as are of use.
        engine: computes gradients.
        parameters: of the model.
        num_samples: samples in a visit, on average: one pass.
        at_once: visits that can be computed at once, such as those of a turn.
        rounds: how many times so many there are in the run; None if nobody knows, which counts as many.
        processors: how many there are; None to look.
        address: of a Ray cluster; by the user.
        gpus: the share of a GPU that each of its workers takes; by the user.
        stack: how many visits are stacked; by the user.
        fills_places: whether a visit begins whenever another one ends, and not a whole turn at once.

    Raises:
        UserError: the engine has no threads, or this system no such processes.
    """
    there = cores() if processors is None else processors
    cohorts = isinstance(engine, TakesCohorts)
    if cohorts and asked == "ray":
        many = workers or max(1, min(there, at_once))
        part = 1 if fills_places else -(-at_once // many)
        return ExecutionPlan(driver="ray", workers=many, chosen=False, address=address, gpus=gpus, stack=stack or part)
    if cohorts and (asked in ("processes", "threads") or (workers or 1) > 1):
        raise UserError(
            f"driver={asked} and {workers or 'any number of'} workers with the stacked engine",
            expected="driver=inline and no workers, or driver=ray",
            why="it takes the visits of a turn at once, and these workers would part them",
            fix="leave driver and workers out, or engine=native or torch",
        )
    releases = bool(getattr(engine, "releases_lock", False))
    if asked == "threads" and not releases:
        raise UserError(
            "driver=threads with an engine that holds the interpreter's lock",
            expected="an engine that lets go of it, such as native",
            why="the threads would wait for each other",
            fix="driver=processes",
        )
    if asked == "processes" and sys.platform != "linux":
        raise UserError(
            f"driver=processes on {sys.platform}",
            expected="Linux",
            why="worker processes are forked, which only there is safe beside torch",
            fix="driver=inline",
        )
    if cohorts or asked == "inline" or (workers == 1 and asked == "auto"):
        return ExecutionPlan(driver="inline", chosen=asked == "auto", stack=stack if cohorts else None)
    kind: Literal["threads", "processes"] = "threads" if releases else "processes"
    if asked != "auto":
        return ExecutionPlan(
            driver=asked, workers=workers or max(1, min(there, at_once)), chosen=False, address=address
        )
    if not releases and sys.platform != "linux":
        return ExecutionPlan(driver="inline")
    if workers is not None:
        return ExecutionPlan(driver=kind, workers=workers, chosen=False)
    visit = parameters * num_samples
    large = visit >= LARGE_VISIT and (rounds is None or visit * at_once * rounds >= LARGE_RUN)
    enough = min(there, at_once)
    return ExecutionPlan(driver=kind, workers=enough) if large and enough > 1 else ExecutionPlan(driver="inline")
