"""Who carries out visits: the driver itself, threads, or (in `processes`) worker processes.

The visits of one turn know nothing of each other, so they may run at once and in any order. Their results are the same
to the last bit whoever carries them out: a visit is a pure function, and every worker computes with one thread.
"""

from __future__ import annotations

import contextlib
import functools
import queue
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal, Protocol, final

import torch

from polyrhythm.core.client import Visiting, expected_samples, visiting, work
from polyrhythm.core.interfaces import ClientData, Engine, Job, TakesCohorts
from polyrhythm.core.interfaces import Done as Answer
from polyrhythm.core.memory import ClientState
from polyrhythm.core.pace import Forecast
from polyrhythm.recipe import Recipe
from polyrhythm.slots.mechanism import Setup
from polyrhythm.wires import Assignment, Report

Mishap = Literal["", "worker_killed", "out_of_memory"]


@final
@dataclass(frozen=True, kw_only=True)
class Errand:
    """One visit to be carried out.

    Args:
        assignment: what to do.
        state: the client's, where it goes on from.
        pace: how long the visit would take.
        mishap: what happens by plan to the worker process that carries it out, at its first try, its second, and so on.
    """

    assignment: Assignment
    state: ClientState
    pace: Forecast | None = None
    mishap: Callable[[int], Mishap] | None = None


Done = tuple[ClientState, Report]
"""What came of an errand: the client's new state, and its report."""


@final
@dataclass(frozen=True, kw_only=True)
class Clients:
    """All that a visit needs beside its errand.

    Args:
        recipe: the method.
        setup: what is fixed for the run.
        engine: computes gradients; scratch.
        data: gives a client's samples.
    """

    recipe: Recipe
    setup: Setup
    engine: Engine
    data: Callable[[int], ClientData]

    def visit(self, errand: Errand) -> Done:
        """Carries out an errand; an error says where it happened."""
        with _named(errand):
            return work(*self._of(errand))

    def begin(self, errand: Errand) -> Visiting:
        """The same, with a pause where its steps may be taken by somebody else."""
        with _named(errand):
            return (yield from visiting(*self._of(errand)))

    def _of(self, errand: Errand) -> tuple[Recipe, Setup, ClientState, Assignment, ClientData, Engine, Forecast | None]:
        data = self.data(errand.assignment.client)
        return self.recipe, self.setup, errand.state, errand.assignment, data, self.engine, errand.pace

    def longest_first(self, errands: Sequence[Errand]) -> list[int]:
        """The places of errands, those with most samples to compute on first, so that no worker begins a long one last.

        Equal ones are in order, as are all where nobody can say how long they take.
        """
        lengths = [
            expected_samples(
                self.recipe, self.setup, e.state, e.assignment, self.data(e.assignment.client), self.engine
            )
            for e in errands
        ]
        return sorted(range(len(errands)), key=lambda i: -lengths[i])


@contextlib.contextmanager
def _named(errand: Errand) -> Iterator[None]:
    """Says of an error where it happened."""
    try:
        yield
    except Exception as error:
        what = errand.assignment
        error.add_note(f"this happened to client {what.client} in its visit {what.visit}, on version {what.version}")
        raise


class Executor(Protocol):
    """Carries out visits."""

    deaths: int
    """How many workers have died and were replaced."""

    def carry_out(self, errands: Sequence[Errand]) -> list[Done]:
        """What came of each errand, in their order. If visits fail, the error is that of the first of them."""

    def close(self) -> None:
        """Ends whatever was started."""


@final
class OneByOne:
    """One visit after the other, here.

    Args:
        clients: what visits need.
    """

    deaths = 0

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def carry_out(self, errands: Sequence[Errand]) -> list[Done]:
        return [self._clients.visit(errand) for errand in errands]

    def close(self) -> None:
        """Nothing to end."""


@final
class AtOnce:
    """All visits of a turn at once, here: their steps are taken together.

    Args:
        clients: what visits need; the engine must be one that takes cohorts.
    """

    deaths = 0

    def __init__(self, clients: Clients) -> None:
        engine: TakesCohorts = clients.engine  # type: ignore[assignment]
        self._clients, self._engine = clients, engine

    def carry_out(self, errands: Sequence[Errand]) -> list[Done]:
        waiting: dict[int, tuple[Visiting, Job]] = {}
        done: dict[int, Done] = {}
        for place, visit in enumerate(map(self._clients.begin, errands)):
            try:
                waiting[place] = visit, next(visit)
            except StopIteration as end:
                done[place] = end.value
        answers = self._engine.local_rounds([job for _, job in waiting.values()]) if waiting else ()
        for (place, (visit, _)), answer in zip(waiting.items(), answers, strict=True):
            if answer is not None:
                done[place] = _ended(visit, answer)
        # What was not taken is begun anew, one after the other: a visit is a pure function.
        return [done[place] if place in done else self._clients.visit(errand) for place, errand in enumerate(errands)]

    def close(self) -> None:
        """Nothing to end."""


def _ended(visit: Visiting, answer: Answer) -> Done:
    """What comes of a visit that is told what came of its steps."""
    try:
        visit.send(answer)
    except StopIteration as end:
        done: Done = end.value
        return done
    raise RuntimeError("a visit asks for its steps once")


class ReleasesLock(Engine, Protocol):
    """An engine that lets other threads run while it computes."""

    def twin(self) -> ReleasesLock:
        """Another engine of the same kind, for another thread."""


@final
class Threads:
    """Several threads, each with an engine of its own, for engines that let go of the interpreter's lock.

    Args:
        clients: what visits need; the engine must have `releases_lock`.
        workers: how many threads.
    """

    deaths = 0

    def __init__(self, clients: Clients, workers: int) -> None:
        engine: ReleasesLock = clients.engine  # type: ignore[assignment]
        self._clients = clients
        self._free: queue.SimpleQueue[Clients] = queue.SimpleQueue()
        for _ in range(workers):
            self._free.put(Clients(recipe=clients.recipe, setup=clients.setup, engine=engine.twin(), data=clients.data))
        # The number of threads that a kernel takes is a setting of each thread.
        self._pool = ThreadPoolExecutor(workers, "visits", initializer=functools.partial(torch.set_num_threads, 1))

    def carry_out(self, errands: Sequence[Errand]) -> list[Done]:
        if len(errands) == 1:
            return [self._clients.visit(errands[0])]
        waiting: dict[int, Future[Done]] = {}
        try:
            for place in self._clients.longest_first(errands):
                waiting[place] = self._pool.submit(self._visit, errands[place])
            return [waiting[place].result() for place in range(len(errands))]
        except BaseException:
            for future in waiting.values():
                future.cancel()
            raise

    def _visit(self, errand: Errand) -> Done:
        clients = self._free.get()
        try:
            return clients.visit(errand)
        finally:
            self._free.put(clients)

    def close(self) -> None:
        """Waits for the visits under way and ends the threads."""
        self._pool.shutdown(cancel_futures=True)
