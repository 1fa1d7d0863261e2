"""Runs at once, in processes of their own with one thread each; or one after the other, in this one."""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing import connection
from typing import Protocol, final

from polyrhythm.base.errors import UserError
from polyrhythm.studies.definition import Make
from polyrhythm.studies.running.performing import Ending, Job, perform

LIVES = 2
"""How many workers one run may take with it before it counts as failed."""
_GRACE = 10.0  # seconds that workers have to write down where they are


class Queue(Protocol):
    """Queue of what is to be done; what comes of a job may bring others."""

    def next(self) -> Job | None:
        """The next job; None if there is none before one that is under way has ended."""

    def version(self, job: Job, version: int, rounds: int | None, score: float | None) -> None:
        """Hears of every version of every job."""

    def over(self, job: Job, ending: Ending) -> None:
        """Hears how a job ended."""


def work_off(queue: Queue, makes: Mapping[str, Make], workers: int) -> None:
    """Does all that there is to do.

    Args:
        queue: of it.
        makes: make the experiments of jobs, by what they are of.
        workers: how many jobs are done at once; with one it is this process that does them.

    Raises:
        UserError: what makes experiments cannot be sent to another process, or not be imported there.
        KeyboardInterrupt: it was stopped; the runs under way are as after Ctrl-C.
    """
    if workers > 1:
        with _Processes(makes, workers) as several:
            several.work_off(queue)
        return
    while (job := queue.next()) is not None:
        queue.over(job, perform(job, makes[job.of], functools.partial(queue.version, job)))


@final
@dataclass
class _Worker:
    process: subprocess.Popen[bytes]
    line: connection.Connection
    job: Job | None = None


@final
class _Processes:
    """Worker processes. They are started when they are first needed, ignore Ctrl-C, and end when this process does."""

    def __init__(self, makes: Mapping[str, Make], workers: int) -> None:
        self._makes, self._most = _packed(makes), workers
        self._workers: list[_Worker] = []
        self._again: deque[Job] = deque()
        self._deaths: dict[tuple[str, int], int] = {}

    def __enter__(self) -> _Processes:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Ends all workers; those that are at work first write down where they are."""
        for worker in self._workers:
            if worker.job is None:
                worker.line.close()
            else:
                worker.process.terminate()
        end = time.monotonic() + _GRACE
        for worker in self._workers:
            try:
                worker.process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
            worker.line.close()
        self._workers = []

    def work_off(self, queue: Queue) -> None:
        """Does all that there is to do."""
        while True:
            self._set_to_work(queue)
            busy = [worker for worker in self._workers if worker.job is not None]
            if not busy:
                return
            for line in connection.wait([worker.line for worker in busy]):
                self._hear(next(worker for worker in busy if worker.line is line), queue)

    def _set_to_work(self, queue: Queue) -> None:
        while sum(worker.job is not None for worker in self._workers) < self._most:
            job = self._again.popleft() if self._again else queue.next()
            if job is None:
                return
            idle = next((worker for worker in self._workers if worker.job is None), None) or self._started()
            idle.job = job
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # its death is heard of next
                idle.line.send(job)

    def _started(self) -> _Worker:
        here, there = socket.socketpair()
        code = f"import sys; sys.path[:] = {sys.path!r}\nfrom polyrhythm.studies.running import workers\n"
        code += f"workers.main({there.fileno()})"
        process = subprocess.Popen([sys.executable, "-c", code], pass_fds=[there.fileno()], stdin=subprocess.DEVNULL)
        there.close()
        worker = _Worker(process, connection.Connection(here.detach()))
        self._workers.append(worker)
        worker.line.send(self._makes)
        return worker

    def _hear(self, worker: _Worker, queue: Queue) -> None:
        job = worker.job
        assert job is not None
        try:
            word, told = worker.line.recv()
        except (EOFError, ConnectionResetError):
            self._bury(worker, job, queue)
            return
        if word == "version":
            queue.version(job, *told)
        elif word == "unreadable":
            raise _unsendable(f"a worker process cannot read what makes experiments: {told}")
        else:
            worker.job = None
            queue.over(job, told)

    def _bury(self, worker: _Worker, job: Job, queue: Queue) -> None:
        """A worker has died. Its job is begun again where its run had got to, but not for ever."""
        worker.line.close()
        code = worker.process.wait()
        self._workers.remove(worker)
        key = (job.name, job.seed)
        self._deaths[key] = self._deaths.get(key, 0) + 1
        if self._deaths[key] < LIVES:
            self._again.append(job)
            return
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        reason = f"{LIVES} processes died in it ({how}): perhaps for lack of memory"
        queue.over(job, Ending(state="died", reason=reason))


def _packed(makes: Mapping[str, Make]) -> bytes:
    try:
        return pickle.dumps(dict(makes))
    except Exception as error:  # whatever a user's own class does when it is pickled
        raise _unsendable(f"what makes experiments cannot be sent to another process: {error}") from None


def _unsendable(found: str) -> UserError:
    return UserError(
        found,
        expected="a function at the top of a module that can be imported",
        why="each worker is a process of its own",
        fix="move it into a module, or use one worker (workers=1)",
    )


def main(descriptor: int) -> None:
    """A worker process: one job after the other."""
    import torch

    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver decides
    signal.signal(signal.SIGTERM, _stop)
    line = connection.Connection(descriptor)
    _end_with(line)
    try:
        makes = pickle.loads(line.recv())
    except EOFError:
        return
    except Exception as error:  # whatever a user's own module does when it is imported
        line.recv()
        line.send(("unreadable", f"{type(error).__name__}: {error}"))
        return
    with contextlib.suppress(EOFError, KeyboardInterrupt, BrokenPipeError):
        while True:
            job: Job = line.recv()
            line.send(("over", perform(job, makes[job.of], lambda *told: line.send(("version", told)))))


def _stop(*_: object) -> None:
    raise KeyboardInterrupt("the study was stopped")


def _end_with(line: connection.Connection) -> None:
    """Ends this process at once when the driver has gone: its runs are then as if killed, and can go on."""

    def watch() -> None:
        poller = select.poll()
        poller.register(line.fileno(), select.POLLHUP)
        poller.poll()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
