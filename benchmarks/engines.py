"""What each engine makes of a round: a cohort's visits of one epoch, and nothing of the server, beside the torch one.

All engines go through the client core, with one thread, and take turns, so that whoever else uses the machine disturbs
all of them; of several repeats the quickest counts, in processor time (on a GPU in seconds of the clock). Made-up data
in the shapes of `polyrhythm bench`. One line of JSON a work: seconds, their ratios to torch's (below 1 is quicker), the
processor seconds until each engine was there (the first that imports much of torch pays for it), and
which one the rule chooses.

    python benchmarks/engines.py [WORK ...] [--engines native stacked] [--repeats 7] [--device cpu]
    python benchmarks/engines.py --convolutions     native beside torch, for convolutions of all sizes
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

import polyrhythm as pr
from polyrhythm.base.messages import Assignment
from polyrhythm.base.streams import torch_generator
from polyrhythm.base.threads import one_thread
from polyrhythm.bench.bare import WORKS
from polyrhythm.bench.works import experiment
from polyrhythm.core.client_state import ClientState
from polyrhythm.data import ArraySamples, Collection
from polyrhythm.engines.devices import device_of
from polyrhythm.experiments.prepared import prepare


class Way:
    """An engine, and a cohort's visits for it.

    Args:
        experiment: what is computed.
        execution: on that engine.
    """

    def __init__(self, experiment: pr.Experiment, execution: pr.Execution) -> None:
        begun = sum(os.times()[:4])
        of = prepare(experiment, execution)
        self.chosen = of.chosen
        self.start = sum(os.times()[:4]) - begun
        weights = self.chosen.engine.initial().weights
        self._executor = of.crew.executor(of.clients)
        self._tasks = [
            of.clients.task(
                Assignment(
                    **{
                        "dispatch": client,
                        "client": client,
                        "visit": 0,
                        "version": 0,
                        "kind": "train",
                        "total_rounds": 1,
                    },
                    **{"recipe": of.recipe.digest, "weights": weights, "buffers": (), "briefs": {}, "accepted": -1},
                ),
                ClientState(),
            )
            for client in range(of.recipe.cohort)
        ]
        self._clock = time.process_time if device_of(execution.device).type == "cpu" else time.perf_counter
        self.best = float("inf")

    def go(self) -> None:
        """All visits once."""
        begun = self._clock()
        for future in self._executor.start(self._tasks):
            self._executor.done(future)
        self.best = min(self.best, self._clock() - begun)


def taken(
    of: pr.Experiment, engines: list[Any], repeats: int, device: str = "auto"
) -> tuple[dict[str, Way], dict[str, str]]:
    """The ways of those engines that take an experiment, measured in turn, and why the others do not."""
    ways = {
        engine: Way(of, pr.Execution(engine=engine, driver="inline", device=device if engine == "stacked" else "auto"))
        for engine in ("torch", *engines)
    }
    refused = {engine: way.chosen.why_not for engine, way in ways.items() if way.chosen.kind != engine}
    going = {engine: way for engine, way in ways.items() if engine not in refused}
    for _ in range(repeats):
        for way in going.values():
            way.go()
    return going, refused


def ratios(ways: Mapping[str, Way]) -> dict[str, float]:
    """Beside torch."""
    return {engine: round(way.best / ways["torch"].best, 3) for engine, way in ways.items() if engine != "torch"}


def measured(work: str, engines: list[str], repeats: int, device: str) -> dict[str, Any]:
    """One work on some engines."""
    made = experiment(work, 1)
    recipe = made.recipe if WORKS[work].steps else made.recipe | pr.parts.epochs(epochs=1)
    of = dataclasses.replace(made, recipe=recipe)
    ways, refused = taken(of, engines, repeats, device)
    return {
        "work": work,
        "seconds": {engine: round(way.best, 4) for engine, way in ways.items()},
        "ratio": ratios(ways),
        "start": {engine: round(way.start, 2) for engine, way in ways.items()},
        "refused": refused,
        "chosen": prepare(of, pr.Execution(device=device)).chosen.name,
    }


def convolutions(repeats: int) -> Iterator[dict[str, Any]]:
    """Two equal convolutions, of many sizes: how the native engine compares by what one of them multiplies."""
    for side in (8, 16):
        for kernel, channels in ((3, 8), (3, 16), (3, 32), (5, 16), (3, 64), (5, 32), (5, 64), (3, 128), (3, 256)):
            products = (channels * kernel * side) ** 2
            for batch in (10, 32):
                steps = int(max(2, min(60, 3e8 / products / batch)))
                of = _convolving(channels, kernel, side, batch, steps)
                ways, _ = taken(of, ["native"], repeats)
                about = {"channels": channels, "kernel": kernel, "side": side, "batch": batch, "products": products}
                yield {**about, "ratio": ratios(ways)["native"]}


def _convolving(channels: int, kernel: int, side: int, batch: int, steps: int) -> pr.Experiment:
    count, shape = batch * steps, (channels, side, side)
    inputs = torch.randn(count, *shape, generator=torch_generator(0, "synthetic", "convolutions"))
    samples = ArraySamples(inputs, torch.from_numpy(np.arange(count) % 10))
    few = ArraySamples(inputs[:10], samples.targets[:10])
    classes = tuple(map(str, range(10)))
    data = Collection(name="noise", task="classification", classes=classes, train=samples, test=few)
    layers = [nn.Conv2d(channels, channels, kernel, padding=kernel // 2), nn.ReLU()]
    again = [nn.Conv2d(channels, channels, kernel, padding=kernel // 2), nn.ReLU()]
    return pr.Experiment(
        federation=pr.federate(data, pr.data.Iid(), 1, 0),
        model=nn.Sequential(*layers, *again, nn.MaxPool2d(side // 2), nn.Flatten(), nn.Linear(4 * channels, 10)),
        recipe=pr.fedavg(cohort=1, epochs=1, batch=batch, lr=0.01),
        rounds=1,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("works", nargs="*", help="by default all")
    parser.add_argument("--engines", nargs="+", default=["native", "stacked"])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--convolutions", action="store_true")
    given = parser.parse_args()
    with one_thread():
        if given.convolutions:
            for found in convolutions(given.repeats):
                print(json.dumps(found), flush=True)
            return
        for work in given.works or WORKS:
            print(json.dumps(measured(work, given.engines, given.repeats, given.device)), flush=True)


if __name__ == "__main__":
    main()
