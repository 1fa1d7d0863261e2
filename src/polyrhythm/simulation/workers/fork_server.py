"""Where worker processes come from.

    driver ── nursery ── pool ── workers

The *nursery* is one small process that has imported torch, told it to use one thread, and computed nothing. For every
run it forks a *pool*, which reads what visits need (the recipe, the model, all the samples) once, and forks the
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
from polyrhythm.simulation.workers.worker import Unsendable, out_of_memory, sendable, settings, settle

_RAISE, _FORK = b"r", b"f"


@final
class Nursery:
    """The driver's end of the nursery process, started when it is first needed; ends with this process."""

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
_nursery: Nursery | None = None
_owner = 0


def nursery() -> Nursery:
    """This process's nursery."""
    global _nursery, _owner
    with _lock:
        if _nursery is None or _owner != os.getpid() or not _nursery.alive:
            _nursery, _owner = Nursery(), os.getpid()
        return _nursery


@atexit.register
def close() -> None:
    """Ends this process's nursery, if there is one. It would end by itself, but somebody may be counting processes."""
    global _nursery
    with _lock:
        if _nursery is not None and _owner == os.getpid():
            _nursery.close()
        _nursery = None


@final
class Pool:
    """The driver's end of a pool.

    Args:
        clients: what visits need.
        vectors: the memory of the boards, on which the driver writes the weights that visits start from.

    Raises:
        Unsendable: some of it cannot be sent to another process.
    """

    def __init__(self, clients: Clients, vectors: int) -> None:
        try:
            everything = packing.put((clients, settings()))
        except Exception as error:  # whatever a user's own class does when it is pickled
            raise Unsendable(f"{type(error).__name__}: {error}") from error
        try:
            self._control = nursery().pool()
            packing.send(self._control, (sys.path, os.getcwd()))
            socket.send_fds(self._control, [_FORK], [everything, vectors])
        finally:
            os.close(everything)
        try:
            problem: str = packing.receive(self._control)
        except EOFError:
            raise RuntimeError("the process from which workers are forked died while it read the samples") from None
        if problem:
            self.close()
            raise Unsendable(problem)

    def worker(self, room: int) -> tuple[int, socket.socket, packing.Lane]:
        """Forks a worker; gives its process number, the driver's end of its socket, and a lane of so many bytes."""
        here, there = socket.socketpair()
        memory = packing.memory(room)
        try:
            socket.send_fds(self._control, [_FORK], [there.fileno(), memory])
            lane = packing.shared(memory)
        finally:
            os.close(memory)
            there.close()
        number: int = packing.receive(self._control)
        return number, here, lane

    def close(self) -> None:
        """Kills the workers, and waits until all have gone."""
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)
            while self._control.recv(4096):
                pass
        self._control.close()


def main(descriptor: int) -> None:
    """The nursery process."""
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
    _, given, _, _ = socket.recv_fds(control, 1, 2)
    try:
        clients, told = packing.get(given[0])
        settle(told)
        boards = packing.boards(given[1], clients.setup.size, clients.setup.dtype)
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
            _without_return(serve, socket.socket(fileno=given[0]), clients, boards, packing.shared(given[1]))
        for descriptor in given:
            os.close(descriptor)
        children.append(number)
        packing.send(control, number)
    for number in children:
        os.kill(number, signal.SIGKILL)
        os.waitpid(number, 0)


def serve(driver: socket.socket, clients: Clients, boards: Sequence[Tensor], lane: packing.Lane) -> None:
    """A worker process: one errand after the other."""
    torch.set_num_threads(1)
    keep_freed_memory()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a user's data set may start processes and wait for them
    errands, reports = packing.lanes(lane)
    for lane in itertools.cycle(reports):
        try:
            assignment, state, plan = packing.receive(driver, boards, errands)
        except EOFError:
            return
        try:
            done = clients.visit(clients.taken_on(assignment, state, plan))
            packing.send(driver, ("done", done), lane=lane)
        except BrokenPipeError:
            return
        except Exception as error:
            if out_of_memory(error):
                os._exit(1)  # as if the system had killed it: perhaps a fresh worker has more
            packing.send(driver, ("failed", sendable(error)))
