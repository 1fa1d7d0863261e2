"""Visits in worker processes: the same numbers as in this one, to the last bit, for any number of workers.

Client states stay with the driver and travel with the visits, so any worker can take any visit. Samples and the weights
that visits start from lie in memory that all share; reports come back over a socket each. The driver looks after the
workers whenever it has errands for them or waits for one: until then each goes on with what it has.
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
from polyrhythm.simulation.workers.executors import Clients, Elsewhere, Ticket
from polyrhythm.simulation.workers.fork_server import Pool
from polyrhythm.simulation.workers.worker import DEATHS, FromWorker, given_up

VECTORS = 8
"""How many vectors have room in the memory shared with each worker, which costs nothing until it is used."""


@final
@dataclass(eq=False)
class _Worker:
    """The driver's view of a worker."""

    number: int
    socket: socket.socket
    memory: packing.Lane
    ticket: Ticket | None = None  # of the errand that it is on
    board: int = -1  # that this errand's weights are on

    def __post_init__(self) -> None:
        self.errands, reports = packing.lanes(self.memory)
        self._reports = itertools.cycle(reports)
        self.report = self.errands  # the lane of the errand that it is on; none yet

    def on(self, ticket: Ticket, board: int) -> None:
        """Turns to another errand."""
        self.ticket, self.board, self.report = ticket, board, next(self._reports)


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
        # Workers may be on visits to as many versions; a board costs nothing until it is used.
        vectors = packing.memory(workers * packing.board_bytes(size, dtype))
        try:
            self._boards = packing.boards(vectors, size, dtype)
            self._pool = Pool(clients, vectors)
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
        self._workers = []

    def _look(self, timeout: float | None) -> None:
        self._hand_out()
        for key, _ in self._selector.select(timeout):
            if key.data in self._workers:  # and was not replaced just now
                self._hear(key.data)
        self._hand_out()

    def _hand_out(self) -> None:
        for worker in tuple(self._workers):
            if worker.ticket is None and self._waiting:
                self._give(worker, self._waiting.take())

    def _give(self, worker: _Worker, ticket: Ticket) -> None:
        """Gives an idle worker an errand."""
        errand, weights = ticket.errand, ticket.errand.assignment.weights
        worker.on(ticket, self._board(weights))
        try:
            told = (errand.assignment, errand.state, errand.plan)
            packing.send(worker.socket, told, (worker.board, weights), worker.errands)
        except (BrokenPipeError, ConnectionResetError):
            self._replace(worker, ticket)

    def _board(self, weights: Tensor) -> int:
        """The number of the board that they are on, or are put on now: one that no visit under way started from."""
        for number, there in enumerate(self._on_board):
            if there is weights:
                return number
        taken = {worker.board for worker in self._workers if worker.ticket is not None}
        number = next(n for n in range(len(self._boards)) if n not in taken)
        self._boards[number].copy_(weights)
        self._on_board[number] = weights
        return number

    def _hear(self, worker: _Worker) -> None:
        """Hears a worker that has something to say, if only by dying."""
        ticket, lane = worker.ticket, worker.report
        try:
            begun = packing.head(worker.socket)
            assert ticket is not None
            if begun.in_lane:  # as only a report can be: the worker need not wait until it is read
                worker.ticket = None
                self._hand_out()
                _, done = packing.receive(worker.socket, lane=lane, begun=begun)
                ticket.outcome.set_result(done)
                return
            word, what = packing.receive(worker.socket, lane=lane, begun=begun)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            self._replace(worker, ticket)
            return
        worker.ticket = None
        if word == "done":
            ticket.outcome.set_result(what)
        else:
            error, told = what
            error.__cause__ = FromWorker(told)
            ticket.outcome.set_exception(error)

    def _replace(self, dead: _Worker, ticket: Ticket | None) -> None:
        """Starts another worker in the place of a dead one, for the same errand: a visit changes nothing until it is
        done, so it can be repeated."""
        self._selector.unregister(dead.socket)
        dead.socket.close()
        self._workers.remove(dead)
        self.deaths += 1
        if ticket is not None:
            ticket.deaths += 1
            if ticket.deaths == DEATHS:
                raise given_up(ticket.errand.assignment.client)
        self._start_worker()
        if ticket is not None:
            self._give(self._workers[-1], ticket)
