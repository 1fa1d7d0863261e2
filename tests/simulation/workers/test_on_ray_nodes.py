"""Visits on several machines: here several of Ray's nodes on one machine, each with a store of its own."""

from __future__ import annotations

import importlib.util
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import polyrhythm as pr
from crews import FAMILIES, assert_same, made, run
from polyrhythm.base.errors import RunFailed, UserError
from polyrhythm.data import ArraySamples
from polyrhythm.experiments.session import carry_out
from polyrhythm.runs import VersionRecord, VisitRecord
from polyrhythm.simulation.workers.on_ray import cluster as clusters
from small import Log, collection, dealt

pytestmark = [
    pytest.mark.slow,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: the extra [ray]"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
STORE = 200 * 2**20
SCAFFOLD = FAMILIES["scaffold"]


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """A head without processors; each test adds the nodes that it needs."""
    ray = clusters.imported()
    from ray.cluster_utils import Cluster

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        head = {"num_cpus": 0, "object_store_memory": STORE, "include_dashboard": False}
        made = Cluster(initialize_head=True, head_node_args=head)
        ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
        yield made
        ray.shutdown()
        made.shutdown()


@pytest.fixture
def add(nodes: Any) -> Iterator[Any]:
    """Adds a node with so many processors; it goes when the test ends."""
    added = []

    def one(processors: int) -> Any:
        added.append(nodes.add_node(num_cpus=processors, object_store_memory=STORE))
        return added[-1]

    yield one
    for node in added:
        if node in nodes.worker_nodes:
            nodes.remove_node(node)
    ray = clusters.imported()
    while sum(node["Alive"] for node in ray.nodes()) > 1:
        time.sleep(0.2)


def stored(ray: Any) -> dict[str, int]:
    """Bytes that were ever put into each node's store, by the node or by another one."""
    from ray._private.internal_api import node_stats

    found = {}
    for node in ray.nodes():
        if node["Alive"]:
            stats = node_stats(node["NodeManagerAddress"], node["NodeManagerPort"], include_memory_info=False)
            found[node["NodeID"]] = stats.store_stats.cumulative_created_bytes
    return found


def test_samples_are_brought_to_each_machine_once_and_numbers_are_those_in_line(add: Any) -> None:
    ray = clusters.imported()
    add(2)
    add(1)
    blobs = collection()
    inputs = torch.zeros(100, 50_000)
    inputs[:60, :4] = blobs.train.inputs  # type: ignore[attr-defined]
    wide = pr.data.Collection(
        name="wide",
        task=blobs.task,
        classes=blobs.classes,
        train=ArraySamples(inputs, torch.from_numpy(np.arange(100) % 3)),
        test=ArraySamples(inputs[:15], torch.from_numpy(np.arange(15) % 3)),
    )
    family = {"federation": dealt(wide, [7, 15, 4, 11, 9, 14]), "recipe": pr.fedavg(cohort=6), "rounds": 2}
    of, before = made(driver="ray", workers=3, **family), stored(ray)
    clients = of.clients
    crew: Any = of.crew.executor(clients)
    where = [actor.__ray_call__.remote(lambda _: ray.get_runtime_context().get_node_id()) for actor in crew._idle]
    places = ray.get(where)
    after = stored(ray)
    crew.close()
    assert sorted(places.count(node) for node in set(places)) == [1, 2]
    for node in set(places):
        assert inputs.nbytes < after[node] - before[node] < 1.1 * inputs.nbytes
    assert_same(run(driver="inline", **family), (carry_out(of, [log := Log()]), log))


def removing(nodes: Any, *gone: Any) -> Log:
    """Takes nodes away, as if they had lost their power, when version 1 is there."""

    def at(record: VersionRecord | VisitRecord) -> None:
        if isinstance(record, VersionRecord) and record.version == 1:
            for node in gone:
                nodes.remove_node(node, allow_graceful=False)

    return Log(at)


@pytest.mark.parametrize("spare", [True, False])
def test_a_machine_that_is_lost_changes_nothing(nodes: Any, add: Any, spare: bool) -> None:
    first, _ = add(1), add(1)
    if spare:
        add(1)
    log = removing(nodes, first)
    hurt = carry_out(made(driver="ray", workers=2, **SCAFFOLD), [log]), log
    assert hurt[0]["worker_deaths"] >= 1
    assert_same(run(driver="inline", **SCAFFOLD), hurt)


def test_the_last_machine_is_lost(nodes: Any, add: Any) -> None:
    with pytest.raises(RunFailed, match="no machine is left in the Ray cluster that has room for a worker"):
        carry_out(made(driver="ray", workers=1, **SCAFFOLD), [removing(nodes, add(1))])


def test_processors_of_several_machines_are_added_up(add: Any) -> None:
    add(1)
    add(1)
    with pytest.raises(UserError, match="workers=3 on a Ray cluster with 2 processors"):
        made(driver="ray", workers=3).crew.executor(made(**SCAFFOLD).clients)
