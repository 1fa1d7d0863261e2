"""A local step of PFLlib's convolutional network by the size of a batch: native engine, torch engine, large products.

chrt -r 1 python benchmarks/cnn_batches.py

One thread, visits of clients with 200 samples, through the client core; engines take turns, and the quickest visit of
each counts. A sample takes 24.7 million floating-point operations forward and back, by the sizes of the layers; the
gradient of the images is not computed. Prints a JSON line for each batch.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

import polyrhythm as pr
from polyrhythm.base.messages import Assignment
from polyrhythm.base.threads import one_thread
from polyrhythm.core.client import work
from polyrhythm.core.client_state import ClientState
from polyrhythm.data import ArraySamples, Collection
from polyrhythm.experiments.prepared import prepare

sys.path.append(str(Path(__file__).parent / "peers"))
import more

FLOPS = 2 * 2 * 25 * 32 * 576 + 3 * 2 * (25 * 32 * 64 * 64 + 1024 * 512 + 512 * 10)
SAMPLES, SIDE = 200, 768


def visiting(engine: str, batch: int) -> tuple[Callable[[], None], int]:
    """A visit of a client, and how many steps it has."""
    inputs, labels = torch.randn(SAMPLES, 1, 28, 28), torch.arange(SAMPLES) % 10
    samples = ArraySamples(inputs, labels)
    classes = tuple(str(c) for c in range(10))
    noise = Collection(name="noise", task="classification", classes=classes, train=samples, test=samples)
    recipe = pr.fedavg(cohort=1, epochs=1, batch=batch, lr=0.005)
    federation = pr.federate(noise, pr.data.Iid(), 1, 0)
    of = pr.Experiment(federation=federation, model=more.cnn(), recipe=recipe, rounds=1)
    prepared = prepare(of, pr.Execution(engine=engine, workers=1))
    computing = prepared.chosen.engine
    start = computing.initial()
    assignment = Assignment(
        **{"dispatch": 0, "client": 0, "visit": 0, "version": 0, "kind": "train", "total_rounds": 1},
        **{"recipe": recipe.digest, "weights": start.weights, "buffers": (), "briefs": {}, "accepted": -1},
    )

    def visit() -> None:
        work(recipe, prepared.setup, ClientState(), assignment, prepared.data_of(0), computing)

    visit()
    return visit, -(-SAMPLES // batch)


def took(what: Callable[[], object]) -> float:
    """Seconds."""
    begun = time.perf_counter()
    what()
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    given = parser.parse_args()
    one, two, out = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE), torch.empty(SIDE, SIDE)
    with one_thread():
        for batch in (10, 16, 32):
            ways = {engine: visiting(engine, batch) for engine in ("native", "torch")}
            best = dict.fromkeys((*ways, "product"), float("inf"))
            for _ in range(given.repeats):
                for engine, (visit, _steps) in ways.items():
                    best[engine] = min(best[engine], took(visit))
                best["product"] = min(best["product"], took(lambda: torch.mm(one, two, out=out)))
            told: dict[str, float] = {"batch": batch}
            for engine, (_visit, steps) in ways.items():
                told[f"{engine}_ms_a_step"] = round(1e3 * best[engine] / steps, 2)
                told[f"{engine}_gflops"] = round(SAMPLES * FLOPS / best[engine] / 1e9, 1)
            print(json.dumps({**told, "product_gflops": round(2 * SIDE**3 / best["product"] / 1e9, 1)}), flush=True)


if __name__ == "__main__":
    main()
