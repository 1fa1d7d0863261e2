"""The most memory that the server of a real federation takes while a cohort's answers come, beyond what it had before.

The nodes are in the same process, and answer one at a time, when they are asked for their answers; the model is an mlp
of nearly 5 million weights, and each client holds four samples. Nodes give all their answers at once, the worst case.
One JSON line; with --in-memory no answer waits in a file.

    python benchmarks/server_memory.py --cohort 64
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import torch

import polyrhythm as pr
from polyrhythm.base import filed
from polyrhythm.config import names
from polyrhythm.data import ArraySamples
from polyrhythm.data import Collection as Data
from polyrhythm.deployment import outstanding
from polyrhythm.deployment.federating import Serving, serve
from polyrhythm.deployment.node import Node
from polyrhythm.deployment.registry import Reply
from polyrhythm.deployment.wire import Parcel
from polyrhythm.experiments.prepared import prepare


class Nodes:
    """Carries messages to nodes of this process, which do their work when their answers are fetched."""

    def __init__(self, cohort: int, answer: Callable[[int, Parcel], Parcel]) -> None:
        self._cohort, self._answer = cohort, answer
        self._out: list[tuple[int, Parcel]] = []

    def nodes(self) -> Collection[int]:
        return range(self._cohort)

    def push(self, letters: Sequence[tuple[int, Parcel]]) -> list[str]:
        self._out += letters
        return [str(number) for number in range(len(self._out) - len(letters), len(self._out))]

    def pull(self, messages: Collection[str]) -> list[Reply]:
        return [Reply(to=message, parcel=self._answer(*self._out[int(message)])) for message in messages]


def held(what: str) -> float:
    """MB of this process in memory: VmRSS now, VmHWM at most."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[what].split()[0]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cohort", type=int, default=64)
    parser.add_argument("--method", default="fedavg", help="a recipe's name")
    parser.add_argument("--wide", type=int, default=2200, help="units of each of the two hidden layers")
    parser.add_argument("--in-memory", action="store_true", help="no answer waits in a file")
    given = parser.parse_args()
    if given.in_memory:
        filed.LONG = outstanding.AT_ONCE = 2**60
    clients = given.cohort
    draws = torch.Generator().manual_seed(0)
    sets = [ArraySamples(torch.randn(n, 4, generator=draws), torch.arange(n) % 3) for n in (4 * clients, 12)]
    data = Data(name="noise", task="classification", classes=("0", "1", "2"), train=sets[0], test=sets[1])
    recipe = names.recipe(f"{given.method}(cohort={clients}, epochs=1, batch=4)")
    experiment = pr.Experiment(
        federation=pr.federate(data, pr.data.Iid(), clients=clients, seed=0),
        model=names.model(f"mlp(hidden=[{given.wide}, {given.wide}])"),
        recipe=recipe,
        rounds=2,
    )
    prepared = prepare(experiment, pr.Execution())
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        nodes = Nodes(clients, lambda node, parcel: Node(prepared, node, at / "nodes" / str(node)).reply(parcel))
        before = held("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")
        summary = serve(experiment, nodes, Serving(out=at / "runs"), tell=lambda text: None)
    told = {"cohort": clients, "weights": prepared.chosen.engine.layout.parameters, "digest": summary["digest"][:16]}
    print(json.dumps({**told, "server_mb": round(held("VmHWM") - before)}))


if __name__ == "__main__":
    main()
