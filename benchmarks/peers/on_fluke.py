"""The job on fluke's FedAVG, which runs in one process.

In its favour: its own fast loader over tensors, nothing is evaluated, no client keeps its model.
"""

import sys
import time
from importlib.metadata import version

import job as jobs
import torch

# fluke imports torchvision for data sets that are not used here. Where torchvision's own operators were built for
# another torch than this one, its import asks in vain for two of them: so they are given names, and nothing else.
try:
    import torchvision  # noqa: F401
except RuntimeError:
    for module in [name for name in sys.modules if name.startswith("torchvision")]:
        del sys.modules[module]
    _OPERATORS = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        _OPERATORS.define(f"{name}(Tensor boxes, Tensor scores, float iou_threshold) -> Tensor")

from fluke import DDict, FlukeENV
from fluke.algorithms.fedavg import FedAVG
from fluke.data import DataContainer, DataSplitter
from fluke.utils import FederationObserver


class Clock(FederationObserver):
    """Notes when each round was complete."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[float] = []

    def end_round(self, round: int) -> None:
        self.ends.append(time.time())


def main() -> None:
    job = jobs.load(jobs.path())
    work = job.work
    environment = FlukeENV()
    environment.set_seed(0)
    environment.set_device("cpu")
    environment.set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=False)
    data = DataContainer(job.inputs, job.targets, job.test_inputs, job.test_targets, work.classes)
    algorithm = FedAVG(
        n_clients=work.clients,
        data_splitter=DataSplitter(data, distribution="iid"),
        hyper_params=DDict(
            client=DDict(
                batch_size=work.batch,
                local_epochs=work.epochs,
                loss="CrossEntropyLoss",
                optimizer=DDict(name="SGD", lr=job.lr),
                scheduler=DDict(name="StepLR", gamma=1, step_size=1),
                persistency=False,
            ),
            server=DDict(weighted=True),
            model=job.model(),
        ),
    )
    clock = Clock()
    algorithm.set_callbacks(clock)
    algorithm.run(n_rounds=job.rounds, eligible_perc=work.cohort / work.clients)
    jobs.tell(f"fluke {version('fluke-fl')}", clock.ends, job.accuracy(algorithm.server.model))


if __name__ == "__main__":
    main()
