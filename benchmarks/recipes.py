"""What a recipe costs beside the arithmetic that it must do: FedAvg's for the same steps, and its own on top.

All recipes run on the same made-up data, and make a round each in turn, so that whoever else uses the machine disturbs
all of them; processor seconds count. Rounds are not alike (clients stop early, skip, or make other numbers of epochs),
so a round is compared with what its visits report to have done:

    FedAvg's time of a step in the same turn · steps
    + time of a forward pass, in large batches · samples that only went forward
    + three times as much · samples whose own gradient was taken
    + time of an operation on a vector as large as the model · such operations, which `VECTORS` counts

of which all but the first are the recipe's own extra arithmetic. The times are measured in the same turns: `add_` in a
round of six vectors, as many as a step has, for operations at a step; a new sum of two among a hundred, one for each
client, for those of a visit or a version; a sum in memory that the process did not have before, for the state that a
client's first visit leaves behind. One line of JSON a case:

    python benchmarks/recipes.py --engine native --work lenet5 --rounds 9 moon alt
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

import polyrhythm as pr
from polyrhythm.base.compiled import extension
from polyrhythm.base.streams import torch_generator
from polyrhythm.base.threads import one_thread, settled_memory
from polyrhythm.data import ArraySamples, Collection
from polyrhythm.experiments.prepared import Prepared, prepare
from polyrhythm.methods.participation.critical_periods import FisherTrace
from polyrhythm.methods.recipe import Recipe
from polyrhythm.models import build
from polyrhythm.simulation.simulator import InlineDriver

CLIENTS, HELD, COHORT = 100, 600, 10

# Model, its settings, batch, and the width of its representation.
WORKS: dict[str, tuple[str, dict[str, Any], int, int]] = {
    "lenet5": ("lenet5", {}, 10, 84),
    "mlp": ("mlp", {}, 50, 200),
}


def recipes(batch: int) -> dict[str, Recipe]:
    """Every recipe at one epoch, or what it has in the place of epochs."""
    common: dict[str, Any] = {"cohort": COHORT, "epochs": 1, "batch": batch, "lr": 0.01}
    cosmopolitan = {k: v for k, v in common.items() if k != "epochs"}
    fedavg = pr.fedavg(**common)
    return {
        "fedavg": fedavg,
        "fedprox": pr.fedprox(mu=0.01, **common),
        "scaffold": pr.scaffold(**common),
        "vrl_sgd": pr.vrl_sgd(**common),
        "feddyn": pr.feddyn(**common),
        "fednova": pr.fednova(**common),
        "moon": pr.moon(**common),
        "alt": pr.alt(**common | {"epochs": 3}),
        "ccfl": pr.ccfl(**cosmopolitan, steps=HELD // batch),
        "fedcl": pr.fedcl(**common),
        "curriculum_fl": pr.curriculum_fl(**common),
        "client_curriculum": fedavg | pr.parts.client_curriculum(),
        "cc_fedadam": pr.cc_fedadam(**cosmopolitan | {"cohort": 5}),
        "momentum": fedavg | pr.parts.local_sgd(lr=0.01, momentum=0.9, weight_decay=5e-4),
        "local_adam": fedavg | pr.parts.local_adam(),
        "fisher": fedavg | pr.parts.critical_periods(detector=FisherTrace(), act=False),
    }


@dataclass(frozen=True, kw_only=True)
class Vectors:
    """Operations on vectors as large as the model that a recipe makes and FedAvg does not, as so many `add_`s.

    Args:
        step: at each step.
        visit: for each visit that trains, at the client and at the server.
        version: at each server step.
        kept: vectors that a client's first visit leaves behind.
        features: operations on each number of a batch's representation at each step, where one is looked at.
    """

    step: float = 0
    visit: float = 0
    version: float = 0
    kept: float = 0
    features: float = 0


VECTORS: dict[str, Vectors] = {
    # w - w0, times mu onto g
    "fedprox": Vectors(step=2),
    # + shift; c - c_i, update / travel, - c, + c_i, is it finite, its part of the sum (2); c + sum
    "scaffold": Vectors(step=1, visit=7, version=1, kept=1),
    # - d; -d, the mean (2), mean - update, / travel, + d
    "vrl_sgd": Vectors(step=1, visit=6, kept=1),
    # as prox, and the dual; -l, l - alpha update, the sum (2); h + sum, mean - h / alpha
    "feddyn": Vectors(step=3, visit=4, version=2, kept=1),
    # the last model; three products of representations, and as many multiples of them in the gradient
    "moon": Vectors(visit=1, kept=1, features=6),
    # one product and two lengths, in double precision
    "alt": Vectors(features=6),
    # the movement
    "ccfl": Vectors(kept=1),
    # |g|^2
    "fedcl": Vectors(step=1),
    # both moments, the root, the quotient
    "cc_fedadam": Vectors(version=8),
    # wd w onto g; the moment
    "momentum": Vectors(step=2),
    "local_adam": Vectors(step=7),
}


def federation() -> pr.data.Federation:
    """Noise around ten centres, so that there is something to learn."""
    generator = torch_generator(0, "synthetic", "benchmark")
    centres = torch.randn(10, 1, 28, 28, generator=generator)
    labels = torch.randint(0, 10, (CLIENTS * HELD,), generator=generator)
    inputs = centres[labels] + 2 * torch.randn(len(labels), 1, 28, 28, generator=generator)
    few = ArraySamples(inputs[:10], labels[:10])
    classes = tuple(str(c) for c in range(10))
    train = ArraySamples(inputs, labels)
    collection = Collection(name="noise", task="classification", classes=classes, train=train, test=few)
    return pr.federate(collection, pr.data.Iid(), CLIENTS, 0)


@dataclass
class Round:
    """What a round was made of."""

    seconds: float = 0.0
    steps: int = 0
    visits: int = 0
    first: int = 0
    forward: int = 0
    gradients: int = 0


@dataclass
class Runner:
    """One recipe on one engine, a round at a time."""

    prepared: Prepared
    rounds: list[Round] = field(default_factory=list)

    def __post_init__(self) -> None:
        made = self.prepared
        engine = made.chosen.engine
        driver = InlineDriver(made.recipe, made.setup, engine, made.data_of, made.world())
        self._moments = driver.moments(engine.initial())
        self._sent: dict[int, Round] = {}

    def one_round(self) -> None:
        """Goes on until the next version."""
        self.rounds.append(now := Round())
        start = time.process_time()
        for moment in self._moments:
            if moment.report is not None:
                # Carried out when it was sent, maybe before the version before this one.
                of = self._sent.pop(moment.report.dispatch)
                of.steps += moment.report.steps if moment.report.fresh else 0
                of.visits += moment.report.fresh
                of.first += moment.report.fresh and moment.report.visit == 0
                of.forward += moment.report.forward_samples
                of.gradients += moment.report.gradient_samples
            self._sent |= {a.dispatch: now for a in moment.turn.assignments}
            if moment.turn.released is not None:
                break
        now.seconds = time.process_time() - start


def seconds(way: Callable[[], object], times: int) -> float:
    """Processor seconds of a call, the mean of several."""
    start = time.process_time()
    for _ in range(times):
        way()
    return (time.process_time() - start) / times


def measure(work: str, engine: Any, names: list[str], rounds: int) -> Iterator[dict[str, Any]]:
    """Measures some recipes on one engine."""
    model, settings, batch, width = WORKS[work]
    known, data = recipes(batch), federation()
    module = build(model, (1, 28, 28), 10, **settings)
    runners = {
        name: Runner(
            prepare(
                pr.Experiment(federation=data, model=module, recipe=known[name], rounds=rounds + 4),
                pr.Execution(engine=engine),
            )
        )
        for name in dict.fromkeys(["fedavg", *names])
    }
    first = runners["fedavg"].prepared
    one = first.chosen.engine
    start, held = one.initial(), first.data_of(0)
    positions = np.arange(HELD)
    some = [torch.randn(one.layout.size) for _ in range(6)]
    states, kept = [some[0].clone() for _ in range(CLIENTS)], list[torch.Tensor]()
    times: dict[str, list[float]] = {"forward": [], "near": [], "far": [], "new": []}

    def near() -> None:
        for i, vector in enumerate(some):
            vector.add_(some[i - 1], alpha=1e-3)

    def far() -> None:
        for i, state in enumerate(states):
            states[i] = state + states[i - 1]

    def new() -> None:
        kept.append(some[0] + some[1])

    for turn in range(rounds + 2):
        for runner in runners.values():
            runner.one_round()
        times["forward"].append(seconds(lambda: one.evaluate(start, held, positions), 3) / HELD)
        times["near"].append(seconds(near, 30) / len(some))
        times["far"].append(seconds(far, 2) / len(states))
        times["new"].append(seconds(new, 20))
        if turn < 2:  # the first rounds make room
            for several in times.values():
                several.clear()
            for runner in runners.values():
                runner.rounds.clear()
    for runner in runners.values():  # whose visits were carried out, but not yet heard of
        runner.one_round()
        runner.rounds.pop()
    for name, runner in runners.items():
        extra = VECTORS.get(name, Vectors())
        parts = []
        for i, (now, base) in enumerate(zip(runner.rounds, runners["fedavg"].rounds, strict=True)):
            at_step = (extra.step + extra.features * batch * width / one.layout.size) * now.steps
            own = at_step * times["near"][i] + (extra.visit * now.visits + extra.version) * times["far"][i]
            own += extra.kept * now.first * times["new"][i]
            own += (now.forward + 3 * now.gradients) * times["forward"][i]
            parts.append((now.seconds, base.seconds / base.steps * now.steps, own))
        took, same, own = (statistics.fmean(p[k] for p in parts) for k in range(3))
        yield {
            "recipe": name,
            "work": work,
            "engine": runner.prepared.chosen.name,
            "seconds_a_round": round(took, 4),
            "us_per_step": round(1e6 * took / statistics.fmean(r.steps for r in runner.rounds), 1),
            "fedavg_same_steps": round(same, 4),
            "own": round(own, 4),
            "forward_samples": round(statistics.fmean(r.forward for r in runner.rounds)),
            "us": {name: round(1e6 * statistics.fmean(several), 2) for name, several in times.items()},
            "ratio": round(statistics.median(t / (s + o) for t, s, o in parts), 3),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("recipes", nargs="*", help="all of them by default")
    parser.add_argument("--engine", action="append", choices=("torch", "native"))
    parser.add_argument("--work", action="append", choices=tuple(WORKS))
    parser.add_argument("--rounds", type=int, default=7)
    asked = parser.parse_args()
    engines = asked.engine or (["torch", "native"] if extension() else ["torch"])
    with one_thread(), settled_memory():
        for work in asked.work or WORKS:
            for engine in engines:
                for line in measure(work, engine, asked.recipes or list(recipes(1)), asked.rounds):
                    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
