"""The job on pfl's simulated backend, in two processes under torchrun.

In its favour: a user's data are views into tensors that both processes map, its order is drawn once, and nothing is
evaluated.
"""

import random
import time

import job as jobs
import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from pfl.version import __version__
from torch import nn


class Learner(nn.Module):
    """A network as pfl wants it: it knows its loss and its metrics."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.network(inputs)

    def loss(self, inputs: torch.Tensor, targets: torch.Tensor, eval: bool = False) -> torch.Tensor:
        self.train(not eval)
        return nn.functional.cross_entropy(self(inputs), targets)

    def metrics(self, inputs: torch.Tensor, targets: torch.Tensor) -> dict:
        return {}


class Clock(TrainingProcessCallback):
    """Notes when each iteration was complete."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        self.ends.append(time.time())
        return False, Metrics()


def main() -> None:
    job = jobs.load(jobs.path())
    random.seed(0), np.random.seed(0), torch.manual_seed(0)
    work = job.work

    def data_of(user: int) -> Dataset:
        inputs, targets = job.held(user)
        order = torch.randperm(len(targets))
        return Dataset([inputs.index_select(0, order), targets.index_select(0, order)], user_id=str(user))

    def sampler() -> int:
        return int(np.random.randint(work.clients))

    learner = Learner(job.model())
    model = PyTorchModel(learner, torch.optim.SGD, torch.optim.SGD(learner.parameters(), lr=1.0))
    clock = Clock()
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=job.rounds,
            evaluation_frequency=10**6,
            train_cohort_size=work.cohort,
            val_cohort_size=0,
        ),
        backend=SimulatedBackend(training_data=FederatedDataset(data_of, sampler), val_data=None),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_learning_rate=job.lr, local_num_epochs=work.epochs, local_batch_size=work.batch
        ),
        callbacks=[clock],
    )
    if not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0:
        jobs.tell(f"pfl {__version__}", clock.ends, job.accuracy(learner))


if __name__ == "__main__":
    main()
