"""Flower's own FedAvg with the same model, data and work, written as its documentation does: two apps for `flwr run`.

In its favour: a client reads its samples from a file of its own, and imports nothing but torch and flwr.
"""

import itertools
import json
import time
from pathlib import Path

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from torch import nn

client = ClientApp()  # each on a line of its own: Flower looks for the names before it runs anything
server = ServerApp()


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 10)
    )


def samples(path: Path) -> tuple[torch.Tensor, torch.Tensor]:
    with np.load(path) as file:
        return torch.from_numpy(file["inputs"]), torch.from_numpy(file["targets"])


@client.train()
def train(message: Message, context: Context) -> Message:
    begun, model = time.perf_counter(), mlp()
    torch.set_num_threads(1)
    folder = Path(str(context.run_config["folder"]))
    inputs, targets = samples(folder / f"client-{context.node_config['client']}.npz")
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        for batch in torch.randperm(len(targets)).split(10):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(inputs[batch]), targets[batch]).backward()
            optimiser.step()
    metrics = {"num-examples": len(targets), "seconds": time.perf_counter() - begun}
    return Message(
        RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord(metrics)}), reply_to=message
    )


@server.main()
def serve(grid: Grid, context: Context) -> None:
    folder, rounds = Path(str(context.run_config["folder"])), int(context.run_config["rounds"])
    inputs, targets = samples(folder / "test.npz")
    torch.manual_seed(0)
    model = mlp()
    ends: list[float] = []

    def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
        model.load_state_dict(arrays.to_torch_state_dict())
        with torch.no_grad():
            right = (model(inputs).argmax(dim=1) == targets).float().mean().item()
        ends.append(time.time())
        return MetricRecord({"accuracy": right})

    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_available_nodes=int(context.run_config["nodes"]))
    result = strategy.start(grid, ArrayRecord(model.state_dict()), num_rounds=rounds, evaluate_fn=evaluate, timeout=600)
    told = {
        "rounds": [b - a for a, b in itertools.pairwise(ends)],
        "seconds": [float(m["seconds"]) for m in result.train_metrics_clientapp.values()],
        "accuracy": float(result.evaluate_metrics_serverapp[rounds]["accuracy"]),
    }
    (folder / "told.json").write_text(json.dumps(told))
