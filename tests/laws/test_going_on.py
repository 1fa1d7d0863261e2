"""A run that is written down at any event, and goes on from what was written, is the run that went on."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Iterator
from typing import Any

import torch
from hypothesis import strategies as st
from immutables import Map
from torch import Tensor

from polyrhythm.base.errors import RunFailed
from polyrhythm.base.messages import State
from polyrhythm.core.client_state import Memory
from polyrhythm.experiments.runstate import CODEC
from polyrhythm.fleet import Energy, Faults, FixedLinks, Fleet, Remembered
from polyrhythm.methods.compression import TopK
from polyrhythm.methods.mechanism import Release, Setup
from polyrhythm.methods.papers import ccfl, fedavg, feddyn, mifa, moon, scaffold
from polyrhythm.methods.participation.rolling import OnArrival, Rolling
from polyrhythm.methods.recipe import Recipe
from polyrhythm.methods.release.base import Buffer, Deadline
from polyrhythm.methods.release.last_updates import LastUpdates as KeepsAll
from polyrhythm.methods.secure_sum.secagg import Secagg
from polyrhythm.methods.server_step import Adam
from polyrhythm.runs import encoding
from polyrhythm.simulation.event_queue import Agenda, DriverState
from polyrhythm.simulation.simulator import InlineDriver, SimulationStep

from .fleets import Callers, Paces, Rhythms
from .law import law, swap
from .world import Federation, same

PACES = Paces(seconds=(0.1, 0.2718, 0.577, 0.1618, 0.3141, 0.41))
RHYTHMS = Rhythms(
    rhythms=((1.1, 0.7, 0.0), (1.9, 0.6, 0.3), (2.3, 0.8, 0.1), (1.3, 0.9, 0.5), (1.7, 0.7, 0.2), (3, 1, 0))
)
ROUND = fedavg(cohort=3, epochs=1, batch=4)
ROLL = fedavg(epochs=1, batch=4) | Rolling(concurrency=3) | Buffer(size=2)
WIDE = fedavg(epochs=1, batch=4) | Rolling(concurrency=6) | Buffer(size=2)  # always wants more
CASES: dict[str, tuple[Recipe, Fleet]] = {
    "rounds": (ROUND | Adam(), Fleet(devices=PACES)),
    "what clients remember": (
        scaffold(cohort=3, epochs=1, batch=4, momentum=0.5),
        Fleet(devices=PACES, faults=Faults(dropout=0.4)),
    ),
    "the last models": (moon(cohort=2, epochs=1, batch=4, layer="logits"), Fleet(devices=PACES)),
    "duals": (feddyn(cohort=2, epochs=1, batch=4) | TopK(share=0.3), Fleet(devices=PACES)),
    "movements": (ccfl(cohort=3, epochs=1, batch=4), Fleet(devices=PACES)),
    "the last of everybody": (mifa(cohort=3, epochs=1, batch=4), Fleet(devices=PACES)),
    "a deadline": (ROUND | Deadline(seconds=1.0), Fleet(devices=PACES, links=FixedLinks(latency=0.1))),
    "sums under masks": (
        fedavg(cohort=5, epochs=1, batch=4) | Secagg(limit=4.0),
        Fleet(devices=PACES, faults=Faults(secagg_dropout=(0.05, 0.05, 0.1, 0.1))),
    ),
    "batteries": (ROUND, Fleet(devices=PACES, energy=Energy(battery=2.0, charging=0.05, joules_per_byte=0.002))),
    "broken devices": (ROLL, Fleet(devices=PACES, faults=Faults(dropout=0.2, crash=0.3, downtime=2.0))),
    "spoiled, doubled and stray reports": (
        ROLL,
        Fleet(devices=PACES, faults=Faults(nan=0.2, corrupt=0.3, malformed=0.2, duplicate=0.5, stray=0.5)),
    ),
    "coming and going": (WIDE, Fleet(devices=PACES, availability=RHYTHMS)),
    "who comes": (
        ROLL | OnArrival(),
        Fleet(devices=PACES, arrivals=Callers(calls=((1.0, 3), (1.7, 1), (2.9, 5), (3.1, 0)))),
    ),
    "who comes back": (ROLL | OnArrival(), Fleet(devices=PACES, availability=RHYTHMS)),
}
VERSIONS = 5


def driver(recipe: Recipe, fleet: Fleet) -> InlineDriver:
    federation = Federation(sizes=(5, 3, 8, 4, 6, 7), fleet=fleet)
    engine, shards = federation.engine(), federation.shards()
    return InlineDriver(recipe, federation.setup(VERSIONS), engine, shards.__getitem__, federation.world())


def written_and_read(state: DriverState, change: Callable[[Any], Any] = lambda tree: tree) -> DriverState:
    tree, tensors = CODEC.encode(state)
    copies = [tensor.clone() for tensor in tensors]
    read = CODEC.decode(change(json.loads(json.dumps(tree))), copies.__getitem__)
    assert isinstance(read, DriverState)
    return read


def turned_over(tree: Any) -> Any:
    """What was written, with what is kept by client or number in the opposite order."""
    if isinstance(tree, list):
        return [turned_over(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    ((kind, inner),) = tree.items() if len(tree) == 1 else (("", tree),)
    if not kind:
        return {name: turned_over(item) for name, item in inner.items()}
    if kind in ("dict", "map"):
        pairs = list(zip(inner[::2], map(turned_over, inner[1::2]), strict=True))
        return {kind: [part for pair in reversed(pairs) for part in pair]}
    return {kind: turned_over(inner)}


def limited(moments: Iterator[SimulationStep]) -> Iterator[SimulationStep]:
    try:
        for number, moment in enumerate(moments):
            assert number < 400, "no end"
            yield moment
    except RunFailed as failure:
        raise AssertionError(str(failure)) from failure


def loses(kind: type, **lost: Any) -> Callable[..., Any]:
    """The mutant in which some of a value is not written."""
    original = encoding.Writer.put

    def put(self: encoding.Writer, value: Any) -> Any:
        return original(self, dataclasses.replace(value, **lost) if type(value) is kind else value)

    return swap(encoding.Writer, "put", put)


@law(
    case=st.sampled_from(sorted(CASES)),
    share=st.floats(0, 1, exclude_max=True),
    examples=25,
    broken_by={
        "timers are forgotten": loses(Agenda, timer=None),
        "who is expected is forgotten": loses(Agenda, expected=float("inf")),
        "what is under way is forgotten": loses(Agenda, visits=0, heap=[]),
        "provisional states are forgotten": loses(Memory, provisional=None),
        "states of visits that were accepted are forgotten": loses(Memory, accepted=Memory().accepted),
        "batteries are full again": loses(Remembered, charge={}),
        "broken devices are whole": loses(Remembered, back={}),
        "those who come begin again": loses(Remembered, arrivals=0),
        "those who come back begin again": loses(Remembered, comings=None),
    },
)
def test_a_run_goes_on_from_any_event_as_if_nothing_had_happened(case: str, share: float) -> None:
    goes_on_as_it_would(case, share, lambda tree: tree)


def in_any_order(self: KeepsAll, setup: Setup, state: State, release: Release, mean: Tensor) -> tuple[State, Tensor]:
    """The mutant of `memory` that sums over all clients anew, in the order in which they lie in a table of its own."""
    order = state["last"]
    state, _ = KEEPS_ALL(self, setup, {**state, "last": Map(order)}, release, mean)
    order = {**order, **state["last"]}
    total = functools.reduce(torch.add, order.values())
    return {**state, "last": order}, total * (release.rate / setup.holders)


KEEPS_ALL, BEGINS = KeepsAll.before_step, KeepsAll.server_start


def sums_as_they_lie(patch: Any) -> None:
    patch.setattr(KeepsAll, "server_start", lambda self, setup: {**BEGINS(self, setup), "last": {}})
    patch.setattr(KeepsAll, "before_step", in_any_order)


@law(
    case=st.sampled_from(sorted(CASES)),
    share=st.floats(0, 1, exclude_max=True),
    examples=15,
    broken_by={"the server sums in the order of its memory": sums_as_they_lie},
)
def test_the_order_in_which_clients_lie_in_memory_decides_nothing(case: str, share: float) -> None:
    goes_on_as_it_would(case, share, turned_over)


def goes_on_as_it_would(case: str, share: float, change: Callable[[Any], Any]) -> None:
    """Asserts that a run that is written down, changed and read again goes on as it would have."""
    whole = driver(*CASES[case])
    expected = list(limited(whole.moments(whole.engine.initial())))
    until = int(share * len(expected))
    first = driver(*CASES[case])
    moments = limited(first.moments(first.engine.initial()))
    for _ in range(until + 1):
        next(moments)
    rest = driver(*CASES[case])
    found = list(limited(rest.moments(written_and_read(first.state(), change))))
    assert len(found) == len(expected) - until - 1
    for one, other in zip(found, expected[until + 1 :], strict=True):
        assert same(one, other)
