"""The most memory that a run takes of whose model only a hundredth is trained, beside that model and the libraries.

The frozen part is 64 layers of 1,024 × 1,024 weights (256 MB); an adapter of rank 8 and an output layer learn. With
`--deep` each layer has an adapter of rank 8; with `--tied` all those layers are one, of 4 MB: the same adapters and
activations over next to no base. With worker processes it is the most that all of them and the driver hold at once,
pages that they share counted once (Pss). One JSON line.

    python benchmarks/frozen.py --workers 0
    python benchmarks/frozen.py --workers 2 --layers 32 --deep
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import tempfile
import threading
from pathlib import Path

import numpy as np
from torch import nn

import polyrhythm as pr
from polyrhythm.models.low_rank import LowRank

WIDTH = 1024


def adapted(layers: int) -> tuple[nn.Module, int]:
    """A frozen stack with an adapter behind it, and the bytes of the stack."""
    base = nn.Sequential(*(part for _ in range(layers) for part in (nn.Linear(WIDTH, WIDTH), nn.Tanh())))
    base.requires_grad_(False)
    learns = (nn.Linear(WIDTH, 8, bias=False), nn.Linear(8, WIDTH, bias=False), nn.Linear(WIDTH, 10))
    return nn.Sequential(base, *learns), size_of(base)


def deep(layers: int, *, tied: bool) -> tuple[nn.Module, int]:
    """A stack with an adapter on each of its frozen layers, which may be one and the same, and the bytes of these."""
    bases = [nn.Linear(WIDTH, WIDTH) for _ in range(1 if tied else layers)]
    adapters = [LowRank(bases[number % len(bases)], 8, 2.0) for number in range(layers)]
    stack = nn.Sequential(*(part for adapter in adapters for part in (adapter, nn.Tanh())), nn.Linear(WIDTH, 10))
    return stack, sum(map(size_of, bases))


def size_of(module: nn.Module) -> int:
    """Bytes of a module's parameters."""
    return sum(p.numel() * p.element_size() for p in module.parameters())


def held() -> float:
    """What this process and those that it started hold, in MB."""
    parents, found = dict[int, int](), {os.getpid()}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return sum(map(pss, found))


def pss(number: int) -> float:
    """A process's part of memory, in MB; none if it has gone."""
    try:
        lines = Path(f"/proc/{number}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:")), 0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--layers", type=int, default=64)
    parser.add_argument("--cohort", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--deep", action="store_true")
    parser.add_argument("--tied", action="store_true")
    given = parser.parse_args()
    random = np.random.default_rng(0)
    inputs, targets = random.normal(size=(640, WIDTH)).astype(np.float32), random.integers(0, 10, 640)
    federation = pr.federate(pr.data.arrays(inputs, targets), pr.data.Iid(), clients=16, seed=0)
    model, base = deep(given.layers, tied=given.tied) if given.deep else adapted(given.layers)
    execution = pr.Execution(
        driver="processes" if given.workers else "inline",
        workers=given.workers or None,
        engine="torch",
        checkpoint=pr.Checkpoint(every="never"),
    )
    experiment = pr.Experiment(
        federation=federation, model=model, recipe=pr.fedavg(cohort=given.cohort, lr=0.01), rounds=given.rounds
    )
    most, over = [held()], threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            most.append(held())

    before, watcher = most[0], threading.Thread(target=watch)
    watcher.start()
    with tempfile.TemporaryDirectory() as folder:
        pr.run(experiment, execution=execution, out=folder)
    over.set()
    watcher.join()
    told = {
        "workers": given.workers,
        "cohort": given.cohort,
        "base_mb": round(base / 2**20),
        "before_mb": round(before),
    }
    print(json.dumps({**told, "peak_mb": round(max(most)), "more_mb": round(max(most) - before)}))


if __name__ == "__main__":
    main()
