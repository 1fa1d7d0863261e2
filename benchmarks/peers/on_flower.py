"""The job on Flower's simulation: message API, its FedAvg, two Ray actors with one processor each.

In its favour: clients index tensors that every actor maps once, in place of the tutorials' DataLoader, and keep their
model from visit to visit; nothing is evaluated by clients.
"""

import functools
import time

import flwr
import job as jobs
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

client_app, server_app = ClientApp(), ServerApp()


@functools.cache
def kept():
    """The job and a model, once in each process."""
    job = jobs.load(jobs.path())
    return job, job.model()


@client_app.train()
def train(message: Message, context: Context) -> Message:
    job, model = kept()
    inputs, targets = job.held(int(context.node_config["partition-id"]))
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    model.train()
    optimiser = torch.optim.SGD(model.parameters(), lr=job.lr)
    for batch in torch.randperm(len(targets)).split(job.work.batch):
        optimiser.zero_grad()
        outputs = model(inputs.index_select(0, batch))
        torch.nn.functional.cross_entropy(outputs, targets.index_select(0, batch)).backward()
        optimiser.step()
    content = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": len(targets)})}
    return Message(content=RecordDict(content), reply_to=message)


@server_app.main()
def serve(grid: Grid, context: Context) -> None:
    job, model = kept()
    ends: list[float] = []

    def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
        ends.append(time.time())
        return MetricRecord({})

    strategy = FedAvg(
        fraction_train=job.work.cohort / job.work.clients,
        fraction_evaluate=0.0,
        min_available_nodes=job.work.clients,
    )
    arrays = ArrayRecord(job.model().state_dict())
    result = strategy.start(grid, arrays, num_rounds=job.rounds, evaluate_fn=evaluate, timeout=600)
    model.load_state_dict(result.arrays.to_torch_state_dict())
    jobs.tell(f"Flower {flwr.__version__}", ends[1:], job.accuracy(model))  # the first one is of the initial model


def main() -> None:
    run_simulation(
        server_app,
        client_app,
        num_supernodes=100,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": 2}},
    )


if __name__ == "__main__":
    import on_flower  # so that the actors find the functions in a module and not in a script

    on_flower.main()
