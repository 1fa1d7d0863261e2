"""Seconds a round where clients train a part of the model, against the whole: `python benchmarks/capacity.py lenet5`.

Processor seconds, which are the same on a machine that others use, nearly.

Each line is the best of several rounds of ten clients with 60 images each, in line, on one thread; rounds of
all widths take turns, so that whatever else the machine does befalls all of them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

import polyrhythm as pr
from polyrhythm.data import ArraySamples, Collection
from polyrhythm.experiments.prepared import prepare
from polyrhythm.simulation.simulator import InlineDriver

CLIENTS, HELD, SIDE = 10, 60, 32


def federation(channels: int) -> pr.data.Federation:
    """Noise of the size of padded Fashion-MNIST, or of CIFAR-10: what is learned does not matter here."""
    drawn = np.random.default_rng(0)
    count = CLIENTS * HELD
    inputs = torch.from_numpy(drawn.normal(size=(count, channels, SIDE, SIDE)).astype(np.float32))
    some = ArraySamples(inputs, torch.from_numpy(np.arange(count) % 10))
    data = Collection(name="noise", task="classification", classes=tuple("0123456789"), train=some, test=some)
    return pr.federate(data, pr.data.Iid(), CLIENTS, 0)


def rounds(ratio: float | tuple[float, ...], given: argparse.Namespace) -> Iterator[float]:
    """Gives the processor seconds of one round after the other; the first warms up; after the last nobody trains."""
    recipe = pr.fedavg(cohort=CLIENTS, epochs=2, batch=20) | pr.parts.width_prefix(ratio=ratio)
    own = {} if given.width == 1 else {"width": given.width}

    def model(shape: tuple[int, ...], outputs: int) -> nn.Module:
        return pr.models.build(given.model, shape, outputs, **own)

    data = federation(given.channels)
    experiment = pr.Experiment(federation=data, model=model, recipe=recipe, rounds=given.rounds + 2)
    ready = prepare(experiment, pr.Execution(engine=given.engine, driver="inline"))
    assert ready.chosen.kind == given.engine, ready.chosen.why_not
    driver = InlineDriver(ready.recipe, ready.setup, ready.chosen.engine, ready.data_of, ready.world())
    began = time.process_time()
    for moment in driver.moments(ready.initial):
        if moment.turn.released is not None:
            now = time.process_time()
            yield now - began
            began = time.process_time()


def main() -> None:
    """Prints a table."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("model", nargs="?", default="lenet5")
    asked.add_argument("--engine", default="native")
    asked.add_argument("--rounds", type=int, default=5)
    asked.add_argument("--width", type=float, default=1.0, help="of the whole model, such as 2 for lenet5(width=2)")
    asked.add_argument("--channels", type=int, default=1, help="of an image: 3 for CIFAR-10")
    given = asked.parse_args()
    torch.set_num_threads(1)
    mixed = (0.5, 0.25, 0.125, 0.125)
    widths = {"1": 1.0, "1/2": 0.5, "1/4": 0.25, "1/8": 0.125, "1/2, 1/4, 1/8, 1/8 (mean 1/4)": mixed}
    runs = {name: rounds(ratio, given) for name, ratio in widths.items()}
    taken = {name: [next(run)] for name, run in runs.items()}
    for _ in range(given.rounds):
        for name, run in runs.items():
            taken[name].append(next(run))
    whole = min(taken["1"][1:])
    print(f"{given.model} of width {given.width:g}, {given.engine} engine, {torch.__version__}")
    for name, seconds in taken.items():
        print(f"{name:32} {min(seconds[1:]):8.4f} s a round, {whole / min(seconds[1:]):5.1f} x")


if __name__ == "__main__":
    main()
