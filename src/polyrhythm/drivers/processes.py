"""Visits in worker processes: the same numbers as in this one, to the last bit, for any number of workers.

Client states stay with the driver and travel with the visits, so any worker can take any visit. Samples and the weights
that a turn starts from lie in memory that all share; reports come back over a socket each.
"""

from __future__ import annotations

import itertools
import os
import selectors
import socket
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from polyrhythm.drivers import packing
from polyrhythm.drivers.executors import Clients, Done, Errand
from polyrhythm.drivers.nursery import Pool
from polyrhythm.drivers.worker import DEATHS, FromWorker, given_up

VECTORS = 8
"""How many vectors have room in the memory shared with each worker, which costs nothing until it is used."""


@final
@dataclass
class _Worker:
    """The driver's view of a worker."""

    number: int
    socket: socket.socket
    memory: packing.Lane
    place: int = -1  # of the errand that it is on

    def __post_init__(self) -> None:
        self.errands, reports = packing.lanes(self.memory)
        self._reports = itertools.cycle(reports)
        self.report = self.errands  # the lane of the errand that it is on; none yet

    def on(self, place: int) -> None:
        """Turns to another errand."""
        self.place, self.report = place, next(self._reports)


@final
class Processes:
    """A pool of worker processes, kept over all turns of a run. A worker that dies is replaced and its visit repeated.

    Args:
        clients: what visits need; must be the kind of thing that can be pickled.
        workers: how many, 1 or more.

    Raises:
        Unsendable: it cannot be pickled, or not be read in another process.
    """

    def __init__(self, clients: Clients, workers: int) -> None:
        self._clients = clients
        self.deaths = 0
        size, dtype = clients.setup.size, clients.setup.dtype
        self._room = 3 * (VECTORS * size * dtype.itemsize + 2**20)
        vectors = packing.memory(size * dtype.itemsize)
        try:
            self._board = packing.board(vectors, size, dtype)
            self._pool = Pool(clients, vectors)
        finally:
            os.close(vectors)
        self._workers = [self._started() for _ in range(workers)]

    @property
    def numbers(self) -> tuple[int, ...]:
        """The workers' process numbers."""
        return tuple(worker.number for worker in self._workers)

    def _started(self) -> _Worker:
        return _Worker(*self._pool.worker(self._room))

    def carry_out(self, errands: Sequence[Errand]) -> list[Done]:
        if not errands:
            return []
        return _Turn(self, errands).run()

    def close(self) -> None:
        """Kills the workers, and waits until all have gone."""
        for worker in self._workers:
            worker.socket.close()
        self._pool.close()
        self._workers = []


@final
class _Turn:
    """The errands of one turn on their way."""

    def __init__(self, pool: Processes, errands: Sequence[Errand]) -> None:
        self._pool, self._errands = pool, errands
        self._waiting = deque(pool._clients.longest_first(errands))
        self._done: dict[int, Done] = {}
        self._deaths = [0] * len(errands)
        self._failed: dict[int, Exception] = {}
        self._weights = errands[0].assignment.weights
        pool._board.copy_(self._weights)

    def run(self) -> list[Done]:
        """What came of each errand."""
        with selectors.DefaultSelector() as self._selector:
            for place in range(min(len(self._pool._workers), len(self._errands))):
                self._next(place)
            while self._selector.get_map():
                for key, _ in self._selector.select():
                    self._hear(key.data)
        if self._failed:
            raise self._failed[min(self._failed)]
        return [self._done[place] for place in range(len(self._errands))]

    def _next(self, number: int) -> None:
        """Gives an idle worker its next errand."""
        worker = self._pool._workers[number]
        while self._waiting:
            place = self._waiting.popleft()
            if place > min(self._failed, default=place):
                continue  # the run ends with an earlier one
            errand = self._errands[place]
            worker.on(place)
            self._selector.register(worker.socket, selectors.EVENT_READ, number)
            try:
                mishap = "" if errand.mishap is None else errand.mishap(self._deaths[place])
                packing.send(worker.socket, (errand.assignment, errand.state, mishap), self._weights, worker.errands)
            except (BrokenPipeError, ConnectionResetError):
                self._replace(number)
            return

    def _hear(self, number: int) -> None:
        """Hears a worker that has something to say, if only by dying."""
        worker = self._pool._workers[number]
        place, lane = worker.place, worker.report
        errand = self._errands[place]
        try:
            begun = packing.head(worker.socket)
            if begun.in_lane:  # as only a report can be: the worker need not wait until it is read
                self._selector.unregister(worker.socket)
                self._next(number)
                _, self._done[place] = packing.receive(worker.socket, lane=lane, begun=begun)
                return
            word, what = packing.receive(worker.socket, lane=lane, begun=begun)
            if word == "asks":
                assert errand.pace is not None
                packing.send(worker.socket, errand.pace.seconds(*what))
                return
        except (EOFError, BrokenPipeError, ConnectionResetError):
            self._replace(number)
            return
        self._selector.unregister(worker.socket)
        if word == "done":
            self._done[place] = what
        else:
            error, told = what
            error.__cause__ = FromWorker(told)
            self._failed[place] = error
        self._next(number)

    def _replace(self, number: int) -> None:
        """Starts another worker in the place of a dead one, with the same errand: a visit changes nothing until it is
        done, so it can be repeated."""
        dead = self._pool._workers[number]
        self._selector.unregister(dead.socket)
        dead.socket.close()
        self._deaths[dead.place] += 1
        self._pool.deaths += 1
        if self._deaths[dead.place] == DEATHS:
            raise given_up(self._errands[dead.place].assignment.client)
        self._waiting.appendleft(dead.place)
        self._pool._workers[number] = self._pool._started()
        self._next(number)
