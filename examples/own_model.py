"""Your own model: any `nn.Module`, trained in a federation, and loaded back into plain torch.

python examples/own_model.py
PYTHONPATH=. polyrhythm run --model "examples.own_model:SmallNet(width=16)"
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import polyrhythm as pr


class SmallNet(nn.Module):
    """A small convolutional network for any image size.

    A parameter named `shape` is given the shape of one sample, one named `outputs` the number of classes; the rest are
    settings of your own.
    """

    def __init__(self, shape: tuple[int, ...], outputs: int, width: int = 8) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(shape[0], width, kernel_size=3, padding=1)
        self.norm = nn.GroupNorm(2, width)
        self.output = nn.Linear(width * 16, outputs)

    def forward(self, images: Tensor) -> Tensor:
        hidden = torch.relu(self.norm(self.convolution(images)))
        outputs: Tensor = self.output(nn.functional.adaptive_avg_pool2d(hidden, 4).flatten(1))
        return outputs


def main(rounds: int = 20) -> None:
    """Trains it, then uses the best weights without this library."""
    federation = pr.federate(pr.data.digits(), pr.data.Dirichlet(alpha=0.3), clients=20, seed=0, validation=0.1)
    experiment = pr.Experiment(federation=federation, model=SmallNet, recipe=pr.fedavg(), rounds=rounds)
    run = pr.run(experiment)
    print(f"{run.summary['rounds']} rounds, final test accuracy {run.summary['final_accuracy']:.3f}")

    model = SmallNet(shape=(1, 8, 8), outputs=10)
    model.load_state_dict(run.weights("best"))
    model.eval()
    images, labels = federation.test.batch(torch.arange(len(federation.test)))
    accuracy = (model(images).argmax(dim=1) == labels).float().mean()
    print(f"best by {run.summary['best_by']}: version {run.summary['best_version']}, in plain torch {accuracy:.3f}")


if __name__ == "__main__":
    main()
