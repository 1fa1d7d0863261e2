"""What recipes cost on top of FedAvg, beside their own extra arithmetic: LeNet-5, batch 10, 600 samples a client.

What a recipe should cost is FedAvg's time for as many steps, plus what its equations add: vector operations, frozen
passes in large batches, cosines, each timed here alone. The ratio is what it does cost over that. Runs take turns;
processor time; one JSON line for each recipe.

    python benchmarks/recipes.py --engine auto
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, final

import torch
from torch.nn import functional

import polyrhythm as pr
from polyrhythm.bench.works import experiment
from polyrhythm.models import build
from polyrhythm.recipe import Recipe
from polyrhythm.runs.records import ModelView, Plan, RunStatus, VersionRecord, VisitRecord
from polyrhythm.session import carry_out
from polyrhythm.threads import one_thread

SHARED: dict[str, Any] = {"cohort": 10, "epochs": 1, "batch": 10, "lr": 0.01}
RECIPES: Mapping[str, Callable[[], Recipe]] = {
    "FedAvg": lambda: pr.fedavg(**SHARED),
    "SCAFFOLD": lambda: pr.scaffold(**SHARED),
    "ALT": lambda: pr.alt(**SHARED, a=-1.0, b=0.0),  # judged at every step, and never stopped
    "CCFL": lambda: pr.ccfl(**SHARED),
    "FedCL": lambda: pr.fedcl(**SHARED),
    "curriculum": lambda: pr.curriculum_fl(**SHARED),
}
ROUNDS = 4


@final
class Watch:
    """Times a run from its plan to its end, and counts what was done in it."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.done = {"visits": 0, "steps": 0, "forward_samples": 0}

    def begin(self, plan: Plan) -> None:
        self._begun = time.process_time()

    def visit(self, record: VisitRecord) -> None:
        self.done["visits"] += 1
        self.done["steps"] += record.steps
        self.done["forward_samples"] += record.forward_samples

    def version(self, record: VersionRecord, model: ModelView) -> None:
        """Versions need not be told apart."""

    def end(self, status: RunStatus, reason: str, summary: Mapping[str, Any]) -> None:
        self.seconds = time.process_time() - self._begun


def run(recipe: Recipe, engine: str) -> tuple[Watch, str]:
    """A few rounds, and the engine that computed them."""
    of = experiment("lenet5-fmnist", ROUNDS)
    of = dataclasses.replace(of, recipe=recipe, engine=engine, driver="inline")
    watch = Watch()
    carry_out(of, [watch])
    return watch, of.chosen.name


def seconds_of(operation: Callable[[], object], times: int) -> float:
    """The least processor time of one call."""
    best = float("inf")
    for _ in range(5):
        start = time.process_time()
        for _ in range(times):
            operation()
        best = min(best, (time.process_time() - start) / times)
    return best


def alone() -> dict[str, float]:
    """Seconds of what the equations add, each alone."""
    module = build("lenet5", (1, 28, 28), 10)
    size = sum(p.numel() for p in module.parameters())
    vector, other, images = torch.zeros(size), torch.ones(size), torch.randn(600, 1, 28, 28)
    one, two = torch.randn(10, 84), torch.randn(10, 84)
    with torch.no_grad():
        return {
            "vector": seconds_of(lambda: vector.add_(other, alpha=0.5), 1000),
            "norm": seconds_of(lambda: torch.linalg.vector_norm(other), 1000),
            "forward_sample": seconds_of(lambda: module(images), 5) / 600,
            "cosine": seconds_of(lambda: functional.cosine_similarity(one, two).mean() < 0.5, 1000),
        }


def extra(name: str, alone: Mapping[str, float], done: Mapping[str, int]) -> float:
    """Seconds of a recipe's own arithmetic."""
    frozen = done["forward_samples"] * alone["forward_sample"]
    if name == "SCAFFOLD":
        # g + (c - c_i) at each step; c_i and what is sent of it after a visit, and their sum at the server.
        return done["steps"] * alone["vector"] + 5 * done["visits"] * alone["vector"]
    if name == "FedCL":
        return done["steps"] * alone["norm"]
    if name == "ALT":
        return frozen + done["steps"] * alone["cosine"]
    if name == "CCFL":
        return done["visits"] * alone["vector"]
    return frozen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=("auto", "torch", "native"), default="auto")
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    ratios: dict[str, list[float]] = {name: [] for name in RECIPES if name != "FedAvg"}
    engines: dict[str, str] = {}
    with one_thread():
        for _ in range(given.repeats):
            parts = alone()
            step = 0.0
            for name, make in RECIPES.items():
                watch, engines[name] = run(make(), given.engine)
                if name == "FedAvg":
                    step = watch.seconds / watch.done["steps"]
                    continue
                ratios[name].append(watch.seconds / (watch.done["steps"] * step + extra(name, parts, watch.done)))
    for name, found in ratios.items():
        told = {"recipe": name, "engine": engines[name], "fedavg_engine": engines["FedAvg"]}
        print(json.dumps({**told, "ratio": round(statistics.median(found), 3), "least": round(min(found), 3)}))


if __name__ == "__main__":
    main()
