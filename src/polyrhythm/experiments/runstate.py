"""All that a run is between two events: with its experiment, what it needs to go on."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from polyrhythm.base.errors import UserError
from polyrhythm.base.messages import Arrived, Assignment, Report, Timer
from polyrhythm.core.client_state import ClientState, Memory
from polyrhythm.core.server_state import Flight, Record, ServerState
from polyrhythm.experiments.prepared import Prepared
from polyrhythm.fleet import Load, Remembered, Spent, VisitOutcome
from polyrhythm.methods.mechanism import Model
from polyrhythm.runs.checkpointing import newest
from polyrhythm.runs.encoding import Codec
from polyrhythm.runs.ledger import Ledger
from polyrhythm.runs.observer import Start
from polyrhythm.runs.recorder import Kept
from polyrhythm.runs.records import VersionRecord
from polyrhythm.runs.stored import Damaged
from polyrhythm.runs.summary import Best, Summary, model_digest
from polyrhythm.simulation.client_store.budget import VECTORS
from polyrhythm.simulation.client_store.vector_files import StoredTensor, check, vectors, with_vectors
from polyrhythm.simulation.event_queue import Agenda, DriverState, Underway


@final
@dataclass(frozen=True, kw_only=True)
class RunState:
    """Where a run stands.

    Args:
        driver: server, clients, visits under way, fleet.
        events: what the server has heard so far.
        silent: clients that skipped without a word since the last version.
        ledger: what it has cost.
        summary: what came of it.
        seconds: of wall time.
        origin: what it began from, as digests by name.
        answers: what the server was told of who is there, so far.
    """

    driver: DriverState
    events: int
    silent: int
    ledger: Ledger
    summary: Summary
    seconds: float
    origin: Mapping[str, str]
    answers: int


CODEC = Codec(
    (
        *(RunState, DriverState, ServerState, Flight, Record, Agenda, Underway, Assignment, Report, Arrived, Timer),
        *(
            Memory,
            ClientState,
            Model,
            StoredTensor,
            Remembered,
            Load,
            VisitOutcome,
            Spent,
            Ledger,
            Summary,
            Best,
            VersionRecord,
            Kept,
            Start,
        ),
    ),
)
"""Knows every class that a checkpoint or a log of updates may hold."""


def last_kept(
    folder: Path, *, before: int | None = None, check: Callable[[RunState], None] = lambda state: None
) -> tuple[Kept | None, list[str]]:
    """The newest whole checkpoint of a run, and what is to be said about others.

    What clients remember is looked at, each byte of it, but stays where it is.

    Args:
        folder: the run's.
        before: a version that it must be earlier than.
        check: raises `Unfit` for a state that cannot be gone on from.
    """

    def look(kept: Kept, folder: Path) -> Kept:
        check(kept.run)
        return _with_clients(kept, folder)

    return newest(folder, CODEC, before=before, look=look)


def _with_clients(kept: Kept, folder: Path) -> Kept:
    driver, where = kept.run.driver, (folder / VECTORS).absolute()
    lying = itertools.chain(vectors(driver.clients), vectors(driver.server.parts))
    if wrong := check((place for place in lying if isinstance(place, StoredTensor)), where):
        raise Damaged(wrong)

    def named(vector: Any) -> Any:
        return dataclasses.replace(vector, folder=str(where)) if isinstance(vector, StoredTensor) else vector

    server = dataclasses.replace(driver.server, parts=with_vectors(driver.server.parts, named))
    driver = dataclasses.replace(driver, clients=with_vectors(driver.clients, named), server=server)
    return dataclasses.replace(kept, run=dataclasses.replace(kept.run, driver=driver))


def origin(prepared: Prepared) -> dict[str, str]:
    """Digests of what an experiment begins from, beyond its description: the initial model, and who holds what."""
    federation, data = prepared.federation, hashlib.sha256()
    for values in (federation.sizes, federation.train.targets.numpy(), federation.test.targets.numpy()):
        data.update(np.ascontiguousarray(values).tobytes())
    return {
        "initial model": model_digest(prepared.chosen.engine.state_of(prepared.initial)),
        "data": data.hexdigest(),
    }


def check_origin(found: Mapping[str, str], state: RunState) -> None:
    """Refuses to go on from the state of a run that began from something else.

    Raises:
        UserError: with what differs.
    """
    for name, digest in found.items():
        if state.origin.get(name) != digest:
            raise UserError(
                f"another {name} than the run began from" if name != "data" else "other data than the run began from",
                expected="the same",
                why="the run would go on as another experiment, and its record would say nothing of it",
                fix="give it what it began from, or start a new run",
            )
