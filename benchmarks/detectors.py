"""What it costs to watch for critical periods: the gradient norm beside the Fisher trace.

One client's visit (AlexNet, Fashion-MNIST form; 2 epochs of 256 made-up images in batches of 16) without a detector,
with the gradient norm, and with the Fisher trace, in chunks and all samples at once, each in a process of its own so
that its peak of memory is its own. One thread. Prints one line of JSON per case: seconds and peak memory, absolute and
above the visit without a detector.

    python benchmarks/detectors.py [--samples 256] [--repeats 5]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time

from polyrhythm.runs.environment import peak_memory

CASES = ("nothing", "gradient_norm", "fisher_trace", "fisher_trace_unchunked")


def measure(case: str, samples: int, repeats: int) -> dict[str, float]:
    """Seconds of the quickest visit, and the process's peak memory in MB."""
    import torch

    import polyrhythm as pr
    from polyrhythm.core.client import work
    from polyrhythm.core.memory import ClientState
    from polyrhythm.data.holding import Holding
    from polyrhythm.data.samples import ArraySamples
    from polyrhythm.engines.torch import TorchEngine
    from polyrhythm.models.alexnet import alexnet
    from polyrhythm.slots.critical import CriticalPeriods, FisherTrace, GradientNorm
    from polyrhythm.slots.mechanism import Setup
    from polyrhythm.streams import seeded_torch, torch_generator
    from polyrhythm.tasks import task
    from polyrhythm.threads import one_thread
    from polyrhythm.wires import Assignment

    class Unchunked(TorchEngine):  # type: ignore[misc]
        """Takes the Fisher trace of all samples at once, as the paper does."""

        def fisher(self, model, data, chunk=None):  # type: ignore[no-untyped-def]
            return super().fisher(model, data, chunk=None)

    recipe = pr.fedavg(epochs=2, batch=16, lr=0.01, momentum=0.9, weight_decay=1e-5, clip=10.0)
    if case == "gradient_norm":
        recipe = recipe | CriticalPeriods(detector=GradientNorm(), act=False)
    elif case != "nothing":
        recipe = recipe | CriticalPeriods(detector=FisherTrace(), act=False)
    generator = torch_generator(0, "synthetic", "images")
    inputs = torch.rand(samples, 1, 32, 32, generator=generator)
    targets = torch.randint(10, (samples,), generator=generator)
    with seeded_torch(0, "init"), one_thread():
        kind = Unchunked if case == "fisher_trace_unchunked" else TorchEngine
        engine = kind(alexnet((1, 32, 32), 10), task("classification"))
        layout, first = engine.layout, engine.initial()
        setup = Setup(size=layout.size, dtype=layout.dtype, population=1, horizon=1, seed=0)
        assignment = Assignment(
            dispatch=0,
            client=0,
            visit=0,
            accepted=-1,
            kind="train",
            version=0,
            horizon=1,
            weights=first.weights,
            buffers=first.buffers,
            briefs={},
            recipe=recipe.digest,
        )
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            work(recipe, setup, ClientState(), assignment, Holding(ArraySamples(inputs, targets)), engine)
            times.append(time.perf_counter() - start)
    return {"seconds": min(times), "peak_mb": peak_memory() / 2**20}


def main() -> None:
    """Runs every case in its own process and prints it beside the first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--case", choices=CASES)
    options = parser.parse_args()
    if options.case:
        print(json.dumps(measure(options.case, options.samples, options.repeats)))
        return
    base: dict[str, float] = {}
    for case in CASES:
        command = [sys.executable, __file__, "--case", case, "--samples", str(options.samples)]
        command += ["--repeats", str(options.repeats)]
        found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        base = base or found
        extra = {
            "extra_seconds": round(found["seconds"] - base["seconds"], 4),
            "share_of_visit": round(found["seconds"] / base["seconds"] - 1, 4),
            "extra_peak_mb": round(found["peak_mb"] - base["peak_mb"], 1),
        }
        rounded = {"seconds": round(found["seconds"], 4), "peak_mb": round(found["peak_mb"], 1)}
        print(json.dumps({"detector": case, **rounded, **extra}), flush=True)


if __name__ == "__main__":
    main()
