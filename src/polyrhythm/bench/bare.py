"""FedAvg as one would write it by hand in plain PyTorch: what the benchmarks are compared with.

Imports nothing of polyrhythm. Samples lie in two tensors, batches are `index_select`ed, SGD is a loop over the
parameters. One process, or several with one thread each. Without a job it makes up its own batches and weights; with
one it takes those of another program, so that both do the same work.

    python bare.py [WORK ...] [--rounds 5] [--workers 2]

Prints one JSON line for each work: the seconds that rounds took.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a round is.

    Args:
        name, settings: what polyrhythm calls the network.
        model: builds it.
        shape: of one sample; a text if it has one axis of token numbers.
        classes: number of classes, or of tokens.
        clients, samples: how many, and how many samples each holds.
        cohort: clients in a round.
        batch: samples in a step.
        epochs, steps: of a visit; steps if it is not 0. Steps go on through the data from visit to visit.
        lr, momentum, decay: of SGD.
        draws: whether the network has dropout.
        deep: whether its steps jump with rounding, where two pixels nearly tie in a pooling.
    """

    name: str
    settings: dict[str, int | str] = field(default_factory=dict)
    model: Callable[[], nn.Module]
    shape: tuple[int, ...]
    classes: int = 10
    clients: int = 100
    samples: int = 600
    cohort: int = 10
    batch: int = 10
    epochs: int = 1
    steps: int = 0
    lr: float = 0.1
    momentum: float = 0.0
    decay: float = 0.0
    draws: bool = False
    deep: bool = False


def lenet5(channels: int, features: int) -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(channels, 6, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(features, 120), nn.ReLU()),
        *(nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
    )


def mlp() -> nn.Module:
    return nn.Sequential(
        *(nn.Flatten(), nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 10))
    )


def ccfl_mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 50), nn.Dropout(0.5), nn.ReLU(), nn.Linear(50, 10))


def alexnet() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 64, 11, stride=4, padding=5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(), nn.Conv2d(384, 256, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Dropout(0.05), nn.Linear(256, 128), nn.ReLU(), nn.Dropout(0.05), nn.Linear(128, 128), nn.ReLU()),
        nn.Linear(128, 10),
    )


def vgg11() -> nn.Module:
    layers: list[nn.Module] = []
    channels = 3
    for width in (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0):  # 0 is a pooling
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()] if width else [nn.MaxPool2d(2)]
        channels = width or channels
    layers += [nn.Flatten(), nn.Dropout(0.05), nn.Linear(512, 512), nn.ReLU()]
    return nn.Sequential(*layers, nn.Dropout(0.05), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


def in_groups(channels: int) -> nn.Module:
    return nn.GroupNorm(16, channels)


def resnet9(norm: Callable[[int], nn.Module] = in_groups) -> nn.Module:
    def block(inputs: int, outputs: int, *pool: nn.Module) -> nn.Module:
        return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), norm(outputs), nn.ReLU(), *pool)

    class Residual(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.layers = nn.Sequential(block(width, width), block(width, width))

        def forward(self, inputs: Tensor) -> Tensor:
            return inputs + self.layers(inputs)  # type: ignore[no-any-return]

    return nn.Sequential(
        *(block(3, 64), block(64, 128, nn.MaxPool2d(2)), Residual(128)),
        *(block(128, 256, nn.MaxPool2d(2)), block(256, 512, nn.MaxPool2d(2)), Residual(512)),
        *(nn.MaxPool2d(4), nn.Flatten(), nn.Linear(512, 10)),
    )


def resnet18(norm: Callable[[int], nn.Module] = in_groups) -> nn.Module:
    def layer(inputs: int, outputs: int, kernel: int, stride: int) -> list[nn.Module]:
        return [nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False), norm(outputs)]

    class Block(nn.Module):
        def __init__(self, inputs: int, outputs: int, stride: int) -> None:
            super().__init__()
            first, second = layer(inputs, outputs, 3, stride), layer(outputs, outputs, 3, 1)
            self.layers = nn.Sequential(*first, nn.ReLU(), *second)
            self.shortcut = nn.Sequential(*(layer(inputs, outputs, 1, stride) if inputs != outputs else []))

        def forward(self, inputs: Tensor) -> Tensor:
            return functional.relu(self.layers(inputs) + self.shortcut(inputs))

    widths = (64, 64, 64, 128, 128, 256, 256, 512, 512)
    blocks = [Block(a, b, 1 if a == b else 2) for a, b in pairwise(widths)]
    ends = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))
    return nn.Sequential(*layer(3, 64, 3, 1), nn.ReLU(), *blocks, *ends)


class CharLstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(80, 8)
        self.lstm = nn.LSTM(8, 64, num_layers=2, batch_first=True)
        self.output = nn.Linear(64, 80)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.output(self.lstm(self.embedding(tokens))[0][:, -1])  # type: ignore[no-any-return]


RESIDUAL: dict[str, Any] = {"shape": (3, 32, 32), "clients": 10, "cohort": 2, "lr": 0.01, "deep": True}
RESNET9 = RESIDUAL | {"name": "resnet9", "samples": 100, "batch": 50}
RESNET18 = RESIDUAL | {"name": "resnet18", "samples": 40, "batch": 20}
WORKS = {
    "lenet5-fmnist": Work(name="lenet5", model=lambda: lenet5(1, 256), shape=(1, 28, 28), lr=0.01),
    "mlp-fmnist": Work(name="mlp", model=mlp, shape=(1, 28, 28), batch=50),
    "ccfl-fmnist": Work(name="ccfl-mlp", model=ccfl_mlp, shape=(1, 28, 28), batch=32, steps=200, draws=True),
    "lenet5-cifar10": Work(
        name="lenet5",
        model=lambda: lenet5(3, 400),
        shape=(3, 32, 32),
        **{"samples": 500, "epochs": 10, "lr": 0.01, "momentum": 0.9, "decay": 5e-4},  # type: ignore[arg-type]
    ),
    "resnet9-cifar10": Work(model=resnet9, **RESNET9),
    "resnet9-batch-cifar10": Work(model=lambda: resnet9(nn.BatchNorm2d), settings={"norm": "batch"}, **RESNET9),
    "resnet18-cifar10": Work(model=resnet18, **RESNET18),
    "resnet18-batch-cifar10": Work(model=lambda: resnet18(nn.BatchNorm2d), settings={"norm": "batch"}, **RESNET18),
    "alexnet-fmnist": Work(name="alexnet", model=alexnet, shape=(1, 32, 32), clients=20, samples=100, draws=True),
    "vgg11-cifar10": Work(
        name="vgg11",
        model=vgg11,
        shape=(3, 32, 32),
        clients=20,
        samples=64,
        batch=16,
        lr=0.01,
        draws=True,
    ),
    "lstm-shakespeare": Work(
        name="char-lstm",
        settings={"hidden": 64},
        model=CharLstm,
        **{"shape": (80,), "classes": 80, "clients": 20, "samples": 100, "lr": 0.8},  # type: ignore[arg-type]
    ),
}


def made_up(work: Work) -> tuple[Tensor, Tensor]:
    """Samples of the right shape that can be learnt, those of client i in one piece, and their classes."""
    generator = torch.Generator().manual_seed(0)
    count = work.clients * work.samples
    targets = torch.randint(work.classes, (count,), generator=generator)
    if len(work.shape) == 1:
        tokens = torch.randint(work.classes, (count, *work.shape), generator=generator)
        tokens[:, -1] = targets
        return tokens, targets
    centres = torch.randn(work.classes, *work.shape, generator=generator)
    inputs = torch.randn(count, *work.shape, generator=generator)
    return inputs.add_(centres.index_select(0, targets), alpha=0.5), targets


Visit = tuple[int, list[Tensor]]
"""A seed for what the network draws, and the batches: which samples."""


def own_round(work: Work, number: int) -> list[Visit]:
    """The visits of a cohort."""
    generator = torch.Generator().manual_seed(number)
    cohort = torch.randperm(work.clients, generator=generator)[: work.cohort].tolist()
    count = work.steps or work.epochs * -(-work.samples // work.batch)

    def batches(client: int) -> Iterator[Tensor]:
        while True:
            order = client * work.samples + torch.randperm(work.samples, generator=generator)
            yield from torch.split(order, work.batch)

    return [(client, [b for b, _ in zip(batches(client), range(count), strict=False)]) for client in cohort]


class Trainer:
    """Trains one client after the other."""

    def __init__(self, work: Work) -> None:
        self.work, self.model = work, work.model()
        self.inputs, self.targets = made_up(work)
        self.parameters = list(self.model.parameters())
        # What travels: running statistics are averaged as weights are, and only counts of batches are not.
        self.values = [*self.parameters, *(b for b in self.model.buffers() if b.is_floating_point())]

    def visit(self, start: list[Tensor], visit: Visit) -> tuple[list[Tensor], float]:
        """What a client's training adds to the weights and statistics, and its mean loss."""
        work, (seed, batches) = self.work, visit
        torch.manual_seed(seed)
        with torch.no_grad():
            for own, value in zip(self.values, start, strict=True):
                own.copy_(value)
        momenta = [torch.zeros_like(p) for p in self.parameters] if work.momentum else []
        total = torch.zeros(())
        for batch in batches:
            inputs, targets = self.inputs.index_select(0, batch), self.targets.index_select(0, batch)
            loss = functional.cross_entropy(self.model(inputs), targets)
            self.model.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
            with torch.no_grad():
                for i, parameter in enumerate(self.parameters):
                    gradient = parameter.grad
                    assert gradient is not None
                    if work.decay:
                        gradient = gradient.add(parameter, alpha=work.decay)
                    if work.momentum:
                        gradient = momenta[i].mul_(work.momentum).add_(gradient)
                    parameter.add_(gradient, alpha=-work.lr)
        with torch.no_grad():
            return [own - value for own, value in zip(self.values, start, strict=True)], total.item() / len(batches)


class Alone:
    """Everything in this process."""

    def __init__(self, work: Work, weights: list[Tensor] | None) -> None:
        self.trainer = Trainer(work)
        self.weights = weights or [v.detach().clone() for v in self.trainer.values]

    def round(self, visits: list[Visit]) -> float:
        """One round; gives the mean loss."""
        losses = []
        mean = [torch.zeros_like(w) for w in self.weights]
        for visit in visits:
            update, loss = self.trainer.visit(self.weights, visit)
            losses.append(loss)
            for m, u in zip(mean, update, strict=True):
                m.add_(u, alpha=1 / len(visits))
        for w, m in zip(self.weights, mean, strict=True):
            w.add_(m)
        return statistics.fmean(losses)

    def close(self) -> None:
        """Nothing to end."""


class Together:
    """Several processes, each with its share of a round's visits; weights and sums lie in shared memory."""

    def __init__(self, work: Work, weights: list[Tensor] | None, workers: int) -> None:
        trainer = Trainer(work)
        self.weights = [shared(w) for w in weights or trainer.values]
        self.sums = [[shared(torch.zeros_like(w)) for w in self.weights] for _ in range(workers)]
        self.pipes: list[Connection] = []
        self.children = []
        context = multiprocessing.get_context("fork")
        for sums in self.sums:
            here, there = context.Pipe()
            child = context.Process(target=serve, args=(there, trainer, self.weights, sums), daemon=True)
            child.start()
            self.pipes.append(here)
            self.children.append(child)

    def round(self, visits: list[Visit]) -> float:
        """One round; gives the mean loss."""
        for i, pipe in enumerate(self.pipes):
            pipe.send([(seed, [b.numpy() for b in batches]) for seed, batches in visits[i :: len(self.pipes)]])
        losses = [loss for pipe in self.pipes for loss in pipe.recv()]
        for sums in self.sums:
            for w, s in zip(self.weights, sums, strict=True):
                w.add_(s, alpha=1 / len(visits))
        return statistics.fmean(losses)

    def close(self) -> None:
        """Ends the processes."""
        for pipe in self.pipes:
            pipe.send(None)
        for child in self.children:
            child.join()


def shared(values: Tensor) -> Tensor:
    """A copy in shared memory."""
    return values.detach().clone().share_memory_()  # type: ignore[no-any-return, no-untyped-call]


def serve(pipe: Connection, trainer: Trainer, weights: list[Tensor], sums: list[Tensor]) -> None:
    """A process of `Together`."""
    torch.set_num_threads(1)
    while (visits := pipe.recv()) is not None:
        losses = []
        for s in sums:
            s.zero_()
        for seed, batches in visits:
            update, loss = trainer.visit(weights, (seed, [torch.from_numpy(b) for b in batches]))
            losses.append(loss)
            for s, u in zip(sums, update, strict=True):
                s.add_(u)
        pipe.send(losses)


def rounds(
    name: str, workers: int, job: dict[str, Any] | None
) -> Generator[tuple[float, float, list[Tensor]], None, None]:
    """One round after the other: how long it took, its loss, and the weights and statistics after it."""
    work = WORKS[name]
    weights = job["weights"] if job else None
    crew = Alone(work, weights) if workers == 1 else Together(work, weights, workers)
    try:
        number = 0
        while job is None or number < len(job["rounds"]):
            visits = job["rounds"][number] if job else own_round(work, number)
            start = time.perf_counter()
            loss = crew.round(visits)
            yield time.perf_counter() - start, loss, crew.weights
            number += 1
    finally:
        crew.close()


def paced(name: str, workers: int, path: str) -> None:
    """The rounds of a job, one for each line that is read; writes the last weights into the file."""
    job = torch.load(path, weights_only=True)
    made = rounds(name, workers, job)
    for _ in sys.stdin:
        seconds, loss, weights = next(made)
        torch.save(weights, path + ".bare")
        print(json.dumps({"seconds": seconds, "loss": loss}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", nargs="*", choices=[*WORKS, []], help="by default all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.job:
        paced(given.work[0], given.workers, given.job)
        return
    for name in given.work or WORKS:
        made = rounds(name, given.workers, None)
        next(made)  # the first one warms up
        seconds = [next(made)[0] for _ in range(given.rounds)]
        made.close()
        spread = {"seconds": round(statistics.median(seconds), 4), "least": round(min(seconds), 4)}
        print(json.dumps({"work": name, "workers": given.workers, "rounds": given.rounds, **spread}), flush=True)


if __name__ == "__main__":
    main()
