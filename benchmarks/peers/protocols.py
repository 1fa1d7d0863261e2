"""One run read as PFLlib reads it, and as we do: by how much a protocol alone flatters.

    PFLLIB=PFLlib python benchmarks/peers/protocols.py --network cnn --rounds 6 fedavg fedper

Fashion-MNIST dealt by PFLlib's own program, seed 1 (its "practical" setting): official training and test samples are
merged, dealt to 20 clients with Dirichlet(0.1), and cut into 75 % for training and 25 % for tests, client by client.
All clients take part in each round, one local epoch in batches of 10, rate 0.005. PFLlib reports the highest accuracy
of any round, pooled over test samples. With --own the official test samples are left out, and the training samples are
dealt with `dirichlet(alpha=0.1)`, a quarter of each client's for its test. Prints a JSON line for each method.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn

import polyrhythm as pr

sys.path.append(str(Path(__file__).parent))
import more

CLIENTS, ALPHA = 20, 0.1
LOCAL: dict[str, Any] = {"cohort": CLIENTS, "epochs": 1, "batch": 10, "lr": 0.005}
METHODS = {
    "fedavg": lambda: pr.fedavg(**LOCAL),
    "fedper": lambda: pr.fedper(**LOCAL),
    "fedrep": lambda: pr.fedrep(**LOCAL, head_epochs=1),
    "ditto": lambda: pr.ditto(**LOCAL, strength=0.0, personal_epochs=1),
}
"""As PFLlib has them by default: mu = 0 makes its Ditto's own models train alone."""


def dnn() -> nn.Module:
    """PFLlib's "DNN": 784–100–10."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 10))


NETWORKS = {"cnn": more.cnn, "dnn": dnn}


def theirs() -> ModuleType:
    """PFLlib's program that deals samples.

    Raises:
        SystemExit: PFLLIB names no checkout.
    """
    checkout = Path(os.environ.get("PFLLIB", "")) / "dataset"
    if not (checkout / "utils" / "dataset_utils.py").is_file():
        raise SystemExit("PFLLIB names no checkout of github.com/TsingZ0/PFLlib")
    sys.path.insert(0, str(checkout))
    sys.modules.setdefault("ujson", mock.MagicMock())
    from utils import dataset_utils

    return dataset_utils


def dealt_by_pfllib(folder: Path, seed: int) -> pr.data.Federation:
    """Its deal and its split of all 70,000 samples."""
    of = pr.data.fashion_mnist()
    parts = [samples.batch(torch.arange(len(samples))) for samples in (of.train, of.test)]
    inputs = np.concatenate([x.numpy() for x, _ in parts])
    labels = np.concatenate([y.numpy() for _, y in parts])
    program = theirs()
    random.seed(seed)
    np.random.seed(seed)  # from which PFLlib draws
    with contextlib.redirect_stdout(io.StringIO()):
        x, y, _ = program.separate_data((inputs, labels), CLIENTS, 10, niid=True, balance=False, partition="dir")
        train, test = program.split_data(x, y)
    arrays: dict[str, np.ndarray] = {}
    for name, pieces in (("train", train), ("test", test)):
        arrays[f"x_{name}"] = np.concatenate([piece["x"] for piece in pieces]).astype(np.float32)
        arrays[f"y_{name}"] = np.concatenate([piece["y"] for piece in pieces])
        arrays[f"client_{name}"] = np.repeat(np.arange(CLIENTS), [len(piece["y"]) for piece in pieces])
    np.savez(folder / "dealt.npz", **arrays)
    collection = pr.data.npz(folder / "dealt.npz")
    return pr.federate(collection, pr.data.ByColumn(column="client"), None, seed, local_test="natural")


def dealt_by_us(seed: int) -> pr.data.Federation:
    """Training samples alone, a quarter of each client's for its test."""
    collection = pr.data.fashion_mnist()
    return pr.federate(collection, pr.data.Dirichlet(alpha=ALPHA), CLIENTS, seed, local_test=0.25)


def read(run: pr.Run) -> dict[str, Any]:
    """What either protocol says of a run."""
    spreads = [row["spread"] for row in run.versions if row["version"]]
    own = "personal" if "personal_mean" in spreads[-1] else "global"
    pooled = [spread[f"{own}_pooled"] for spread in spreads]
    last = spreads[-1]
    return {
        "best_round_pooled": round(max(pooled), 4),
        "best_round": 1 + int(np.argmax(pooled)),
        "last_pooled": round(pooled[-1], 4),
        "last_mean": round(last[f"{own}_mean"], 4),
        "last_worst_tenth": round(last[f"{own}_worst_decile"], 4),
        "sd_over_clients": round(last[f"{own}_sd_over_clients"], 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("method", nargs="+", choices=METHODS)
    parser.add_argument("--network", choices=NETWORKS, default="cnn")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--own", action="store_true", help="our protocol in place of PFLlib's")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        federation = dealt_by_us(given.seed) if given.own else dealt_by_pfllib(folder, given.seed)
        for method in given.method:
            of = pr.Experiment(
                federation=federation,
                model=NETWORKS[given.network](),
                recipe=METHODS[method](),
                rounds=given.rounds,
                seed=given.seed,
                evaluation=pr.Evaluation(every=1, personal_every=1),
            )
            run = pr.run(of, out=folder / "runs", execution=pr.Execution(workers=1))
            told = {"method": method, "network": given.network, "rounds": given.rounds, "seed": given.seed}
            print(json.dumps({**told, "protocol": "ours" if given.own else "PFLlib", **read(run)}), flush=True)


if __name__ == "__main__":
    main()
