"""Visits on a Ray cluster: the same numbers as in this process, to the last bit, for any number of workers.

Samples are put into Ray's object store once, and every actor of a machine reads them there; so are the weights that
visits start from. Client states stay with the driver and travel with the visits, so any actor can take any visit.
Nothing here imports Ray before somebody asks for it.
"""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections import ChainMap
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from polyrhythm import __version__
from polyrhythm.drivers import packing
from polyrhythm.drivers.executors import Clients, Elsewhere, Errand, Mishap, Ticket
from polyrhythm.drivers.worker import (
    DEATHS,
    FromWorker,
    Unsendable,
    befall,
    given_up,
    out_of_memory,
    sendable,
    settings,
    settle,
)
from polyrhythm.errors import UserError

QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
"""Settings of Ray: it reports to nobody, and takes the environment as it is. Whoever sets them otherwise is heard."""

VERSIONS = 8
"""Of how many versions the weights are kept in the object store, for visits that start late."""


@final
@dataclass
class _Way:
    """An errand on its way.

    Args:
        ticket: of the errand.
        actor: who carries it out.
        told: forecasts that the actor is told: seconds by samples and forward samples.
    """

    ticket: Ticket
    actor: Any
    told: dict[tuple[int, int], float]


@final
class OnRay(Elsewhere):
    """A pool of actors, kept over all turns of a run. One that dies is replaced and its visit repeated.

    Args:
        clients: what visits need.
        workers: how many actors, one processor each.
        address: of a cluster; None to start one on this machine, which ends with the run. Where the process is
            connected to a cluster already, that one is used.

    Raises:
        UserError: Ray is not installed, the cluster cannot be reached, or has too few processors, or other versions.
        Unsendable: what visits need cannot be pickled, or not be read in another process.
    """

    def __init__(self, clients: Clients, workers: int, address: str | None = None) -> None:
        super().__init__()
        self._ray = ray = _imported()
        self._started = not ray.is_initialized()
        if self._started:
            _connect(ray, workers, address)
        self._boards: dict[int, tuple[Tensor, Any]] = {}
        self._actors: list[Any] = []
        self._ways = dict[Any, _Way]()
        try:
            _check_processors(ray, workers)
            self._make = ray.remote(num_cpus=1, max_restarts=0)(Visitor)
            self._needs = [ray.put(part) for part in _needs(clients)]
            self._actors = [self._actor() for _ in range(workers)]
            problems = ray.get([actor.problem.remote() for actor in self._actors])
            if problem := next(filter(None, problems), ""):
                raise Unsendable(problem)
            self._idle = list(reversed(self._actors))
        except BaseException:
            self.close()
            raise

    def _actor(self) -> Any:
        return self._make.remote(__version__, sys.path, os.getcwd(), *self._needs)

    def _look(self, timeout: float | None) -> None:
        self._hand_out()
        ready, _ = self._ray.wait(list(self._ways), timeout=timeout) if self._ways else ((), ())
        for what in ready:
            self._hear(what)
        self._hand_out()

    def _hand_out(self) -> None:
        while self._waiting and self._idle:
            ticket = self._waiting.take()
            self._visit(_Way(ticket, self._idle.pop(), dict(ticket.errand.known)))

    def _visit(self, way: _Way) -> None:
        """Sends an actor on its way."""
        errand, weights = way.ticket.errand, way.ticket.errand.assignment.weights
        mishap: Mishap = "" if errand.mishap is None else errand.mishap(way.ticket.deaths)
        asked = None if errand.pace is None else way.told
        sent = packing.rolled((errand.assignment, errand.state, mishap, asked), board=(0, weights))
        self._ways[way.actor.visit.remote(self._board(weights), sent)] = way

    def _board(self, weights: Tensor) -> Any:
        """What Ray calls the weights that visits start from; of each version they are put there once."""
        if id(weights) not in self._boards:
            if len(self._boards) == VERSIONS:
                del self._boards[next(iter(self._boards))]
            self._boards[id(weights)] = weights, self._ray.put(weights.view(torch.uint8).numpy())
        return self._boards[id(weights)][1]

    def _hear(self, ready: Any) -> None:
        """Hears an actor that has something to say, if only by dying."""
        way = self._ways.pop(ready)
        ticket = way.ticket
        try:
            answer = self._ray.get(ready)
        except self._ray.exceptions.RayError:
            self._replace(way)
            return
        word, what = packing.unrolled(packing.on_border(answer, writable=True))
        if word == "asks":
            assert ticket.errand.pace is not None
            way.told[what] = ticket.errand.pace.seconds(*what)
            self._visit(way)
            return
        self._idle.append(way.actor)
        if word == "done":
            ticket.outcome.set_result(what)
        else:
            error, told = what
            error.__cause__ = FromWorker(told)
            ticket.outcome.set_exception(error)

    def _replace(self, way: _Way) -> None:
        """Starts another actor in the place of a dead one: a visit changes nothing until it is done."""
        self.deaths += 1
        way.ticket.deaths += 1
        if way.ticket.deaths == DEATHS:
            raise given_up(way.ticket.errand.assignment.client)
        self._ray.kill(way.actor)
        fresh = self._actor()
        self._actors[self._actors.index(way.actor)] = fresh
        self._visit(_Way(way.ticket, fresh, way.told))

    def close(self) -> None:
        """Ends the actors, and the cluster if it was started here."""
        for actor in self._actors:
            self._ray.kill(actor)
        self._actors, self._boards, self._ways, self._needs = [], {}, {}, []
        if self._started:
            self._ray.shutdown()


@final
class Visitor:
    """An actor: one errand after the other, in a process of its own.

    Args:
        version: of the driver's polyrhythm.
        path: where the driver looks for modules.
        folder: where the driver runs.
        data: what gives a client's samples, rolled.
        rest: everything else that visits need, rolled.
    """

    def __init__(self, version: str, path: list[str], folder: str, data: np.ndarray, rest: np.ndarray) -> None:
        sys.path += [place for place in path if place not in sys.path]
        if os.path.isdir(folder):
            os.chdir(folder)
        self._problem = ""
        if version != __version__:
            self._problem = f"polyrhythm {version} sends visits to a machine with polyrhythm {__version__}"
            return
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of torch: samples that all actors of a machine read cannot be written
                holdings = packing.unrolled(packing.on_border(data, writable=False))
            (recipe, setup, engine), told = packing.unrolled(packing.on_border(rest, writable=True))
        except Exception as error:  # whatever a user's own class does when it is unpickled
            self._problem = f"{type(error).__name__}: {error}"
            return
        settle(told)
        self._clients = Clients(recipe=recipe, setup=setup, engine=engine, data=holdings)

    def problem(self) -> str:
        """What keeps this actor from carrying out visits; empty if nothing does."""
        return self._problem

    def visit(self, board: np.ndarray, sent: np.ndarray) -> np.ndarray:
        """Carries out an errand, rolled as what is answered: "done", "failed", or "asks" for a forecast."""
        dtype = self._clients.setup.dtype
        weights = torch.from_numpy(packing.on_border(board, writable=True)).view(dtype)
        assignment, state, mishap, told = packing.unrolled(packing.on_border(sent, writable=True), [weights])
        answer: tuple[str, Any]
        try:
            befall(mishap)
            pace = None if told is None else _Told(told)
            answer = "done", self._clients.visit(Errand(assignment=assignment, state=state, pace=pace))
        except _Asks as question:
            answer = "asks", question.args
        except Exception as error:
            if out_of_memory(error):
                os._exit(1)  # as if the system had killed it: perhaps a fresh actor has more
            answer = "failed", sendable(error)
        return packing.rolled(answer)


class _Asks(BaseException):
    """A visit needs a forecast that it was not told. It is begun anew with it, which changes nothing."""


@final
class _Told:
    """A forecast from what the driver has said, who knows the devices."""

    def __init__(self, known: dict[tuple[int, int], float]) -> None:
        self._known = known

    def seconds(self, samples: int, forward_samples: int) -> float:
        if (samples, forward_samples) not in self._known:
            raise _Asks(samples, forward_samples)
        return self._known[samples, forward_samples]


def _imported() -> Any:
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise UserError(
            "driver=ray, and Ray is not installed",
            expected="the extra [ray]",
            why="it runs the visits",
            fix="pip install 'polyrhythm[ray]', or driver=processes",
        ) from error
    return ray


def _connect(ray: Any, workers: int, address: str | None) -> None:
    """Starts a cluster here, or connects to one."""
    quiet = {"include_dashboard": False, "num_cpus": workers} if address is None else {}
    try:
        ray.init(address=address or "local", log_to_driver=False, logging_level="ERROR", **quiet)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise UserError(
            f"no Ray cluster at address={address}: {error}",
            expected="the address of one that runs, such as 10.0.0.1:6379, or auto on one of its machines",
            why="visits run there",
            fix="start one with `ray start --head`, or leave the address out to start one here",
        ) from error


def _check_processors(ray: Any, workers: int) -> None:
    there = int(ray.cluster_resources().get("CPU", 0))
    if there < workers:
        raise UserError(
            f"workers={workers} on a Ray cluster with {there} processors",
            expected=f"workers of {there} or fewer",
            why="each worker takes one, and would wait for it for ever",
            fix=f"workers={max(there, 1)}, or add machines to the cluster",
        )


def _needs(clients: Clients) -> list[np.ndarray]:
    """What visits need, rolled: samples, which are only read; and the rest, which engines also write to."""
    import ray.cloudpickle

    cloud: Any = ray.cloudpickle

    plain: Any = Tensor.__reduce_ex__

    def reduced(tensor: Tensor) -> Any:
        known = packing.reduced(tensor)
        return plain(tensor, 5) if known is NotImplemented else known

    def pickler(file: io.BytesIO, beside: list[Any], board: packing.Board) -> Any:
        """One that also takes classes of a user's own script, whole."""
        found: Any = cloud.CloudPickler(file, protocol=5, buffer_callback=beside.append)
        found.dispatch_table = ChainMap({Tensor: reduced}, found.dispatch_table)
        return found

    try:
        rest = (clients.recipe, clients.setup, clients.engine), settings()
        return [packing.rolled(value, pickler=pickler) for value in (clients.data, rest)]
    except Exception as error:  # whatever a user's own class does when it is pickled
        raise Unsendable(f"{type(error).__name__}: {error}") from error
