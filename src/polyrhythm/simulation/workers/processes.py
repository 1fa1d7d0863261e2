"""Visits in worker processes: the same numbers as in this one, to the last bit, for any number of workers.

Client states stay with the driver and travel with the visits, so any worker can take any visit. Samples and the weights
that visits start from lie in memory that all share; reports come back over a socket each. The driver looks after the
workers whenever it has tasks for them or waits for one: until then each goes on with what it has.
"""

from __future__ import annotations

import itertools
import os
import selectors
import socket
from dataclasses import dataclass
from typing import final

from torch import Tensor

from polyrhythm.simulation.workers import packing
from polyrhythm.simulation.workers.executors import Clients, Elsewhere, VisitFuture
from polyrhythm.simulation.workers.fork_server import WorkerPool
from polyrhythm.simulation.workers.worker import DEATHS, FromWorker, given_up

VECTORS = 8
"""How many vectors have room in the memory shared with each worker, which costs nothing until it is used."""


@final
@dataclass(eq=False)
class _Worker:
    """The driver's view of a worker."""

    number: int
    socket: socket.socket
    memory: packing.SharedSegment
    future: VisitFuture | None = None  # of the task that it is on
    slot: int = -1  # that this task's weights are on

    def __post_init__(self) -> None:
        self.tasks, reports = packing.segments(self.memory)
        self._reports = itertools.cycle(reports)
        self.report = self.tasks  # the segment of the task that it is on; none yet

    def on(self, future: VisitFuture, slot: int) -> None:
        """Turns to another task."""
        self.future, self.slot, self.report = future, slot, next(self._reports)


@final
class Processes(Elsewhere):
    """A pool of worker processes, kept over all turns of a run. A worker that dies is replaced and its visit repeated.

    Args:
        clients: what visits need; must be the kind of thing that can be pickled.
        workers: how many, 1 or more.

    Raises:
        Unsendable: it cannot be pickled, or not be read in another process.
    """

    def __init__(self, clients: Clients, workers: int) -> None:
        super().__init__()
        size, dtype = clients.setup.size, clients.setup.dtype
        self._room = 3 * (VECTORS * size * dtype.itemsize + 2**20)
        # Workers may be on visits to as many versions; a slot costs nothing until it is used.
        vectors = packing.memory(workers * packing.board_bytes(size, dtype))
        try:
            self._slots = packing.slots(vectors, size, dtype)
            self._pool = WorkerPool(clients, vectors)
        finally:
            os.close(vectors)
        self._on_board: list[Tensor | None] = [None] * workers
        self._selector = selectors.DefaultSelector()
        self._workers: list[_Worker] = []
        for _ in range(workers):
            self._start_worker()

    @property
    def numbers(self) -> tuple[int, ...]:
        """The workers' process numbers."""
        return tuple(worker.number for worker in self._workers)

    def _start_worker(self) -> None:
        worker = _Worker(*self._pool.worker(self._room))
        self._workers.append(worker)
        self._selector.register(worker.socket, selectors.EVENT_READ, worker)

    def close(self) -> None:
        """Kills the workers, and waits until all have gone."""
        self._selector.close()
        for worker in self._workers:
            worker.socket.close()
        self._pool.close()
        # The memory that they shared goes with its last view, and has a file descriptor as long.
        self._workers, self._slots, self._on_board = [], [], []

    def _look(self, timeout: float | None) -> None:
        self._hand_out()
        for key, _ in self._selector.select(timeout):
            if key.data in self._workers:  # and was not replaced just now
                self._hear(key.data)
        self._hand_out()

    def _hand_out(self) -> None:
        for worker in tuple(self._workers):
            if worker.future is None and self._waiting:
                self._give(worker, self._waiting.take())

    def _give(self, worker: _Worker, future: VisitFuture) -> None:
        """Gives an idle worker an task."""
        task, weights = future.task, future.task.assignment.weights
        worker.on(future, self._slot(weights))
        try:
            told = (task.assignment, task.state, task.plan)
            packing.send(worker.socket, told, (worker.slot, weights), worker.tasks)
        except (BrokenPipeError, ConnectionResetError):
            self._replace(worker, future)

    def _slot(self, weights: Tensor) -> int:
        """The number of the slot that they are on, or are put on now: one that no visit under way started from."""
        for number, there in enumerate(self._on_board):
            if there is weights:
                return number
        taken = {worker.slot for worker in self._workers if worker.future is not None}
        number = next(n for n in range(len(self._slots)) if n not in taken)
        self._slots[number].copy_(weights)
        self._on_board[number] = weights
        return number

    def _hear(self, worker: _Worker) -> None:
        """Hears a worker that has something to say, if only by dying."""
        future, segment = worker.future, worker.report
        try:
            begun = packing.head(worker.socket)
            assert future is not None
            if begun.in_lane:  # as only a report can be: the worker need not wait until it is read
                worker.future = None
                self._hand_out()
                _, done = packing.receive(worker.socket, segment=segment, begun=begun)
                future.outcome.set_result(done)
                return
            word, what = packing.receive(worker.socket, segment=segment, begun=begun)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            self._replace(worker, future)
            return
        worker.future = None
        if word == "done":
            future.outcome.set_result(what)
        else:
            error, told = what
            error.__cause__ = FromWorker(told)
            future.outcome.set_exception(error)

    def _replace(self, dead: _Worker, future: VisitFuture | None) -> None:
        """Starts another worker in the place of a dead one, for the same task: a visit changes nothing until it is
        done, so it can be repeated."""
        self._selector.unregister(dead.socket)
        dead.socket.close()
        self._workers.remove(dead)
        self.deaths += 1
        if future is not None:
            future.deaths += 1
            if future.deaths == DEATHS:
                raise given_up(future.task.assignment.client)
        self._start_worker()
        if future is not None:
            self._give(self._workers[-1], future)
