"""Works that only peers are compared by: PFLlib's networks on images of the size of MNIST's, all of 20 clients."""

from __future__ import annotations

from types import ModuleType

from torch import nn


def cnn() -> nn.Module:
    """PFLlib's "CNN": two convolutions of 5 by 5 and two linear layers, 582,026 parameters."""
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 10)),
    )


def logistic() -> nn.Module:
    """PFLlib's "MLR"."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))


def add(bare: ModuleType) -> None:
    """Adds them to the works of the bare loop; every program gives the network itself, and not its name."""
    for name, model in {"cnn-mnist": cnn, "logistic-mnist": logistic}.items():
        bare.WORKS[name] = bare.Work(
            name="logistic", model=model, shape=(1, 28, 28), clients=20, samples=200, cohort=20
        )
