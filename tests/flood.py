"""Thousands of spoiled answers over the real wire: a SuperLink, Flower's HTTP with TLS, the real server of a run.

    .venv-flower/bin/python tests/flood.py --answers 10000

Nodes of one program (`swarm`) answer several federations, one after the other, most of them wrongly. Of each run it is
held that it has made all its versions, that what is wrong was lost with a reason and what is right was not, that its
model is that of a run in which exactly those visits were lost, that its log has no traceback, and that its server's
memory stays flat. Prints a tally by reason. Imports flwr.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import math
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final
from unittest import mock

import numpy as np

from deployment.test_fuzzed_answers import KINDS
from mutations import Mutator
from polyrhythm.base.vectors import spans_of
from polyrhythm.cli.deployed import experiment_of
from polyrhythm.deployment.federating import Serving, serve
from polyrhythm.deployment.local.loopback import Loopback
from polyrhythm.deployment.local.processes import Started
from polyrhythm.deployment.local.project import PACKAGE, write_project
from polyrhythm.deployment.node import Node
from polyrhythm.deployment.wire import Parcel
from polyrhythm.experiments.prepared import prepare
from polyrhythm.results import Run
from pretend import JumpingClock, PretendTransport
from swarm import Swarm

METHODS = {
    "scaffold": "scaffold(cohort={clients}, epochs=1, batch=20)",
    "compressed": "fedavg(cohort={clients}, epochs=1, batch=20) | compress_int8",
    "measured": "power_of_choice(cohort={half}, batch=20)",
    "skipping": 'ccfl(cohort={clients}, epochs=1, batch=20, storage="mixed")',
}
SHARE = 0.9
"""Of the answers of nodes that lie."""
GROWTH = 60.0
"""MB by which the server's memory may grow from the first third of its run to its last."""


@final
@dataclass
class Watched:
    """The memory of a run's server, in MB, as it went."""

    sizes: list[float] = field(default_factory=list)

    @property
    def growth(self) -> float:
        """From the largest of the second third to the largest of the last."""
        third = len(self.sizes) // 3
        return max(self.sizes[-third:]) - max(self.sizes[third : 2 * third]) if third else 0.0


@contextmanager
def watched(folder: Path) -> Iterator[Watched]:
    """Looks at the memory of the server app of a federation, each second."""
    seen, over = Watched(), threading.Event()

    def look() -> None:
        while not over.wait(1.0):
            seen.sizes += [size for size in map(_size, _servers(folder)) if size]

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join(120)


def _servers(folder: Path) -> list[Path]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
            mine = f"FLWR_HOME={folder / 'flwr'}".encode() in (process / "environ").read_bytes()
        except OSError:
            continue
        if mine and b"flwr-serverapp" in command:
            found.append(process)
    return found


def _size(process: Path) -> float:
    try:
        found = re.search(r"VmRSS:\s+(\d+) kB", (process / "status").read_text())
    except OSError:
        return 0.0
    return int(found[1]) / 1024 if found else 0.0


@final
@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of a federation.

    Args:
        sent: answers that were spoiled, by kind.
        tally: what they were refused for.
        seconds: that its run took.
        memory: of its server, the most in MB.
    """

    sent: collections.Counter[str]
    tally: collections.Counter[str]
    seconds: float
    memory: float


def flood(
    folder: Path, federation: Loopback, swarm: Swarm, name: str, answers: int, honest: int, clients: int, seed: int
) -> Outcome:
    """One federation, so many of whose answers are spoiled.

    Raises:
        AssertionError: something is not as it should be.
    """
    rounds = math.ceil(answers / (SHARE * (clients - honest))) + 1
    project, out = folder / name / "project", folder / name / "runs"
    method = METHODS[name].format(clients=clients, half=clients // 2)
    write_project(project, _TEXT.format(clients=clients, method=method.replace('"', "'"), rounds=rounds))
    file = project / PACKAGE / "experiment.toml"
    prepared = prepare(*experiment_of(file, {}))
    nodes = [Node(prepared, client, folder / name / f"node-{client}") for client in range(clients)]
    draws = np.random.Generator(np.random.PCG64(seed))
    swarm.play([node.reply for node in nodes], Mutator(draws, spans_of(prepared.chosen.engine.layout)), answers, SHARE)
    began = time.monotonic()
    waits = {"out": str(out), "wait": 300.0, "returns": 20.0}
    with watched(federation.folder) as memory, federation.begin(project, waits) as server:
        said, _ = server.communicate(timeout=7200)
    seconds = time.monotonic() - began
    assert out.exists(), said[-3000:]
    (run,) = Run.all(out)
    assert (run.status, run.summary["rounds"]) == ("finished", rounds), f"{run.status}: {run.summary}; {said[-3000:]}"
    assert "Traceback" not in said, said[said.index("Traceback") - 500 :][:3000]
    assert memory.growth < GROWTH, memory.sizes
    tally, lost = _judged(run.visits, swarm)
    assert lost_anew(file, folder / name, lost) == run.summary["digest"], "another model than without those visits"
    sent = collections.Counter(one.kind for one in swarm.done.values())
    return Outcome(sent=sent, tally=tally, seconds=seconds, memory=max(memory.sizes))


_TEXT = """\
data = "digits"
clients = {clients}
model = "logistic"
method = '''{method}'''
rounds = {rounds}
evaluation = {{every = 1000}}
"""


def _judged(visits: Any, swarm: Swarm) -> tuple[collections.Counter[str], set[int]]:
    """Why spoiled answers were refused, and the visits that were lost."""
    tally, lost = collections.Counter[str](), set[int]()
    for dispatch, row in visits.iterrows():
        sent = swarm.done.get(int(dispatch))
        if row["status"] in ("lost", "dropped"):
            assert sent is not None, f"an honest answer was refused: {row['reason']}"
            assert row["reason"], sent.kind
            lost.add(int(dispatch))
            tally[kind_of(row["reason"])] += 1
        elif sent is not None:
            assert sent.right, f"{sent.kind} was taken"
            tally["taken: the right answer, or sent beside it"] += 1
    return tally, lost


def lost_anew(file: Path, folder: Path, lost: set[int]) -> str:
    """The digest of the same run in one process, in which these visits are lost and nothing else happens."""
    made, execution = experiment_of(file, {})
    prepared, clock = prepare(made, execution), JumpingClock()

    def answering(client: int) -> Callable[[Parcel], Parcel]:
        node = Node(prepared, client, folder / f"again-{client}", clock=clock.now)

        def reply(parcel: Parcel) -> Parcel:
            dispatch = re.search(r'"Assignment": \[(\d+),', parcel.text)
            if dispatch and int(dispatch[1]) in lost:
                raise ValueError("this visit is lost")
            return node.reply(parcel)

        return reply

    transport = PretendTransport(clock, {100 + client: answering(client) for client in range(made.federation.clients)})
    serving = Serving(out=folder / "again", resume=False)
    summary = serve(made, transport, serving, execution=execution, clock=clock, tell=lambda text: None)
    assert summary["lost_visits"] == len(lost)
    return str(summary["digest"])


def kind_of(reason: str) -> str:
    """A reason without what is of that answer alone."""
    first = re.sub(r"'[^']*'|\"[^\"]*\"|[-\d.,e+]*\d[-\d.,e+]*", "…", reason)
    return next((words for start, words in {**OF_FLOWER, **KINDS}.items() if re.match(start, first)), first[:70])


OF_FLOWER = {
    r"it has sent what Flower cannot read": "bytes that are none of Flower's records",
    r"it has sent (records|an array of|arrays)": "records of Flower's that are none of ours",
    r"it has failed": "an error of Flower's",
}


_GRPC = {"FLWR_INTERNAL_GRPC_FLEET_API": "1"}


@contextmanager
def federated(
    folder: Path, port: int, clients: int, honest: int, seed: int, wire: str = "http"
) -> Iterator[tuple[Loopback, Swarm]]:
    """A SuperLink, and a swarm of nodes that it knows.

    Args:
        folder: for all of it.
        port: of the SuperLink, which has gRPC at the next one.
        clients: how many nodes.
        honest: how many of them never lie.
        seed: of what is done.
        wire: between the SuperLink and its nodes, "http" or "grpc"; from it to the server it is always HTTP.
    """
    federation = Loopback(folder / "federation", port, tell=lambda text: None)
    start = Loopback._start

    def in_memory(self: Loopback, name: str, command: list[str]) -> Started:
        """Without a database in a file, which takes Flower ten times as long."""
        place = command.index("--database")
        beside = ["--fleet-api-address", f"127.0.0.1:{port + 1}"] if wire == "grpc" else []
        return start(self, name, [*command[:place], *command[place + 2 :], *beside])

    with mock.patch.object(Loopback, "_start", in_memory), mock.patch.dict(os.environ, _GRPC if wire == "grpc" else {}):
        federation.up(0)
    swarm = Swarm(federation, clients, honest, seed, port + 1 if wire == "grpc" else None)
    try:
        yield federation, swarm
    finally:
        swarm.stop()
        federation.down()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--answers", type=int, default=10_000, help="how many are spoiled, over all methods")
    parser.add_argument("--portion", type=int, default=500, help="how many of them in one federation at most")
    parser.add_argument("--clients", type=int, default=60)
    parser.add_argument("--honest", type=int, default=6, help="how many of them never lie")
    parser.add_argument("--port", type=int, default=8870)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--wire", choices=("http", "grpc"), default="http", help="from nodes to the SuperLink")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=[*METHODS])
    given = parser.parse_args()
    outcomes = list[Outcome]()
    with (
        contextlib.nullcontext(Path(tempfile.mkdtemp(prefix="flood-"))) as folder,
        federated(folder, given.port, given.clients, given.honest, given.seed, given.wire) as (federation, swarm),
    ):
        for place, (name, answers) in enumerate(_portions(given.answers, given.methods, given.portion)):
            seed, own = given.seed + place, folder / f"{place}"
            outcome = flood(own, federation, swarm, name, answers, given.honest, given.clients, seed)
            outcomes.append(outcome)
            print(
                f"{name}: {sum(outcome.sent.values()):,} spoiled answers in {outcome.seconds:.0f} s, "
                f"server {outcome.memory:.0f} MB",
            )
            if swarm.trouble:
                print(f"  nodes stumbled {len(swarm.trouble)} times, lastly: {swarm.trouble[-1][:200]}")
                swarm.trouble.clear()
            _tell(outcomes)


def _portions(answers: int, methods: Sequence[str], most: int) -> list[tuple[str, int]]:
    """Federations, one method after the other: how many answers are spoiled in each."""
    share = math.ceil(answers / len(methods))
    each = [min(most, share - begun) for begun in range(0, share, most)]
    return [(name, portion) for portion in each for name in methods]


def _tell(outcomes: Sequence[Outcome]) -> None:
    """The tally so far."""
    for title, counted in (
        ("sent", sum((o.sent for o in outcomes), collections.Counter())),
        ("refused, since it was, had or was of", sum((o.tally for o in outcomes), collections.Counter())),
    ):
        print(f"\n{title}: {sum(counted.values()):,}")
        print(*(f"{count:7,}  {words}" for words, count in counted.most_common()), sep="\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())
