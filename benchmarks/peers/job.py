"""What every program here shares: the work in a file, and the line of JSON that it prints. Imports only torch.

A program is started with this folder and the bare loop's on its path, and the job's file in the environment. It does
the job's rounds, and says when each of them ended, in seconds since the epoch.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, replace
from typing import Any

import bare
import more
import torch
from torch import Tensor, nn

more.add(bare)
EVALUATES = os.environ.get("PEER_EVALUATES") == "1"
"""Whether a program measures every version on all training data and on the test set, as PFLlib does by default."""


@dataclass(frozen=True)
class Job:
    """One work: its data, of which client i holds the i-th piece, its initial weights, and how many rounds to make."""

    name: str
    rounds: int
    lr: float
    inputs: Tensor
    targets: Tensor
    test_inputs: Tensor
    test_targets: Tensor
    weights: list[Tensor]

    @property
    def work(self) -> bare.Work:
        return replace(bare.WORKS[self.name], lr=self.lr)

    def model(self) -> nn.Module:
        """The network with its initial weights."""
        model = self.work.model()
        with torch.no_grad():
            for parameter, weight in zip(model.parameters(), self.weights, strict=True):
                parameter.copy_(weight)
        return model

    def held(self, client: int) -> tuple[Tensor, Tensor]:
        """A client's samples: views, not copies."""
        piece = slice(client * self.work.samples, (client + 1) * self.work.samples)
        return self.inputs[piece], self.targets[piece]

    def accuracy(self, model: nn.Module) -> float:
        """Of a model on the test set."""
        with torch.no_grad():
            found = torch.cat([model.eval()(part).argmax(1) for part in self.test_inputs.split(500)])
        return float((found == self.test_targets).float().mean())


def load(path: str) -> Job:
    """The job in a file; its data are mapped, so that processes share them."""
    torch.set_num_threads(1)
    return Job(**torch.load(path, mmap=True))


def tell(name: str, ends: list[float], accuracy: float, **more: Any) -> None:
    """Prints the line."""
    told = {"peer": name, "ends": ends, "accuracy": round(accuracy, 4), "finished": time.time(), **more}
    print(json.dumps(told), flush=True)


def path() -> str:
    """Where the job is."""
    return os.environ["PEER_JOB"]
