"""Where worker processes come from.

    driver ── fork server ── pool ── workers

The *fork server* is one small process that has imported torch, told it to use one thread, and computed nothing. For
every run it forks a *pool*, which reads what visits need (the recipe, the model, all the samples) once, and forks the
workers from there: in milliseconds, with the samples in memory that all share. Forking the driver itself would not do:
it has threads, perhaps a GPU, and kernels that hang in a fork after they have once used several threads. Nor would
`multiprocessing`, which would run the user's own script again in every worker.

Each of them ends when the socket to the driver closes, whatever became of the driver. All ignore Ctrl-C: the driver
decides.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor

from polyrhythm.base.threads import keep_freed_memory
from polyrhythm.simulation.workers import packing
from polyrhythm.simulation.workers.executors import Clients
from polyrhythm.simulation.workers.shared_base import MOST, number_of, shared_base
from polyrhythm.simulation.workers.worker import Unsendable, out_of_memory, sendable, settings, settle

_RAISE, _FORK = b"r", b"f"


@final
class ForkServer:
    """The driver's end of the fork server process, started when it is first needed; ends with this process."""

    def __init__(self) -> None:
        here, there = socket.socketpair()
        # Packages are looked for where the driver finds them, and a worker never reads the driver's input.
        code = f"import sys; sys.path[:] = {sys.path!r}\nfrom polyrhythm.simulation.workers import fork_server\n"
        code += f"fork_server.main({there.fileno()})"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code], pass_fds=[there.fileno()], stdin=subprocess.DEVNULL
        )
        there.close()
        self._control = here

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def pool(self) -> socket.socket:
        """The driver's end of a new pool."""
        here, there = socket.socketpair()
        with there:
            socket.send_fds(self._control, [_RAISE], [there.fileno()])
        return here

    def close(self) -> None:
        """Ends the process, and waits until it has gone."""
        self._control.close()
        self._process.wait()


_lock = threading.Lock()
_fork_server: ForkServer | None = None
_owner = 0


def fork_server() -> ForkServer:
    """This process's fork server."""
    global _fork_server, _owner
    with _lock:
        if _fork_server is None or _owner != os.getpid() or not _fork_server.alive:
            _fork_server, _owner = ForkServer(), os.getpid()
        return _fork_server


@atexit.register
def close() -> None:
    """Ends this process's fork server, if any. It would end by itself, but somebody may be counting processes."""
    global _fork_server
    with _lock:
        if _fork_server is not None and _owner == os.getpid():
            _fork_server.close()
        _fork_server = None


@final
class WorkerPool:
    """The driver's end of a pool.

    Args:
        clients: what visits need.
        vectors: the memory of the slots, on which the driver writes the weights that visits start from.

    Raises:
        Unsendable: some of it cannot be sent to another process.
    """

    def __init__(self, clients: Clients, vectors: int) -> None:
        at_rest = getattr(clients.engine, "at_rest", None)
        base = [] if at_rest is None else shared_base(at_rest())
        lent = {storage.data_ptr(): (number, storage.nbytes()) for number, storage in enumerate(base)}
        try:
            everything = packing.put((clients, settings()), lent)
        except Exception as error:  # whatever a user's own class does when it is pickled
            raise Unsendable(f"{type(error).__name__}: {error}") from error
        try:
            self._control = fork_server().pool()
            packing.send(self._control, (sys.path, os.getcwd()))
            socket.send_fds(self._control, [_FORK], [everything, vectors, *map(number_of, base)])
        finally:
            os.close(everything)
        try:
            problem: str = packing.receive(self._control)
        except EOFError:
            raise RuntimeError("the process from which workers are forked died while it read the samples") from None
        if problem:
            self.close()
            raise Unsendable(problem)

    def worker(self, room: int) -> tuple[int, socket.socket, packing.SharedSegment]:
        """Forks a worker; gives its process number, the driver's end of its socket, and a segment of so many bytes."""
        here, there = socket.socketpair()
        memory = packing.memory(room)
        try:
            socket.send_fds(self._control, [_FORK], [there.fileno(), memory])
            segment = packing.shared(memory)
        finally:
            os.close(memory)
            there.close()
        number: int = packing.receive(self._control)
        return number, here, segment

    def close(self) -> None:
        """Kills the workers, and waits until all have gone."""
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)
            while self._control.recv(4096):
                pass
        self._control.close()


def main(descriptor: int) -> None:
    """The fork server process."""
    torch.set_num_threads(1)  # first of all: no kernel has started a thread yet, and none will
    _import_early()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the pools, so they leave nothing behind
    control = socket.socket(fileno=descriptor)
    while True:
        word, given, _, _ = socket.recv_fds(control, 1, 1)
        if not word:
            os._exit(0)
        if os.fork() == 0:
            control.close()
            _without_return(_pool, socket.socket(fileno=given[0]))
        os.close(given[0])


def _import_early() -> None:
    """What every pool would import: whatever a recipe, a model and samples may be made of."""
    import polyrhythm.data
    import polyrhythm.engines.selection
    import polyrhythm.methods.recipe
    import polyrhythm.models.catalogue  # noqa: F401


def _without_return(act: Any, *arguments: Any) -> None:
    """Runs a forked process to its end: nothing of what its parent was doing goes on in it."""
    try:
        act(*arguments)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _pool(control: socket.socket) -> None:
    """A pool process."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # so that no number is given away before it is waited for
    path, folder = packing.receive(control)
    sys.path[:] = path
    with contextlib.suppress(OSError):
        os.chdir(folder)
    _, given, _, _ = socket.recv_fds(control, 1, 2 + MOST)
    try:
        clients, told = packing.get(given[0], given[2:])
        settle(told)
        slots = packing.slots(given[1], clients.setup.size, clients.setup.dtype)
    except Exception as error:  # whatever a user's own class does when it is unpickled
        packing.send(control, f"{type(error).__name__}: {error}")
        return
    gc.freeze()  # else the first collection of every worker would copy all pages that hold objects
    packing.send(control, "")
    children: list[int] = []
    while True:
        word, given, _, _ = socket.recv_fds(control, 1, 2)
        if not word:
            break
        if (number := os.fork()) == 0:
            control.close()
            _without_return(serve, socket.socket(fileno=given[0]), clients, slots, packing.shared(given[1]))
        for descriptor in given:
            os.close(descriptor)
        children.append(number)
        packing.send(control, number)
    for number in children:
        os.kill(number, signal.SIGKILL)
        os.waitpid(number, 0)


def serve(driver: socket.socket, clients: Clients, slots: Sequence[Tensor], segment: packing.SharedSegment) -> None:
    """A worker process: one task after the other."""
    torch.set_num_threads(1)
    keep_freed_memory()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a user's data set may start processes and wait for them
    tasks, reports = packing.segments(segment)
    for segment in itertools.cycle(reports):
        try:
            assignment, state, plan = packing.receive(driver, slots, tasks)
        except EOFError:
            return
        try:
            done = clients.visit(clients.taken_on(assignment, state, plan))
            packing.send(driver, ("done", done), segment=segment)
        except BrokenPipeError:
            return
        except Exception as error:
            if out_of_memory(error):
                os._exit(1)  # as if the system had killed it: perhaps a fresh worker has more
            packing.send(driver, ("failed", sendable(error)))
