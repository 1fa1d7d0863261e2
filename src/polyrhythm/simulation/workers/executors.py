"""Who carries out visits: the driver itself, threads, or (in `processes` and `on_ray`) worker processes.

What comes of a visit follows from its task alone, so visits may run at once and in any order. Their results are the
same to the last bit whoever carries them out: a visit is a pure function, and every worker computes with one thread.

An executor is handed tasks and gives futures; what came of an task is asked for by its future, as late as it is
needed, while workers go on.
"""

from __future__ import annotations

import contextlib
import functools
import heapq
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, TypeVar, final

import torch

from polyrhythm.base.messages import Assignment, Report
from polyrhythm.core.client import visiting, work
from polyrhythm.core.client_state import ClientState
from polyrhythm.core.forecast import Forecast
from polyrhythm.core.protocols import ClientData, Engine
from polyrhythm.core.training import Visiting
from polyrhythm.core.visit_plan import VisitPlan, plan_visit
from polyrhythm.methods.mechanism import Setup
from polyrhythm.methods.recipe import Recipe


@final
@dataclass(frozen=True, kw_only=True)
class VisitTask:
    """One visit to be carried out.

    Args:
        assignment: what to do.
        state: the client's, where it goes on from.
        plan: of the visit.
        data: the client's samples.
        urgency: when its end is needed, in virtual seconds, and less its length in samples: the least is begun first,
            and of those that are needed at once the longest, so that no worker begins a long one last.
    """

    assignment: Assignment
    state: ClientState
    plan: VisitPlan
    data: ClientData
    urgency: tuple[float, int] = (0.0, 0)


Done = tuple[ClientState, Report]
"""What came of an task: the client's new state, and its report."""


@final
@dataclass(frozen=True, kw_only=True)
class Clients:
    """All that a visit needs beside its task.

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

    def task(
        self,
        assignment: Assignment,
        state: ClientState,
        *,
        pace: Forecast | None = None,
    ) -> VisitTask:
        """A visit that is planned now; an error says where it happened."""
        with named(assignment):
            data = self.data(assignment.client)
            plan = plan_visit(self.recipe, self.setup, state, assignment, data, self.engine, pace)
        return VisitTask(assignment=assignment, state=state, plan=plan, data=data)

    def taken_on(self, assignment: Assignment, state: ClientState, plan: VisitPlan) -> VisitTask:
        """A visit that was planned elsewhere."""
        return VisitTask(assignment=assignment, state=state, plan=plan, data=self.data(assignment.client))

    def visit(self, task: VisitTask) -> Done:
        """Carries out an task; an error says where it happened."""
        with named(task.assignment):
            return work(*self._of(task))

    def begin(self, task: VisitTask) -> Visiting:
        """The same, with a pause where its steps may be taken by somebody else."""
        with named(task.assignment):
            return (yield from visiting(*self._of(task)))

    def _of(self, task: VisitTask) -> tuple[Recipe, Setup, ClientState, Assignment, ClientData, Engine, VisitPlan]:
        return self.recipe, self.setup, task.state, task.assignment, task.data, self.engine, task.plan


@contextlib.contextmanager
def named(what: Assignment) -> Iterator[None]:
    """Says of an error where it happened."""
    try:
        yield
    except Exception as error:
        error.add_note(f"this happened to client {what.client} in its visit {what.visit}, on version {what.version}")
        raise


@final
class VisitFuture:
    """Stands for what comes of an task.

    Args:
        task: what is to be done.
    """

    def __init__(self, task: VisitTask) -> None:
        self.task = task
        self.outcome: Future[Done] = Future()
        self.deaths = 0  # workers that it has killed


@final
class Waiting:
    """Tickets that no worker has taken yet, the most urgent first, and of equal ones the first.

    Args:
        size: how many of those that come together are taken together; see `groups`.
    """

    def __init__(self, size: int = 1) -> None:
        self._heap: list[tuple[tuple[float, int], int, Sequence[VisitFuture]]] = []
        self._size, self._made = size, 0
        self._lock = threading.Lock()

    def add(self, tasks: Sequence[VisitTask]) -> list[VisitFuture]:
        """Gives each task a future."""
        futures = [VisitFuture(task) for task in tasks]
        for group in groups(futures, self._size):
            self.put_back(group)
        return futures

    def put_back(self, group: Sequence[VisitFuture]) -> None:
        """Has futures wait that were taken together, and go on together."""
        with self._lock:
            self._made += 1
            heapq.heappush(self._heap, (min(future.task.urgency for future in group), self._made, group))

    def __bool__(self) -> bool:
        return bool(self._heap)

    def take(self) -> VisitFuture:
        """The next one, where each is alone; there must be one."""
        (future,) = self.take_together()
        return future

    def take_together(self) -> Sequence[VisitFuture]:
        """The next ones; there must be some."""
        with self._lock:
            return heapq.heappop(self._heap)[-1]


Given = TypeVar("Given")


def groups(given: Sequence[Given], size: int | None) -> list[Sequence[Given]]:
    """Things in the order in which they were given, so many in a group; all in one if None.

    What is stacked may depend in its last bits on what is stacked with it. So groups follow from what is begun at once
    and from their size, and never from who carries them out.
    """
    step = size or max(1, len(given))
    return [given[place : place + step] for place in range(0, len(given), step)]


class Executor(Protocol):
    """Carries out visits."""

    goes_on: bool
    """Whether visits are under way while the driver does something else."""

    deaths: int
    """How many workers have died and were replaced."""

    def start(self, tasks: Sequence[VisitTask]) -> Sequence[VisitFuture]:
        """Takes tasks, and gives a future for each."""

    def done(self, future: VisitFuture) -> Done:
        """What came of an task, once it is done; or the error."""

    def close(self) -> None:
        """Ends whatever was started."""


class Elsewhere(ABC):
    """An executor whose workers are other processes. It looks after them whenever there are tasks, or one is waited
    for; until then each goes on with what it has.

    Args:
        together: how many tasks that are started at once a worker takes together.
    """

    goes_on = True

    def __init__(self, together: int = 1) -> None:
        self.deaths = 0
        self._waiting = Waiting(together)

    def start(self, tasks: Sequence[VisitTask]) -> Sequence[VisitFuture]:
        futures = self._waiting.add(tasks)
        self._look(0)
        return futures

    def done(self, future: VisitFuture) -> Done:
        while not future.outcome.done():
            self._look(None)
        return future.outcome.result()

    @abstractmethod
    def close(self) -> None:
        """Ends all workers."""

    @abstractmethod
    def _look(self, timeout: float | None) -> None:
        """Hears those workers that have something to say, and gives idle ones what there is to do.

        Args:
            timeout: seconds to wait for the first of them; None for as long as it takes.
        """


@final
class OneByOne:
    """One visit after the other, here, when it is asked for.

    Args:
        clients: what visits need.
    """

    goes_on = False
    deaths = 0

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def start(self, tasks: Sequence[VisitTask]) -> Sequence[VisitFuture]:
        return [VisitFuture(task) for task in tasks]

    def done(self, future: VisitFuture) -> Done:
        return self._clients.visit(future.task)

    def close(self) -> None:
        """Nothing to end."""


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

    goes_on = True
    deaths = 0

    def __init__(self, clients: Clients, workers: int) -> None:
        engine: ReleasesLock = clients.engine  # type: ignore[assignment]
        self._waiting = Waiting()
        self._free: queue.SimpleQueue[Clients] = queue.SimpleQueue()
        for _ in range(workers):
            self._free.put(Clients(recipe=clients.recipe, setup=clients.setup, engine=engine.twin(), data=clients.data))
        # The number of threads that a kernel takes is a setting of each thread.
        self._pool = ThreadPoolExecutor(workers, "visits", initializer=functools.partial(torch.set_num_threads, 1))

    def start(self, tasks: Sequence[VisitTask]) -> Sequence[VisitFuture]:
        futures = self._waiting.add(tasks)
        for _ in futures:
            self._pool.submit(self._visit)
        return futures

    def done(self, future: VisitFuture) -> Done:
        return future.outcome.result()

    def _visit(self) -> None:
        """Carries out whatever is most urgent now."""
        future, clients = self._waiting.take(), self._free.get()
        try:
            future.outcome.set_result(clients.visit(future.task))
        except BaseException as error:
            future.outcome.set_exception(error)
        finally:
            self._free.put(clients)

    def close(self) -> None:
        """Waits for the visits under way and ends the threads."""
        self._pool.shutdown(cancel_futures=True)
