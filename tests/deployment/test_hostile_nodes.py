"""Nodes that send what they like, over a real SuperLink: the server makes all its versions. Minutes; needs flwr."""

from __future__ import annotations

import collections
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import polyrhythm as pr

pytest.importorskip("flwr", reason="needs flwr: pip install 'polyrhythm[flower]'")

from flwr.supercore.task_identity import TaskIdentity

from hostile_nodes import HostileNode, draws
from mutations import Mutator
from polyrhythm.base.vectors import spans_of
from polyrhythm.cli.deployed import experiment_of
from polyrhythm.deployment.local.keys import make_node_key
from polyrhythm.deployment.local.loopback import CONNECTION, Loopback
from polyrhythm.deployment.local.project import PACKAGE, write_project
from polyrhythm.deployment.node import Node
from polyrhythm.experiments.prepared import prepare
from polyrhythm.results import Run

pytestmark = pytest.mark.slow

PORT = 8840
CLIENTS = 6
ROUNDS = 12
TEXT = f"""
data = "digits"
clients = {CLIENTS}
model = "logistic"
method = "scaffold(cohort={CLIENTS}, epochs=1, batch=100)"
rounds = {ROUNDS}
evaluation = {{every = 1000}}
"""


@pytest.fixture
def federation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    for name, value in {"run_id": 1, "node_id": 1, "task_id": 1}.items():  # as Flower does in an app's process
        monkeypatch.setattr(TaskIdentity, f"_{name}", value)
    made = Loopback(tmp_path / "federation", PORT)
    yield made
    made.down()


def hostile(federation: Loopback, file: Path, client: int) -> HostileNode:
    key = federation.folder / "nodes" / str(client) / "key"
    make_node_key(key)
    federation.flwr("supernode", "register", str(key.with_suffix(".pub")), CONNECTION, "--format", "json")
    prepared = prepare(*experiment_of(file, {}))
    answer = Node(prepared, client, federation.folder / "nodes" / str(client) / "memory").reply
    mutator = Mutator(draws(client), spans_of(prepared.chosen.engine.layout))
    return HostileNode(federation.folder, federation.address, key, answer, mutator)


def test_nodes_that_send_what_they_like_end_nothing(federation: Loopback, tmp_path: Path) -> None:
    project = tmp_path / "project"
    write_project(project, TEXT)
    federation.up(0)
    nodes = [hostile(federation, project / PACKAGE / "experiment.toml", client) for client in range(CLIENTS)]
    for node in nodes:
        node.start()
    began = time.monotonic()
    with federation.begin(project, {"out": str(tmp_path / "runs"), "wait": 300.0, "returns": 20.0}) as server:
        said, _ = server.communicate(timeout=3600)
    for node in nodes:
        node.stop()
    untaken = collections.Counter(words[:100] for node in nodes for words in node.trouble)
    print("", *(f"{count:,} {words}" for words, count in untaken.items()), sep="\n")
    assert (tmp_path / "runs").exists(), said[-3000:]
    run = Run.all(tmp_path / "runs")[-1]
    assert run.status == "finished", said[-3000:]
    assert run.summary["rounds"] == ROUNDS
    done: collections.Counter[str] = sum((node.done for node in nodes), collections.Counter())
    visits: Any = run.visits
    lost = visits[visits["status"] == "lost"]
    print("", f"{len(visits)} visits in {time.monotonic() - began:.0f} s; answers: {json.dumps(done)}", sep="\n")
    print(*(f"{count:,} {reason}" for reason, count in lost["reason"].str[:60].value_counts().items()), sep="\n")
    assert lost["reason"].str.len().min() > 0
    # An honest answer is never refused.
    assert len(visits) - len(lost) >= done["honest"] - CLIENTS
    assert sum(done.values()) - done["honest"] > 0.4 * len(visits)
    assert pr.replay(run, experiment_of(project / PACKAGE / "experiment.toml", {})[0]).equal
