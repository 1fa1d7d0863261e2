"""Samples of several arrays: texts of different lengths beside two numbers, given to a model by name.

python examples/own_inputs.py
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import polyrhythm as pr

WORDS, SAMPLES = 40, 600


def tickets() -> tuple[dict[str, Any], np.ndarray]:
    """Messages to a help desk, made up: words (numbers from 1, 0 fills up), hour and age; whether it is urgent [n]."""
    random = np.random.default_rng(0)
    words = [random.integers(1, WORDS, size=random.integers(3, 13)) for _ in range(SAMPLES)]
    numbers = random.normal(size=(SAMPLES, 2))
    urgent = np.array(
        [(text < WORDS / 2).mean() + 0.2 * hour > 0.5 for text, (hour, _) in zip(words, numbers, strict=True)]
    )
    return {"words": words, "numbers": numbers}, urgent


class Desk(nn.Module):
    """The mean of a message's words, beside the numbers.

    Args:
        outputs: classes.
    """

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.vectors, self.last = nn.Embedding(WORDS, 8), nn.Linear(8 + 2, outputs)

    def forward(self, words: Tensor, numbers: Tensor, mask: Tensor) -> Tensor:
        mean = (self.vectors(words) * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)
        outputs: Tensor = self.last(torch.cat([mean, numbers], dim=1))
        return outputs


def main(rounds: int = 20) -> None:
    """Trains on the messages of ten desks, and asks the model about two new ones."""
    inputs, urgent = tickets()
    padding = pr.data.Padding(value={"words": 0}, mask="mask")
    collection = pr.data.arrays(inputs, urgent, padding=padding, name="tickets")
    federation = pr.federate(collection, pr.data.Iid(), clients=10, seed=0)
    recipe = pr.fedavg(cohort=5, epochs=5, lr=1.0)
    run = pr.run(pr.Experiment(federation=federation, model=Desk, recipe=recipe, rounds=rounds))
    print(f"test accuracy {run.summary['final_accuracy']:.3f}")
    print(run.predict([{"words": [3, 1, 4, 1, 5], "numbers": [0.5, 0.0]}, {"words": [39, 38], "numbers": [-1.0, 0.0]}]))


if __name__ == "__main__":
    main()
