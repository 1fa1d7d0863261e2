"""What clients remember gives the same run whether it is in memory or in files, and so does a checkpoint of it."""

from __future__ import annotations

import dataclasses
import itertools
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from torch import Tensor

from polyrhythm.core.client_state import Memory
from polyrhythm.experiments.runstate import CODEC
from polyrhythm.fleet import Faults, Fleet
from polyrhythm.methods.compression import TopK
from polyrhythm.methods.local.optimisers import LocalAdam, LocalSgd
from polyrhythm.methods.papers import alt, ccfl, fedavg, feddyn, local_only, mifa, moon, scaffold, vrl_sgd
from polyrhythm.methods.participation.rolling import Rolling
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.release.base import Buffer
from polyrhythm.methods.work.skip_and_estimate import SkipAndResendModel
from polyrhythm.simulation.client_store import store
from polyrhythm.simulation.client_store import vector_files as files
from polyrhythm.simulation.client_store.store import Spilling
from polyrhythm.simulation.client_store.vector_files import StoredTensor, VectorFiles, with_vectors
from polyrhythm.simulation.event_queue import DriverState
from polyrhythm.simulation.simulator import InlineDriver, SimulationStep

from .fleets import Paces
from .law import law, swap
from .world import Federation, same

PACES = Paces(seconds=(0.1, 0.2718, 0.577, 0.1618, 0.3141, 0.41))
LOSING = Fleet(devices=PACES, faults=Faults(dropout=0.3, nan=0.2))
QUICK: dict[str, Any] = {"cohort": 3, "epochs": 1, "batch": 4}
CASES: dict[str, Recipe] = {
    "control variates": scaffold(**QUICK, momentum=0.5),
    "drifts": vrl_sgd(**QUICK),
    "duals, and what waits": feddyn(**QUICK) | TopK(share=0.3),
    "movements at clients": ccfl(**QUICK, storage="client"),
    "movements at the server": ccfl(**QUICK, storage="server"),
    "movements at either end": ccfl(**QUICK, storage="mixed"),
    "the last of everybody": mifa(**QUICK),
    "last models, sent again": fedavg(**QUICK) | SkipAndResendModel(),
    "last models, to differ from": moon(**QUICK, layer="logits"),
    "an early stop": alt(**QUICK, representation="logits"),
    "moments": local_only(epochs=1, batch=4) | LocalAdam(keep_state=True),
    "momentum": fedavg(**QUICK) | LocalSgd(momentum=0.9, keep_state=True),
    "somebody always at work": scaffold(epochs=1, batch=4) | Rolling(concurrency=3) | Buffer(size=2),
}
VERSIONS = 6


def driver(case: str, kept: store.ClientStore | None = None) -> InlineDriver:
    federation = Federation(sizes=(5, 3, 8, 4, 6, 7), fleet=LOSING)
    engine, shards = federation.engine(), federation.shards()
    return InlineDriver(
        CASES[case], federation.setup(VERSIONS), engine, shards.__getitem__, federation.world(), store=kept
    )


def in_files(folder: str, vectors: float = 0, there: Callable[[], Any] = lambda: ()) -> Spilling:
    """A store with room for so many vectors of 128 bytes in memory."""
    return Spilling(VectorFiles(lambda: Path(folder), there), int(vectors * 128), least=1)


def run(made: InlineDriver) -> Iterator[SimulationStep]:
    return itertools.islice(made.moments(made.engine.initial()), 400)


def at_once(self: VectorFiles, places: Any) -> None:
    """The mutant of `hold` by which nobody holds anything."""
    for place in places:
        self._holders[place] = 1


def elsewhere(place: StoredTensor, folder: Path | None = None) -> Tensor:
    """The mutant of `read` that reads from where the file begins."""
    return READ(dataclasses.replace(place, offset=0), folder)


def narrow(place: StoredTensor, folder: Path | None = None) -> Tensor:
    """The mutant of `read` that loses bits."""
    found = READ(place, folder)
    return found.bfloat16().to(found.dtype) if found.is_floating_point() else found


READ, PUT = files.read, Spilling.put


@law(
    case=st.sampled_from(sorted(CASES)),
    vectors=st.sampled_from((0, 1, 2.5, 6)),
    examples=25,
    broken_by={
        "files are written over while somebody needs them": swap(VectorFiles, "hold", at_once),
        "another client's vector is read": swap(files, "read", elsewhere),
        "numbers lose bits on their way": swap(files, "read", narrow),
        "what may yet be accepted is not written": swap(
            Spilling,
            "put",
            lambda self, client, memory: PUT(self, client, dataclasses.replace(memory, provisional=None)),
        ),
        "nothing is kept": swap(Spilling, "get", lambda self, client: Memory()),
    },
)
def test_in_memory_and_in_files_are_the_same_run(case: str, vectors: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        kept = in_files(f"{folder}/there", vectors)
        for one, other in zip(run(driver(case, kept)), run(driver(case)), strict=True):
            assert same(one, other), case
        assert kept._cache._used <= kept._cache._budget
        kept.close()
        assert not list(Path(folder).iterdir())


@law(
    case=st.sampled_from(sorted(CASES)),
    share=st.floats(0, 1, exclude_max=True),
    vectors=st.sampled_from((0, 2.5, 1000)),
    examples=25,
    broken_by={
        "a checkpoint does not hold what it needs": swap(VectorFiles, "pin", lambda self, version, places: None),
        "what lies in memory is left out": swap(
            Spilling,
            "snapshot",
            lambda self, version: {c: self._cache._named[c] for c in self._names if c not in self._cache._whole},
        ),
    },
)
def test_a_checkpoint_stays_what_it_was_while_clients_go_on(case: str, share: float, vectors: float) -> None:
    whole = list(run(driver(case)))
    until = int(share * len(whole))
    with tempfile.TemporaryDirectory() as folder:
        first = driver(case, in_files(folder, vectors, there=lambda: range(VERSIONS + 1)))
        moments = run(first)
        for _ in range(until + 1):
            next(moments)
        tree, tensors = CODEC.encode(first.state())
        text, copies = json.dumps(tree), [tensor.clone() for tensor in tensors]
        for _ in moments:
            """Clients go on, and put what they remember over what they remembered."""
        for kept in (in_files(folder, vectors, there=lambda: (0,)), None):
            state = CODEC.decode(json.loads(text), [copy.clone() for copy in copies].__getitem__)
            assert isinstance(state, DriverState)
            state = dataclasses.replace(state, clients=with_vectors(state.clients, lambda v: at(v, folder)))
            parts = with_vectors(state.server.parts, lambda v: at(v, folder))
            state = dataclasses.replace(state, server=dataclasses.replace(state.server, parts=parts))
            found = list(itertools.islice(driver(case, kept).moments(state), 400))
            assert len(found) == len(whole) - until - 1
            for one, other in zip(found, whole[until + 1 :], strict=True):
                assert same(one, other), case


def at(vector: Any, folder: str) -> Any:
    """A place with the folder in which it lies, as `last_kept` gives it."""
    return dataclasses.replace(vector, folder=folder) if isinstance(vector, StoredTensor) else vector
