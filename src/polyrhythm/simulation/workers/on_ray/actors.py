"""Visits on a Ray cluster: the same numbers as in this process, to the last bit, for any number of workers.

Samples are put into Ray's object store once, and every actor of a machine reads them there; so are the weights that
visits start from. Client states stay with the driver and travel with the visits, so any actor can take any visit.
Nothing here imports Ray before somebody asks for it.
"""

from __future__ import annotations

import io
import os
import sys
from collections import ChainMap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from polyrhythm import __version__
from polyrhythm.base.errors import RunFailed
from polyrhythm.simulation.workers import packing
from polyrhythm.simulation.workers.executors import Clients, Elsewhere, VisitFuture
from polyrhythm.simulation.workers.on_ray.cluster import LOOK, Watch, check_room, connect, imported, places
from polyrhythm.simulation.workers.on_ray.visitor import Visitor, own_device
from polyrhythm.simulation.workers.worker import DEATHS, FromWorker, Unsendable, given_up, settings

VERSIONS = 8
"""Of how many versions the weights are kept in the object store, for visits that start late."""

PATIENCE = 2.0
"""Seconds after which somebody who waits for an actor looks whether there is still room for one."""


@final
@dataclass
class _Way:
    """Errands on their way, taken together.

    Args:
        futures: of the tasks.
        actor: who carries them out.
    """

    futures: Sequence[VisitFuture]
    actor: Any


@final
class OnRay(Elsewhere):
    """A pool of actors, kept over all turns of a run. One that dies is replaced and its visits repeated.

    An actor is given visits when it is there. So a run goes on with those that are left where a machine is lost and
    there is no room for others.

    Args:
        clients: what visits need.
        workers: how many actors, one processor each.
        address: of a cluster; None to start one on this machine, which ends with the run. Where the process is
            connected to a cluster already, that one is used.
        gpus: the share of a GPU that each actor takes, to compute there; None for none.
        stack: how many visits an actor takes together.

    Raises:
        UserError: Ray is not installed, the cluster cannot be reached, or has too little room, or other versions, or
            GPUs that torch does not see.
        Unsendable: what visits need cannot be pickled, or not be read in another process.
    """

    def __init__(
        self, clients: Clients, workers: int, address: str | None = None, gpus: float | None = None, stack: int = 1
    ) -> None:
        super().__init__(stack)
        # What is taken together must be the same in a run that goes on from a checkpoint, so nothing is under way then.
        self.goes_on = stack == 1
        self._ray = ray = imported()
        self._started = not ray.is_initialized()
        if self._started:
            connect(ray, workers, address)
        self._watch = Watch(ray) if self._started and address is None else None
        self._slots: dict[int, tuple[Tensor, Any]] = {}
        self._idle: list[Any] = []
        self._coming = dict[Any, Any]()  # actors that have not said yet that they are there
        self._ways = dict[Any, _Way]()
        self._gpus, self._stillborn = gpus, 0
        try:
            check_room(ray, workers, gpus)
            takes: dict[str, Any] = {"num_cpus": 1} if gpus is None else {"num_cpus": 1, "num_gpus": gpus}
            self._make = ray.remote(**takes, max_restarts=0)(Visitor)
            self._needs = [ray.put(part) for part in _needs(clients)]
            for _ in range(workers):
                self._bring()
            while self._coming:
                self._look(None)
        except BaseException:
            self.close()
            raise

    def _bring(self) -> None:
        """Starts an actor."""
        actor = self._make.remote(__version__, sys.path, os.getcwd(), self._gpus, own_device, *self._needs)
        self._coming[actor.problem.remote()] = actor

    def _look(self, timeout: float | None) -> None:
        if self._watch is None:
            self._talk(timeout)
            return
        self._watch.check()
        try:
            self._talk(timeout)
        except Exception:
            self._watch.check()  # whatever Ray raises when one of its processes has just died, in words
            raise

    def _talk(self, timeout: float | None) -> None:
        """Gives visits to actors, hears what they say, and gives them others."""
        self._hand_out()
        for what in self._ready(timeout):
            if what in self._coming:
                self._welcome(what)
            else:
                self._hear(what)
        self._hand_out()

    def _ready(self, timeout: float | None) -> Sequence[Any]:
        """What there is to hear."""
        waited = 0.0
        while there := [*self._ways, *self._coming]:
            patience = LOOK if timeout is None else min(timeout, LOOK)
            ready: Sequence[Any] = self._ray.wait(there, timeout=patience)[0]
            if not ready and self._watch is not None:
                self._watch.check()
            waited += patience
            if ready or (timeout is not None and waited >= timeout):
                return ready
            if waited >= PATIENCE and not self._ways:
                waited = 0.0
                if not places(self._ray, self._gpus):
                    raise RunFailed("no machine is left in the Ray cluster that has room for a worker")
        return ()

    def _hand_out(self) -> None:
        while self._waiting and self._idle:
            self._visit(_Way(self._waiting.take_together(), self._idle.pop()))

    def _visit(self, way: _Way) -> None:
        """Sends an actor on its way."""
        weights = way.futures[0].task.assignment.weights
        tasks = [(t.task.assignment, t.task.state, t.task.plan) for t in way.futures]
        sent = packing.rolled(tasks, slot=(0, weights))
        self._ways[way.actor.visit.remote(self._slot(weights), sent)] = way

    def _slot(self, weights: Tensor) -> Any:
        """What Ray calls the weights that visits start from; of each version they are put there once."""
        if id(weights) not in self._slots:
            if len(self._slots) == VERSIONS:
                del self._slots[next(iter(self._slots))]
            self._slots[id(weights)] = weights, self._ray.put(weights.view(torch.uint8).numpy())
        return self._slots[id(weights)][1]

    def _welcome(self, ready: Any) -> None:
        """Has an actor among the others that is there now.

        Raises:
            UserError, Unsendable: it cannot carry out visits.
            RunFailed: several in a row have died before their first visit.
        """
        actor = self._coming.pop(ready)
        try:
            problem = self._ray.get(ready)
        except self._ray.exceptions.RayError as error:
            self._stillborn += 1
            if self._stillborn == DEATHS:
                raise RunFailed(f"{DEATHS} workers in a row died before their first visit: {error}") from error
            self._bring()
            return
        self._stillborn = 0
        self._idle.append(actor)
        if problem is not None:
            raise problem

    def _hear(self, ready: Any) -> None:
        """Hears an actor that has something to say, if only by dying."""
        way = self._ways.pop(ready)
        try:
            answer = self._ray.get(ready)
        except self._ray.exceptions.RayError:
            self._replace(way)
            return
        word, what = packing.unrolled(packing.on_border(answer, writable=True))
        self._idle.append(way.actor)
        if word == "done":
            for future, done in zip(way.futures, what, strict=True):
                future.outcome.set_result(done)
        else:
            error, told = what
            error.__cause__ = FromWorker(told)
            for future in way.futures:
                future.outcome.set_exception(error)

    def _replace(self, way: _Way) -> None:
        """Starts another actor in the place of a dead one: visits change nothing until they are done."""
        if self._watch is not None:
            self._watch.check()
        self.deaths += 1
        self._ray.kill(way.actor)
        for future in way.futures:
            future.deaths += 1
            if future.deaths == DEATHS:
                raise given_up(*(future.task.assignment.client for future in way.futures))
        self._waiting.put_back(way.futures)
        self._bring()
        self._muster()

    def _muster(self) -> None:
        """Replaces idle actors that do not answer: where a machine is lost, several may have died with it, and a visit
        would only find out one after the other, as if it had killed them."""
        asked = {actor.problem.remote(): actor for actor in self._idle}
        answered = self._ray.wait(list(asked), num_returns=len(asked), timeout=PATIENCE)[0] if asked else ()
        for what, actor in asked.items():
            try:
                if what in answered:
                    self._ray.get(what)
                    continue
            except self._ray.exceptions.RayError:
                pass
            self._ray.kill(actor)
            self._idle.remove(actor)
            self._bring()

    def close(self) -> None:
        """Ends the actors, and the cluster if it was started here."""
        if self._watch is not None:
            self._watch.end()
        if self._ray.is_initialized():
            for actor in (*self._idle, *self._coming.values(), *(way.actor for way in self._ways.values())):
                self._ray.kill(actor)
        self._idle, self._coming, self._slots, self._ways, self._needs = [], {}, {}, {}, []
        if self._started:
            self._ray.shutdown()


def _needs(clients: Clients) -> list[np.ndarray]:
    """What visits need, rolled: samples, which are only read; and the rest, which engines also write to."""
    import ray.cloudpickle

    cloud: Any = ray.cloudpickle

    plain: Any = Tensor.__reduce_ex__

    def reduced(tensor: Tensor) -> Any:
        known = packing.reduced(tensor)
        return plain(tensor, 5) if known is NotImplemented else known

    def pickler(file: io.BytesIO, beside: list[Any], slot: packing.Board) -> Any:
        """One that also takes classes of a user's own script, whole."""
        found: Any = cloud.CloudPickler(file, protocol=5, buffer_callback=beside.append)
        found.dispatch_table = ChainMap({Tensor: reduced}, found.dispatch_table)
        return found

    try:
        rest = (clients.recipe, clients.setup, clients.engine), settings()
        return [packing.rolled(value, pickler=pickler) for value in (clients.data, rest)]
    except Exception as error:  # whatever a user's own class does when it is pickled
        raise Unsendable(f"{type(error).__name__}: {error}") from error
