"""A large federation really trained: logistic regression on made-up data of ten samples a client, in processor time.

python benchmarks/population.py --clients 100000 --cohort 1000 --rounds 20
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

import polyrhythm as pr
from polyrhythm.base.streams import stream
from polyrhythm.experiments.prepared import prepare
from polyrhythm.experiments.session import carry_out
from polyrhythm.runs.environment import peak_memory

CLASSES, FEATURES, PER_CLIENT = 10, 20, 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=100_000)
    parser.add_argument("--cohort", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--method", choices=("synchronous", "rolling"), default="synchronous")
    given = parser.parse_args()
    generator, started = stream(0, "synthetic", "population"), time.process_time()
    centres = generator.normal(size=(CLASSES, FEATURES))
    labels = generator.integers(0, CLASSES, given.clients * PER_CLIENT + 2_000)
    inputs = (centres[labels] + generator.normal(size=(len(labels), FEATURES))).astype(np.float32)
    collection = pr.data.arrays(inputs[:-2_000], labels[:-2_000], test=(inputs[-2_000:], labels[-2_000:]))
    federation = pr.federate(collection, pr.data.DirichletPerClient(beta=0.3), clients=given.clients, seed=0)
    recipe = pr.fedavg(cohort=given.cohort, epochs=1, batch=10)
    if given.method == "rolling":
        recipe = recipe | pr.parts.rolling() | pr.parts.buffer(size=max(1, given.cohort // 10))
    experiment = pr.Experiment(
        federation=federation,
        model="logistic",
        recipe=recipe,
        fleet=pr.Fleet(devices=pr.fleet.Tiers()),
        rounds=given.rounds,
        evaluation=pr.Evaluation(every=given.rounds),
    )
    ready = time.process_time()
    summary = carry_out(prepare(experiment), [])
    seconds = time.process_time() - ready
    print(
        json.dumps(
            {
                "clients": given.clients,
                "cohort": given.cohort,
                "method": given.method,
                "rounds": given.rounds,
                "accuracy": round(summary["final_accuracy"], 4),
                "client_updates": summary["client_updates"],
                "seconds_to_prepare": round(ready - started, 1),
                "seconds": round(seconds, 1),
                "visits_per_second": round(summary["client_updates"] / seconds),
                "peak_memory_mb": round(peak_memory() / 2**20),
            }
        )
    )


if __name__ == "__main__":
    main()
