"""One run read as PFLlib reads it, and as we do: by how much a protocol alone flatters.

    PFLLIB=PFLlib python benchmarks/peers/protocols.py --network cnn --rounds 6 fedavg fedper

Fashion-MNIST dealt by PFLlib's own program, seed 1 (its "practical" setting): official training and test samples are
merged, dealt to 20 clients with Dirichlet(0.1), and cut into 75 % for training and 25 % for tests, client by client.
All clients take part in each round, one local epoch in batches of 10, of which the last, short one is left out, rate
0.005. PFLlib reports the highest accuracy of any version, pooled over test samples. With --own the official test
samples are left out, and the training samples are dealt with `dirichlet(alpha=0.1)`, a quarter of each client's for
its test. With --program the rounds are PFLlib's own program's, on its deal. Prints a JSON line for each method.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn

import polyrhythm as pr
from polyrhythm.runs.spread import spread

sys.path.append(str(Path(__file__).parent))
import more
import pfllib

CLIENTS, CLASSES, ALPHA, BATCH, RATE = 20, 10, 0.1, 10, 0.005
LOCAL: dict[str, Any] = {"cohort": CLIENTS, "epochs": 1, "batch": BATCH, "lr": RATE, "drop_last": True}
METHODS = {
    "fedavg": lambda: pr.fedavg(**LOCAL),
    "fedper": lambda: pr.fedper(**LOCAL),
    "fedrep": lambda: pr.fedrep(**LOCAL, head_epochs=1),
    "ditto": lambda: pr.ditto(**LOCAL, strength=0.0, personal_epochs=1),
}
"""As PFLlib has them by default: mu = 0 makes its Ditto's own models train alone, and its FedProx FedAvg."""
THEIRS = {
    "fedavg": ("serveravg", "FedAvg"),
    "fedper": ("serverper", "FedPer"),
    "fedrep": ("serverrep", "FedRep"),
    "ditto": ("serverditto", "Ditto"),
}
"""Modules of its servers, and their names."""
HEADS = ("fedper", "fedrep")
"""Methods whose models PFLlib splits into a base and a head."""


def dnn() -> nn.Module:
    """PFLlib's "DNN": 784–100–10."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 10))


NETWORKS = {"cnn": more.cnn, "dnn": dnn}
Piece = dict[str, np.ndarray]


def deal(seed: int) -> dict[str, list[Piece]]:
    """PFLlib's deal and its split of all 70,000 samples: "x" and "y" of each client, for training and as its test."""
    of = pr.data.fashion_mnist()
    parts = [samples.batch(torch.arange(len(samples))) for samples in (of.train, of.test)]
    inputs = np.concatenate([x.numpy() for x, _ in parts])
    labels = np.concatenate([y.numpy() for _, y in parts])
    sys.modules.setdefault("ujson", mock.MagicMock())
    pfllib.importable("dataset")
    from utils import dataset_utils

    random.seed(seed)
    np.random.seed(seed)  # from which PFLlib draws
    with contextlib.redirect_stdout(io.StringIO()):
        x, y, _ = dataset_utils.separate_data(
            (inputs, labels), CLIENTS, CLASSES, niid=True, balance=False, partition="dir"
        )
        train, test = dataset_utils.split_data(x, y)
    return {"train": train, "test": test}


def dealt_by_pfllib(folder: Path, seed: int) -> pr.data.Federation:
    """Its deal as a federation."""
    arrays: dict[str, np.ndarray] = {}
    for name, pieces in deal(seed).items():
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


def by_program(method: str, network: str, rounds: int, seed: int) -> dict[str, Any]:
    """The same of a run of PFLlib's own program, in the folder that it finds its files from.

    Its Ditto reports the highest of what the global model and the clients' own ones give; ours here is of the latter.
    """
    from flcore.trainmodel import models

    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
    model = models.FedAvgCNN() if network == "cnn" else models.DNN()
    if method in HEADS:
        head, model.fc = model.fc, nn.Identity()
        model = models.BaseHeadSplit(model, head)
    module, name = THEIRS[method]
    settings = pfllib.settings(
        **{"dataset": "dealt", "num_classes": CLASSES, "model": model, "algorithm": name, "global_rounds": rounds},
        **{"local_epochs": 1, "batch_size": BATCH, "local_learning_rate": RATE, "num_clients": CLIENTS},
    )
    scores: list[tuple[float, list[float]]] = []
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        server = getattr(importlib.import_module(f"flcore.servers.{module}"), name)(settings, 0)
        own = "_personalized" if method == "ditto" else ""
        measure = getattr(server, f"test_metrics{own}")

        def measured() -> tuple[Sequence[Any], ...]:
            found: tuple[Sequence[Any], ...] = measure()
            _, sizes, right, _ = found
            scores.append((sum(right) / sum(sizes), [r / n for r, n in zip(right, sizes, strict=True)]))
            return found

        setattr(server, f"test_metrics{own}", measured)
        for what in ("train_metrics", f"train_metrics{own}"):
            setattr(server, what, lambda: ([0], [1], [0.0]))  # changes no weight, and takes long
        server.train()
    over = spread(scores[-1][1])
    assert over is not None
    return {
        "best_round_pooled": round(max(server.rs_test_acc), 4),
        "best_round": int(np.argmax([pooled for pooled, _ in scores])),
        "last_pooled": round(scores[-1][0], 4),
        "last_mean": round(over.mean, 4),
        "last_worst_tenth": round(over.worst, 4),
        "sd_over_clients": round(over.sd, 4),
    }


def of_program(folder: Path, methods: Sequence[str], network: str, rounds: int, seed: int) -> None:
    """Prints what PFLlib's own program gives."""
    for name, pieces in deal(seed).items():
        (at := folder / "dataset" / "dealt" / name).mkdir(parents=True)
        for client, piece in enumerate(pieces):
            np.savez_compressed(at / f"{client}.npz", data=piece)
    (folder / "system").mkdir()
    pfllib.importable("system", pfllib.NOT_USED)
    with contextlib.chdir(folder / "system"):
        for method in methods:
            tell(method, network, rounds, seed, "PFLlib's program", by_program(method, network, rounds, seed))


def tell(method: str, network: str, rounds: int, seed: int, protocol: str, found: dict[str, Any]) -> None:
    """One line of JSON."""
    told = {"method": method, "network": network, "rounds": rounds, "seed": seed, "protocol": protocol}
    print(json.dumps({**told, **found}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("method", nargs="+", choices=METHODS)
    parser.add_argument("--network", choices=NETWORKS, default="cnn")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--own", action="store_true", help="our protocol in place of PFLlib's")
    which.add_argument("--program", action="store_true", help="PFLlib's own program in place of ours")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if given.program:
            of_program(folder, given.method, given.network, given.rounds, given.seed)
            return
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
            tell(method, given.network, given.rounds, given.seed, "ours" if given.own else "PFLlib's", read(run))


if __name__ == "__main__":
    main()
