"""A federation of four local nodes: a round of ours beside one of Flower's own FedAvg, and bytes beside the least.

python benchmarks/flower/run.py                # bytes, and four runs in turn on one federation: some minutes
python benchmarks/flower/run.py --bytes        # bytes alone: seconds, and no flwr is needed
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
import shutil
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import polyrhythm as pr
from polyrhythm.base.frozen import replace_unchecked
from polyrhythm.base.messages import Assignment
from polyrhythm.deployment.messages import Order
from polyrhythm.deployment.node import Node
from polyrhythm.deployment.wire import pack
from polyrhythm.experiments.prepared import prepare

NODES, PORT = 4, 8720
TEXT = """
data = "digits"
clients = 4
partition = "iid"
model = "mlp"
method = "fedavg(cohort=4, epochs=2, batch=10)"
checkpoint = {every = "never"}
"""
PYPROJECT = """
[project]
name = "fedavg"
version = "0.1.0"
license = "Apache-2.0"
dependencies = ["flwr"]

[tool.flwr.app]
publisher = "flower"

[tool.flwr.app.components]
serverapp = "fedavg.app:server"
clientapp = "fedavg.app:client"

[tool.flwr.app.config]
folder = ""
rounds = 1
nodes = 4
"""
ROWS = {
    "fedavg, mlp": ("fedavg(cohort=4, batch=10)", "mlp"),
    "fedavg, LeNet-5": ("fedavg(cohort=4, batch=10)", "lenet5"),
    "scaffold, mlp": ("scaffold(cohort=4, batch=10)", "mlp"),
    "compress_top_k(share=0.01), mlp": ("fedavg(cohort=4, batch=10) | compress_top_k(share=0.01)", "mlp"),
    "compress_int8, mlp": ("fedavg(cohort=4, batch=10) | compress_int8", "mlp"),
    "ccfl that skips, mlp": ("ccfl(cohort=4, batch=10, storage=server)", "mlp"),
}


def experiment(method: str, model: str, rounds: int = 1) -> pr.Experiment:
    """Of the digits on four clients."""
    from polyrhythm.config import names

    data = pr.federate(pr.data.digits(), pr.data.Iid(), NODES, 0)
    if model == "lenet5":  # which wants images of 28 x 28 or so
        data = pr.federate(_larger(), pr.data.Iid(), NODES, 0)
    return pr.Experiment(federation=data, model=model, recipe=names.recipe(method), rounds=rounds)


def _larger() -> Any:
    """The digits on a larger field."""
    import dataclasses

    import torch

    def wide(samples: Any) -> Any:
        inputs, targets = samples.batch(torch.arange(len(samples)))
        return pr.data.ArraySamples(torch.nn.functional.interpolate(inputs.view(-1, 1, 8, 8), size=28), targets)

    digits = pr.data.digits()
    return dataclasses.replace(digits, train=wide(digits.train), test=wide(digits.test))


def bytes_of_a_visit(method: str, model: str) -> tuple[int, int, int, int]:
    """What travels down and up in one visit, and the least that both could be: what the run is billed for."""
    made = prepare(experiment(method, model))
    layout, weights = made.chosen.engine.layout, made.initial
    from polyrhythm.core.server import Server
    from polyrhythm.deployment.messages import Answer, Refusal
    from polyrhythm.deployment.wire import unpack
    from polyrhythm.simulation.cost_meter import Meter
    from polyrhythm.simulation.roster import OpenRoster

    with tempfile.TemporaryDirectory() as store:
        server = Server(recipe=made.recipe, setup=made.setup, layout=layout)
        turn = server.begin(weights.weights, weights.buffers, OpenRoster(NODES, range(NODES)))
        for visit in range(40 if "ccfl" in method else 1):  # until one that skips
            sent: Assignment = replace_unchecked(turn.assignments[3], visit=visit, accepted=visit - 1)
            order = Order(run="bench", seed=0, population=NODES, eligible=NODES, keep=(visit,), assignment=sent)
            down = pack(order)
            up = Node(made, sent.client, Path(store)).reply(down)
            answer = unpack(up, Answer, Refusal, spans=tuple((s.offset, s.size) for s in layout.segments))
            assert isinstance(answer, Answer), answer
            if "ccfl" not in method or answer.report.substitute:
                break
        load = Meter(layout).load(sent, answer.report)
    return down.bytes, load.bytes_down, up.bytes, load.bytes_up


def told_of_bytes() -> None:
    """Prints the table of bytes."""
    print("| a visit of | down | least | up | least |\n| --- | --- | --- | --- | --- |")
    for name, (method, model) in ROWS.items():
        print(f"| {name} |" + "|".join(f" {size:,} " for size in bytes_of_a_visit(method, model)) + "|")


def write_data(folder: Path) -> None:
    """The clients' samples and the tests as files for Flower's own apps."""
    made = prepare(experiment("fedavg(cohort=4)", "mlp"))
    for client in range(NODES):
        data = made.data_of(client)
        inputs, targets = data.batch(np.arange(len(data)), None)
        np.savez(folder / f"client-{client}.npz", inputs=inputs.numpy(), targets=targets.numpy())
    import torch

    test = made.federation.test
    inputs, targets = test.batch(torch.arange(len(test)))
    np.savez(folder / "test.npz", inputs=inputs.numpy(), targets=targets.numpy())


def runs(rounds: int, turns: int, folder: Path) -> Iterator[dict[str, Any]]:
    """Ours and Flower's in turn, on one federation."""
    from polyrhythm.cli.flowering import up
    from polyrhythm.deployment.local.loopback import Loopback
    from polyrhythm.results import Run

    (folder / "experiment.toml").write_text(TEXT)
    theirs = folder / "theirs"
    (theirs / "fedavg").mkdir(parents=True)
    (theirs / "pyproject.toml").write_text(PYPROJECT)
    (theirs / "fedavg" / "__init__.py").write_text("")
    shutil.copy(Path(__file__).with_name("fedavg.py"), theirs / "fedavg" / "app.py")
    write_data(folder)
    federation = Loopback(folder / "federation", PORT)
    try:
        for turn in range(turns):
            settings = [f"rounds={rounds}", f"seed={turn}"]
            with contextlib.redirect_stdout(io.StringIO()):
                up(
                    folder / "experiment.toml",
                    None,
                    settings,
                    out=str(folder / "runs"),
                    **{"folder": folder / "federation", "port": PORT, "keep": True, "resume": False},
                    **{"log_updates": False, "as_json": True},
                )
            run = Run.all(folder / "runs")[-1]
            wall = run.history["time"].tolist()
            worked = run.visits["compute_seconds"].tolist()
            yield {
                "who": "polyrhythm",
                "rounds": [b - a for a, b in itertools.pairwise(wall)],
                "worked": statistics.median(worked),
                "accuracy": run.summary["final_accuracy"],
            }
            said = {"folder": str(folder), "rounds": rounds, "nodes": NODES}
            stream = federation.begin(theirs, said)
            log, _ = stream.communicate(timeout=900)
            if not (folder / "told.json").exists():
                raise SystemExit(log)
            told = json.loads((folder / "told.json").read_text())
            (folder / "told.json").unlink()
            yield {
                "who": "Flower's FedAvg",
                "rounds": told["rounds"],
                "worked": statistics.median(told["seconds"]),
                "accuracy": told["accuracy"],
            }
    finally:
        federation.down()


def main() -> None:
    """Measures and prints."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--bytes", action="store_true", help="bytes alone")
    asked.add_argument("--rounds", type=int, default=4)
    asked.add_argument("--turns", type=int, default=2)
    given = asked.parse_args()
    told_of_bytes()
    if given.bytes:
        return
    print("\n| turn | s a round | of that in the client app | accuracy |\n| --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        for done in runs(given.rounds, given.turns, Path(folder)):
            each = ", ".join(f"{seconds:.1f}" for seconds in done["rounds"])
            mean = statistics.fmean(done["rounds"])
            print(
                f"| {done['who']} | {mean:.1f} ({each}) | {done['worked']:.2f} | {done['accuracy']:.3f} |", flush=True
            )


if __name__ == "__main__":
    main()
