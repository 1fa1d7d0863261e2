"""Who carries out the visits of an experiment: by a fixed rule, never by a timing. It changes no number."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any, Literal, final

from polyrhythm.core.interfaces import TakesCohorts
from polyrhythm.drivers.executors import AtOnce, Clients, Executor, OneByOne, Threads
from polyrhythm.errors import UserError

Asked = Literal["auto", "inline", "processes", "threads", "ray"]
DRIVERS: tuple[Asked, ...] = ("auto", "inline", "processes", "threads", "ray")

LARGE_VISIT = 10**7
"""Parameters times samples in a visit, from which sending it to a worker is small beside carrying it out."""
LARGE_RUN = 5 * 10**9
"""The same over all visits of a run, from which starting workers is small beside it."""


@final
@dataclass(frozen=True, kw_only=True)
class Crew:
    """Who carries out visits.

    Args:
        driver: "inline", "processes", "threads" or "ray".
        workers: how many visits run at once.
        chosen: whether the rule chose it, and not the user.
        address: of the Ray cluster; None for one of its own.
    """

    driver: Literal["inline", "processes", "threads", "ray"]
    workers: int = 1
    chosen: bool = True
    address: str | None = None

    def executor(self, clients: Clients) -> Executor:
        """Starts it.

        Raises:
            UserError: what visits need cannot be sent to worker processes; or there is no Ray.
        """
        if self.driver == "threads":
            return Threads(clients, self.workers)
        if self.driver == "inline":
            return AtOnce(clients) if isinstance(clients.engine, TakesCohorts) else OneByOne(clients)
        from polyrhythm.drivers.worker import Unsendable

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
            from polyrhythm.drivers.on_ray import OnRay

            return OnRay(clients, self.workers, self.address)
        from polyrhythm.drivers.processes import Processes

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
    held: float,
    at_once: int,
    rounds: int | None,
    processors: int | None = None,
    address: str | None = None,
) -> Crew:
    """Who carries out visits.

    With an engine that takes cohorts it is this process. Otherwise "auto" is in line, unless there are two processors
    or more, two visits or more can be computed at once, a visit is large (parameters * samples >= 10**7) and so is the
    run (parameters * samples * visits >= 5 * 10**9). Then there is one worker for each processor, but no more than such
    visits: threads if the engine lets go of the interpreter's lock, otherwise processes, on Linux. `workers` alone, 2
    or more, asks for that whatever the sizes.

    Args:
        asked: by the user.
        workers: by the user; None for as many as are of use.
        engine: computes gradients.
        parameters: of the model.
        held: samples in a visit, on average: one pass.
        at_once: visits that can be computed at once, such as those of a turn.
        rounds: how many times so many there are in the run; None if nobody knows, which counts as many.
        processors: how many there are; None to look.
        address: of a Ray cluster; by the user.

    Raises:
        UserError: the engine has no threads, or this system no such processes.
    """
    there = cores() if processors is None else processors
    cohorts = isinstance(engine, TakesCohorts)
    if cohorts and (asked in ("processes", "threads", "ray") or (workers or 1) > 1):
        raise UserError(
            f"driver={asked} and {workers or 'any number of'} workers with the stacked engine",
            expected="driver=inline, and no workers",
            why="it takes the visits of a turn at once, and workers would part them",
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
        return Crew(driver="inline", chosen=asked == "auto")
    many: Literal["threads", "processes"] = "threads" if releases else "processes"
    if asked != "auto":
        return Crew(driver=asked, workers=workers or max(1, min(there, at_once)), chosen=False, address=address)
    if not releases and sys.platform != "linux":
        return Crew(driver="inline")
    if workers is not None:
        return Crew(driver=many, workers=workers, chosen=False)
    visit = parameters * held
    large = visit >= LARGE_VISIT and (rounds is None or visit * at_once * rounds >= LARGE_RUN)
    enough = min(there, at_once)
    return Crew(driver=many, workers=enough) if large and enough > 1 else Crew(driver="inline")
