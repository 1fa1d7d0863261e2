"""What the native engine gains: a client's local round, and ten of them on two threads, beside torch.

The native engine and the torch engine both go through the client core; "bare" is the loop that anybody would write with
`torch.optim`. Made-up data of the real shapes. They take turns, so that whoever else uses the machine disturbs all of
them, and the quickest of several repeats counts. One line of JSON a case; times in microseconds a step of one client.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch.nn import functional

import polyrhythm as pr
from polyrhythm.base.compiled import extension
from polyrhythm.base.messages import Assignment
from polyrhythm.base.streams import stream, torch_generator
from polyrhythm.base.threads import one_thread
from polyrhythm.core.client import work
from polyrhythm.core.client_state import ClientState
from polyrhythm.core.protocols import Engine
from polyrhythm.data import ArraySamples, Collection
from polyrhythm.engines.native.engine import NativeEngine
from polyrhythm.experiments.prepared import prepare
from polyrhythm.models import build

REPEATS = 7
CLIENTS, HELD, COHORT = 100, 600, 10

# Model and its settings, shape of a sample, batch, steps (None: one epoch), optimiser.
CASES: dict[str, tuple[str, dict[str, Any], tuple[int, ...], int, int | None, dict[str, float]]] = {
    "LeNet-5, 28×28, batch 10": ("lenet5", {}, (1, 28, 28), 10, None, {"lr": 0.01}),
    "MLP 784-200-200-10, batch 50": ("mlp", {}, (1, 28, 28), 50, None, {"lr": 0.05}),
    "MLP 784-50-10, batch 32, 200 steps": ("mlp", {"hidden": (50,)}, (1, 28, 28), 32, 200, {"lr": 0.05}),
    "LeNet-5, 3×32×32, batch 10, momentum": (
        *("lenet5", {}, (3, 32, 32), 10, None),
        {"lr": 0.01, "momentum": 0.9, "weight_decay": 5e-4},
    ),
    "logistic regression 784-10, batch 10": ("logistic", {}, (1, 28, 28), 10, None, {"lr": 0.05}),
    "AlexNet, 3×32×32, batch 32, 5 steps": ("alexnet", {"dropout": 0.0}, (3, 32, 32), 32, 5, {"lr": 0.01}),
}


def data(shape: tuple[int, ...]) -> Collection:
    """Noise with random labels."""
    generator = torch_generator(0, "synthetic", "benchmark")
    count = CLIENTS * HELD if shape != (3, 32, 32) else CLIENTS * HELD // 5
    inputs = torch.randn(count, *shape, generator=generator)
    labels = torch.randint(0, 10, (count,), generator=generator)
    samples = ArraySamples(inputs, labels)
    few = ArraySamples(inputs[:10], labels[:10])
    classes = tuple(str(c) for c in range(10))
    return Collection(name="noise", task="classification", classes=classes, train=samples, test=few)


def quickest(ways: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The least seconds of each way; they take turns."""
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(REPEATS):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def case(name: str) -> dict[str, Any]:
    """Measures one case."""
    model, settings, shape, batch, steps, optimiser = CASES[name]
    module = build(model, shape, 10, **settings)
    federation = pr.federate(data(shape), pr.data.Iid(), CLIENTS, 0)
    recipe = pr.fedavg(cohort=COHORT, epochs=1, batch=batch) | pr.parts.local_sgd(**optimiser)
    if steps is not None:
        recipe = recipe | pr.parts.steps(steps=steps)
    experiment = pr.Experiment(federation=federation, model=module, recipe=recipe, rounds=1)
    native, plain = (prepare(experiment, pr.Execution(engine=e)) for e in ("native", "torch"))
    first = native.chosen.engine
    assert isinstance(first, NativeEngine), native.chosen.why_not
    start = first.initial()
    engines: list[Engine] = [first, first.twin()]

    def visit(engine: Engine, client: int) -> int:
        assignment = Assignment(
            **{"dispatch": client, "client": client, "visit": 0, "version": 0, "kind": "train", "total_rounds": 1},
            **{"recipe": recipe.digest, "weights": start.weights, "buffers": (), "briefs": {}, "accepted": -1},
        )
        _, report = work(recipe, plain.setup, ClientState(), assignment, plain.data_of(client), engine)
        return report.steps

    count = visit(first, 0)
    visit(plain.chosen.engine, 0)

    def bare() -> None:
        holding, samples = federation.indices(0), federation.train
        sgd = torch.optim.SGD(module.parameters(), **optimiser)
        done = 0
        while done < count:
            order = holding[torch.from_numpy(stream(0, "order", done).permutation(len(holding)))]
            for part in order.split(batch)[: count - done]:
                inputs, labels = samples.batch(part)
                sgd.zero_grad()
                functional.cross_entropy(module(inputs), labels).backward()
                sgd.step()
                done += 1

    def cohort(threads: int) -> None:
        # Every other client on one engine: what a driver with two threads does.
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda t: [visit(engines[t], c) for c in range(t, COHORT, threads)], range(threads)))

    best = quickest(
        {
            "native": lambda: visit(first, 0),
            "torch": lambda: visit(plain.chosen.engine, 0),
            "bare": bare,
            "one": lambda: cohort(1),
            "two": lambda: cohort(2),
        }
    )
    step = {key: round(1e6 * best[key] / count) for key in ("native", "torch", "bare")}
    return {
        "case": name,
        "kernels": extension().kernels()[0],
        "steps": count,
        "us_per_step": step,
        "times_torch": round(best["torch"] / best["native"], 1),
        "times_bare": round(best["bare"] / best["native"], 1),
        "ten_clients_s": {"1 thread": round(best["one"], 4), "2 threads": round(best["two"], 4)},
    }


def main() -> None:
    if extension() is None:
        print("polyrhythm was installed without its compiled extension", file=sys.stderr)
        return
    with one_thread():
        for name in CASES:
            print(json.dumps(case(name), ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
