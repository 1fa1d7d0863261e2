"""Seconds a round where clients train a part of the model, against the whole: `python benchmarks/capacity.py lenet5`.

Each line is the best of several rounds of ten clients with 60 images each, in line, on one thread; rounds of
all widths take turns, so that whatever else the machine does befalls all of them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import numpy as np
import torch

import polyrhythm as pr
from polyrhythm.data import ArraySamples, Collection
from polyrhythm.experiments.prepared import prepare
from polyrhythm.simulation.simulator import InlineDriver

CLIENTS, HELD, SHAPE = 10, 60, (1, 32, 32)


def federation() -> pr.data.Federation:
    """Noise of the size of Fashion-MNIST: what is learned does not matter here."""
    drawn = np.random.default_rng(0)
    count = CLIENTS * HELD
    inputs = torch.from_numpy(drawn.normal(size=(count, *SHAPE)).astype(np.float32))
    some = ArraySamples(inputs, torch.from_numpy(np.arange(count) % 10))
    data = Collection(name="noise", task="classification", classes=tuple("0123456789"), train=some, test=some)
    return pr.federate(data, pr.data.Iid(), CLIENTS, 0)


def rounds(ratio: float | tuple[float, ...], model: str, engine: str, times: int) -> Iterator[float]:
    """Gives the seconds of one round after the other; the first warms up, and after the last one nobody trains."""
    recipe = pr.fedavg(cohort=CLIENTS, epochs=2, batch=20) | pr.parts.width_prefix(ratio=ratio)
    experiment = pr.Experiment(federation=federation(), model=model, recipe=recipe, rounds=times + 2)
    ready = prepare(experiment, pr.Execution(engine=engine, driver="inline"))
    assert ready.chosen.kind == engine, ready.chosen.why_not
    driver = InlineDriver(ready.recipe, ready.setup, ready.chosen.engine, ready.data_of, ready.world())
    began = time.perf_counter()
    for moment in driver.moments(ready.initial):
        if moment.turn.released is not None:
            now = time.perf_counter()
            yield now - began
            began = time.perf_counter()


def main() -> None:
    """Prints a table."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("model", nargs="?", default="lenet5")
    asked.add_argument("--engine", default="native")
    asked.add_argument("--rounds", type=int, default=5)
    given = asked.parse_args()
    torch.set_num_threads(1)
    mixed = (0.5, 0.25, 0.125, 0.125)
    widths = {"1": 1.0, "1/2": 0.5, "1/4": 0.25, "1/8": 0.125, "1/2, 1/4, 1/8, 1/8 (mean 1/4)": mixed}
    runs = {name: rounds(ratio, given.model, given.engine, given.rounds) for name, ratio in widths.items()}
    taken = {name: [next(run)] for name, run in runs.items()}
    for _ in range(given.rounds):
        for name, run in runs.items():
            taken[name].append(next(run))
    whole = min(taken["1"][1:])
    print(f"{given.model}, {given.engine} engine, {torch.__version__}")
    for name, seconds in taken.items():
        print(f"{name:32} {min(seconds[1:]):8.4f} s a round, {whole / min(seconds[1:]):5.1f} x")


if __name__ == "__main__":
    main()
