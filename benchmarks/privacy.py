"""What hiding clients adds to a round of FedAvg: whole rounds with and without `dp`, one run after the other in turns.

    chrt -r 1 python benchmarks/privacy.py

Processor time in this process. Plain and private runs alternate; both have the same cohorts, and so the same work in
the n-th round. Of each round the least of all turns counts, which others on the machine have disturbed least: the sum
of these over the rounds with `dp`, over that without, is the ratio. First and last rounds, which are evaluated, are
left out. Beside it the mean of as many updates alone, plain and with `dp`, and what comes before the first round where
noise has to be found. One JSON line per model.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import polyrhythm as pr
from polyrhythm.base.messages import Report
from polyrhythm.experiments.prepared import prepare
from polyrhythm.methods.mechanism import Release
from polyrhythm.methods.recipe import Recipe
from polyrhythm.runs.observer import Observer
from polyrhythm.runs.records import ModelView, VersionRecord


def digits() -> pr.data.Federation:
    return pr.federate(pr.data.digits(), pr.data.Dirichlet(alpha=0.3), clients=100, seed=0)


def images() -> pr.data.Federation:
    """6,000 images of 28 x 28, of noise: what they are of takes no time."""
    draws = np.random.default_rng(0)
    inputs = draws.normal(size=(6_100, 1, 28, 28)).astype(np.float32)
    labels = np.arange(6_100) % 10
    data = pr.data.arrays(inputs[:6_000], labels[:6_000], test=(inputs[6_000:], labels[6_000:]))
    return pr.federate(data, pr.data.Iid(), clients=100, seed=0)


CLIP = 0.5
MODELS = {"mlp": digits, "lenet5": images}


def experiment(model: str, federation: pr.data.Federation, recipe: Recipe, rounds: int) -> pr.Experiment:
    """A run of a recipe, evaluated at its ends."""
    return pr.Experiment(
        federation=federation,
        model=model,
        recipe=recipe,
        rounds=rounds,
        evaluation=pr.Evaluation(every=rounds),
    )


class Clock(Observer):
    """Processor time at the end of every version."""

    def __init__(self) -> None:
        self.at: list[float] = []

    def version(self, record: VersionRecord, model: ModelView) -> None:
        self.at.append(time.process_time())


def seconds_of_rounds(of: pr.Experiment) -> list[float]:
    """Processor time of each round that is not evaluated."""
    with tempfile.TemporaryDirectory() as out:
        clock = Clock()
        pr.run(of, execution=pr.Execution(checkpoint=pr.Checkpoint(every="never")), out=out, observers=[clock])
    return [after - before for before, after in itertools.pairwise(clock.at)][1:-1]


def mean_of(of: pr.Experiment, cohort: int) -> Callable[[], object]:
    """Makes a version's mean of as many updates, and what its record says of it."""
    prepared = prepare(of)
    recipe, setup = prepared.recipe, prepared.setup
    parts = recipe.server_start(setup)
    # Half of them are clipped, as an adaptive clip would have it.
    directions = [torch.nn.functional.normalize(torch.randn(setup.size), dim=0) for _ in range(cohort)]
    updates = [direction * (CLIP * (0.5 if n % 2 else 2.0)) for n, direction in enumerate(directions)]
    given: dict[str, Any] = {"visit": 0, "version": 0, "kind": "train", "recipe": "", "num_samples": 20}
    release = Release(
        version=0,
        reports=tuple(Report(dispatch=n, client=n, update=update, **given) for n, update in enumerate(updates)),
        shares=(1 / cohort,) * cohort,
        scales=(1.0,) * cohort,
        weights=prepared.initial.weights,
    )

    def make() -> object:
        after, mean, _ = recipe.releasing.mean(setup, parts, release)
        return mean, [mechanism.measures(after[key]) for key, mechanism in recipe.mechanisms()]

    return make


def least(timed: Callable[[], object], turns: int) -> float:
    """Processor time of a call."""
    found = []
    for _ in range(turns):
        begun = time.process_time()
        timed()
        found.append(time.process_time() - begun)
    return min(found)


def measure(model: str, cohort: int, rounds: int, turns: int) -> dict[str, object]:
    """All of it for one model."""
    torch.set_num_threads(1)
    federation = MODELS[model]()
    plain = pr.fedavg(cohort=cohort, epochs=2) | pr.parts.equal()
    private = plain | pr.parts.dp(noise=1.0, clip=CLIP, delta=1e-3)
    both = {
        name: experiment(model, federation, recipe, rounds) for name, recipe in (("plain", plain), ("private", private))
    }
    found_in: dict[str, list[list[float]]] = {name: [] for name in both}
    for turn in range(turns + 1):
        for name, of in both.items():
            seconds = seconds_of_rounds(of)
            if turn:  # the first is to warm up
                found_in[name].append(seconds)
    leasts = {name: sum(map(min, zip(*runs, strict=True))) / (rounds - 2) for name, runs in found_in.items()}
    means = {
        name: least(mean_of(experiment(model, federation, recipe, rounds), cohort), 200)
        for name, recipe in (("plain", plain), ("private", private))
    }
    begun = time.process_time()
    found = plain | pr.parts.dp(epsilon=8.0, delta=1e-3) | pr.parts.poisson()
    prepare(experiment(model, federation, found, rounds))
    before = time.process_time() - begun
    return {
        "model": model,
        "cohort": cohort,
        "round_ms": round(1e3 * leasts["plain"], 3),
        "private_round_ms": round(1e3 * leasts["private"], 3),
        "added_percent": round(100 * (leasts["private"] / leasts["plain"] - 1), 2),
        "mean_ms": round(1e3 * means["plain"], 3),
        "private_mean_ms": round(1e3 * means["private"], 3),
        "mean_added_percent": round(100 * (means["private"] - means["plain"]) / leasts["plain"], 2),
        "seconds_before_round_1_with_epsilon": round(before, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--cohort", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=22)
    parser.add_argument("--turns", type=int, default=15)
    given = parser.parse_args()
    for model in given.models:
        print(json.dumps(measure(model, given.cohort, given.rounds, given.turns)), flush=True)


if __name__ == "__main__":
    main()
