"""Memory over a long run whose clients remember a vector each: SCAFFOLD, every client once, one step of one sample.

A network of three layers, of 10⁷ parameters, so a client's control variate has 40 MB. One JSON line for each hundredth
version: what is resident, what lies in files, and how long it took; then the checkpoints, and the run's digest.

    python benchmarks/store.py --client-memory "1 GiB" --out /scratch       needs 42 GB of disk there
    python benchmarks/store.py --client-memory all --rounds 100             grows by 40 MB a round
    python benchmarks/store.py --files --out /scratch                       few files against many, processor time
"""

from __future__ import annotations

import argparse
import functools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

import torch
from safetensors.torch import load_file, save_file

import polyrhythm as pr
from polyrhythm.data import ArraySamples, Collection
from polyrhythm.models.catalogue import find
from polyrhythm.runs.observer import Observer
from polyrhythm.runs.records import ModelView, Plan, VersionRecord
from polyrhythm.simulation.client_store.vector_files import StoredTensor, VectorFiles

HIDDEN = (4_000, 1_700)


def resident() -> int:
    """Memory of this process now, in MB."""
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))) // 1024


def size(folder: Path, pattern: str) -> int:
    """What the files there take, in MB."""
    return sum(path.stat().st_size for path in folder.glob(pattern)) // 10**6


@final
class Curve(Observer):
    """Says what is resident after each hundredth version."""

    def __init__(self, out: Path, every: int) -> None:
        self.out, self.every, self.started = out, every, time.perf_counter()

    def begin(self, plan: Plan) -> None:
        print(json.dumps({"parameters": plan.parameters, "resident_mb": resident()}), flush=True)

    def version(self, record: VersionRecord, model: ModelView) -> None:
        if record.version and record.version % self.every == 0:
            told = {"version": record.version, "resident_mb": resident()}
            told |= {"files_mb": size(self.out, "*/clients/*"), "seconds": round(time.perf_counter() - self.started)}
            print(json.dumps(told), flush=True)


def few_or_many(out: Path, vectors: int = 50, elements: int = 10_000_000) -> None:
    """Writes and reads vectors in one shelf, and in a safetensors file for each; processor time, twice."""
    vector = torch.ones(elements)
    shelf = VectorFiles(lambda: out / "few", lambda: ())
    (out / "many").mkdir(parents=True)
    places: list[StoredTensor] = []

    def write_few() -> None:
        shelf.let_go(places)
        places[:] = [shelf._written(vector) for _ in range(vectors)]
        shelf.hold(places)

    def write_many() -> None:
        for number in range(vectors):
            save_file({"vector": vector}, out / "many" / f"{number}.safetensors")

    acts: dict[str, Callable[[], Any]] = {
        "write_few": write_few,
        "write_many": write_many,
        "read_few": lambda: [shelf.read(place) for place in places],
        "read_many": lambda: [load_file(out / "many" / f"{n}.safetensors")["vector"].clone() for n in range(vectors)],
    }
    for time_ in ("first", "again"):
        for name, act in acts.items():
            begun = time.process_time()
            act()
            took = time.process_time() - begun
            told = {"act": name, "time": time_, "mb": vectors * elements * 4 // 10**6, "seconds": round(took, 2)}
            print(json.dumps(told), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=1_000)
    parser.add_argument("--client-memory", default="1 GiB")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--every", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--files", action="store_true", help="only compare few files with many")
    given = parser.parse_args()
    if given.files:
        few_or_many(given.out)
        return
    chance = torch.Generator().manual_seed(0)
    labels = torch.arange(given.clients) % 10
    samples = ArraySamples(torch.randn(given.clients, 784, generator=chance), labels)
    few = ArraySamples(samples.inputs[:10], samples.targets[:10])
    classes = tuple(map(str, range(10)))
    collection = Collection(name="noise", task="classification", classes=classes, train=samples, test=few)
    experiment = pr.Experiment(
        federation=pr.federate(collection, pr.data.Iid(), given.clients, 0),
        model=functools.partial(find("mlp"), hidden=HIDDEN),
        recipe=pr.scaffold(cohort=1, epochs=1, batch=1, lr=given.lr) | pr.parts.sweep(),
        rounds=given.rounds,
        evaluation=pr.Evaluation(every=given.rounds + 1),
    )
    execution = pr.Execution(
        client_memory=given.client_memory,
        checkpoint=pr.Checkpoint(every=max(1, given.rounds // 4), keep=2),
        driver="inline",
    )
    run = pr.run(experiment, execution=execution, out=given.out, observers=[Curve(given.out, given.every)])
    checkpoints = {path.name: path.stat().st_size // 10**6 for path in sorted(run.path.glob("checkpoint-*"))}
    print(json.dumps({"checkpoints_mb": checkpoints, "digest": run.summary["digest"][:16]}))


if __name__ == "__main__":
    main()
