"""Memory of a run in which each of 10,000 clients has a model of its own: Ditto with LeNet-5, everybody visited once.

A copy has 178 kB, so all of them 1.8 GB. A JSON line for each tenth of the run: what is resident, and what of it
lies in files; the last one after every client's own model has been measured on its own test.

    python benchmarks/own_models.py --client-memory "1 GiB" --out /scratch
    python benchmarks/own_models.py --client-memory "256 MiB" --out /scratch
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import final

import torch

import polyrhythm as pr
from polyrhythm.data import ArraySamples, Collection
from polyrhythm.runs.environment import peak_memory
from polyrhythm.runs.observer import Observer
from polyrhythm.runs.records import ModelView, VersionRecord

EACH = 5  # samples of a client, of which one is its test


def resident() -> int:
    """Memory of this process now, in MB."""
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))) // 1024


@final
class Watch(Observer):
    """Tells of memory as a run goes on.

    Args:
        out: the folder of the record.
        every: versions between two lines.
    """

    def __init__(self, out: Path, every: int) -> None:
        self._out, self._every, self._begun = out, every, time.process_time()

    def version(self, record: VersionRecord, model: ModelView) -> None:
        """A line."""
        if record.version % self._every:
            return
        files = sum(path.stat().st_size for path in self._out.rglob("*") if path.is_file()) // 2**20
        told = {"version": record.version, "clients": record.client_updates, "resident_mb": resident()}
        more = {"files_mb": files, "personal_mean": (record.spread or {}).get("personal_mean")}
        print(json.dumps({**told, **more, "seconds": round(time.process_time() - self._begun)}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--cohort", type=int, default=100)
    parser.add_argument("--client-memory", default="1 GiB")
    parser.add_argument("--out", type=Path, default=Path("runs"))
    given = parser.parse_args()
    rounds = given.clients // given.cohort
    torch.manual_seed(0)
    sets = [ArraySamples(torch.randn(n, 1, 28, 28), torch.randint(10, (n,))) for n in (EACH * given.clients, 100)]
    collection = Collection(
        name="noise", task="classification", classes=tuple(map(str, range(10))), train=sets[0], test=sets[1]
    )
    federation = pr.federate(collection, pr.data.Iid(), clients=given.clients, seed=0, local_test=0.2)
    recipe = pr.ditto(cohort=given.cohort, epochs=1, batch=4, lr=0.01) | pr.parts.sweep(cohort=given.cohort)
    experiment = pr.Experiment(
        federation=federation,
        model="lenet5",
        recipe=recipe,
        rounds=rounds,
        evaluation=pr.Evaluation(every=rounds, personal_every=rounds),
    )
    execution = pr.Execution(
        driver="inline", client_memory=given.client_memory, checkpoint=pr.Checkpoint(every="never")
    )
    print(json.dumps({"client_memory": given.client_memory, "data_and_imports_mb": resident()}), flush=True)
    run = pr.run(experiment, execution=execution, out=given.out, observers=[Watch(given.out, max(1, rounds // 10))])
    print(json.dumps({"digest": run.summary["digest"][:16], "peak_mb": round(peak_memory() / 2**20)}))


if __name__ == "__main__":
    main()
