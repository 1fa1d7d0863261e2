"""The most memory that a run of 100,000 clients takes beside its data, images of 28×28 pixels like MNIST's.

Each client holds one image, 10,000 more are for tests; LeNet-5 trains with 100 clients a round. What is told is the
most that the whole process ever held, interpreter and torch included, less the data's own bytes. One JSON line.

    python benchmarks/memory.py --clients 100000 --rounds 10
"""

from __future__ import annotations

import argparse
import json

import torch

import polyrhythm as pr
from polyrhythm.data import ArraySamples, Collection
from polyrhythm.experiments.prepared import prepare
from polyrhythm.experiments.session import carry_out
from polyrhythm.runs.environment import peak_memory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--cohort", type=int, default=100)
    given = parser.parse_args()
    imported = peak_memory() / 2**20
    sets = [ArraySamples(torch.randn(n, 1, 28, 28), torch.randint(10, (n,))) for n in (given.clients, 10_000)]
    data = sum(i.numel() * i.element_size() for samples in sets for i in (samples.inputs, samples.targets)) / 2**20
    classes = tuple(map(str, range(10)))
    collection = Collection(name="noise", task="classification", classes=classes, train=sets[0], test=sets[1])
    federation = pr.federate(collection, pr.data.Iid(), clients=given.clients, seed=0)
    recipe = pr.fedavg(cohort=given.cohort, batch=10, lr=0.01)
    experiment = pr.Experiment(federation=federation, model="lenet5", recipe=recipe, rounds=given.rounds)
    summary = carry_out(prepare(experiment, pr.Execution(driver="inline")), [])
    told = {"clients": given.clients, "client_updates": summary["client_updates"], "data_mb": round(data)}
    print(
        json.dumps(
            {
                **told,
                "imported_mb": round(imported),
                "peak_mb": round(peak_memory() / 2**20),
                "beside_the_data_mb": round(peak_memory() / 2**20 - data),
            }
        )
    )


if __name__ == "__main__":
    main()
