"""An actor of Ray that carries out visits, in a process of its own, on whichever machine Ray has put it."""

from __future__ import annotations

import os
import platform
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
import torch

from polyrhythm import __version__
from polyrhythm.base.errors import UserError
from polyrhythm.base.messages import Assignment
from polyrhythm.base.vectors import CPU
from polyrhythm.core.client_state import ClientState
from polyrhythm.core.protocols import TakesCohorts
from polyrhythm.core.visit_plan import VisitPlan
from polyrhythm.simulation.workers import packing
from polyrhythm.simulation.workers.cohorts import AtOnce
from polyrhythm.simulation.workers.executors import Clients, Executor, OneByOne
from polyrhythm.simulation.workers.worker import Unsendable, out_of_memory, sendable, settle


def own_device(gpus: float | None) -> torch.device:
    """Where this actor computes: on the GPU that Ray gave it, of which it sees no other; without one on a processor.

    Raises:
        UserError: torch does not see it.
    """
    if gpus is None:
        return CPU
    if torch.cuda.is_available():
        return torch.device("cuda", 0)
    import ray

    given, here = ", ".join(map(str, ray.get_gpu_ids())), platform.node()
    raise UserError(
        f"gpus={gpus:g}: Ray gave a worker on {here} the GPU {given}, and torch {torch.__version__} sees none there",
        expected="GPUs that torch can compute on",
        why="visits were to be stacked there",
        fix="install a PyTorch with CUDA on that machine, or leave gpus out: visits are computed on processors then",
    )


@final
class Visitor:
    """An actor: tasks that are taken together, one group after the other.

    Args:
        version: of the driver's polyrhythm.
        path: where the driver looks for modules.
        folder: where the driver runs.
        gpus: the share of a GPU that this actor has; None for none.
        device: says where it computes then.
        data: what gives a client's samples, rolled.
        rest: everything else that visits need, rolled.
    """

    def __init__(
        self,
        version: str,
        path: list[str],
        folder: str,
        gpus: float | None,
        device: Callable[[float | None], torch.device],
        data: np.ndarray,
        rest: np.ndarray,
    ) -> None:
        sys.path += [place for place in path if place not in sys.path]
        if os.path.isdir(folder):
            os.chdir(folder)
        self._problem: UserError | Unsendable | None = None
        if version != __version__:
            self._problem = _unlike(version)
            return
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of torch: samples that all actors of a machine read cannot be written
                holdings = packing.unrolled(packing.on_border(data, writable=False))
            (recipe, setup, engine), told = packing.unrolled(packing.on_border(rest, writable=True))
        except Exception as error:  # whatever a user's own class does when it is unpickled
            self._problem = Unsendable(f"{type(error).__name__}: {error}")
            return
        settle(told)
        try:
            if isinstance(engine, TakesCohorts):
                engine = engine.on(device(gpus), gpus or 1.0)
        except UserError as error:
            self._problem = error
            return
        self._clients = clients = Clients(recipe=recipe, setup=setup, engine=engine, data=holdings)
        self._dtype: torch.dtype = setup.dtype
        self._executor: Executor = AtOnce(clients) if isinstance(engine, TakesCohorts) else OneByOne(clients)

    def problem(self) -> UserError | Unsendable | None:
        """What keeps this actor from carrying out visits."""
        return self._problem

    def visit(self, slot: np.ndarray, sent: np.ndarray) -> np.ndarray:
        """Carries out tasks, rolled as what is answered: "done" or "failed"."""
        weights = torch.from_numpy(packing.on_border(slot, writable=True)).view(self._dtype)
        return packing.rolled(self._answer(packing.unrolled(packing.on_border(sent, writable=True), [weights])))

    def _answer(self, sent: Sequence[tuple[Assignment, ClientState, VisitPlan]]) -> tuple[str, Any]:
        try:
            tasks = [self._clients.taken_on(assignment, state, plan) for assignment, state, plan in sent]
            return "done", [self._executor.done(future) for future in self._executor.start(tasks)]
        except Exception as error:
            if out_of_memory(error):
                os._exit(1)  # as if the system had killed it: perhaps a fresh actor has more
            return "failed", sendable(error)


def _unlike(version: str) -> UserError:
    return UserError(
        f"polyrhythm {version} sends visits to a machine with polyrhythm {__version__}",
        expected="the same version on all machines of the cluster",
        why="another version may compute something else",
        fix=f"install polyrhythm {version} on {platform.node()}",
    )
