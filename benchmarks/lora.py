"""A transformer of which only low-rank adapters learn: seconds of a step of ours beside the same steps by hand.

The frozen part is a decoder of its own making, with neither transformers nor peft; clients learn what follows in
made-up texts. By hand is one client after the other, with `torch.optim.SGD` over the adapters alone. They take turns.
One JSON line.

    python benchmarks/lora.py --width 256 --layers 4
    python benchmarks/lora.py --width 256 --layers 4 --engine stacked
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

import polyrhythm as pr
from polyrhythm.base.streams import torch_generator
from polyrhythm.data import ArraySamples, Collection
from polyrhythm.experiments.prepared import Prepared, prepare
from polyrhythm.models.tasks import task
from polyrhythm.simulation.simulator import InlineDriver


class Adapted(nn.Module):
    """W x + (alpha / rank) B A x: W is frozen, A is drawn and B begins as zero (Hu et al., ICLR 2022, section 4.1)."""

    def __init__(self, inputs: int, outputs: int, rank: int) -> None:
        super().__init__()
        self.base = nn.Linear(inputs, outputs, bias=False).requires_grad_(False)
        self.first = nn.Parameter(torch.randn(rank, inputs) / math.sqrt(inputs))
        self.second = nn.Parameter(torch.zeros(outputs, rank))

    def forward(self, values: Tensor) -> Tensor:
        low: Tensor = functional.linear(functional.linear(values, self.first), self.second)
        result: Tensor = self.base(values) + 2.0 * low  # alpha is twice the rank
        return result


class Block(nn.Module):
    """Causal self-attention and a layer of four times the width, each behind a norm and beside what came."""

    def __init__(self, width: int, heads: int, rank: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)]).requires_grad_(False)
        self.attend, self.mix = Adapted(width, 3 * width, rank), Adapted(width, width, rank)
        self.up, self.down = Adapted(width, 4 * width, rank), Adapted(4 * width, width, rank)

    def forward(self, values: Tensor) -> Tensor:
        parts = self.attend(self.norms[0](values)).unflatten(-1, (3, self.heads, -1)).movedim(-3, 0)
        query, key, value = (part.transpose(-2, -3) for part in parts)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        values = values + self.mix(seen.transpose(-2, -3).flatten(-2))
        result: Tensor = values + self.down(functional.gelu(self.up(self.norms[1](values))))
        return result


class Decoder(nn.Module):
    """Tokens, int64 [B, L], to logits of what follows at each place, [B, L, V]. Only adapters learn."""

    def __init__(self, *, vocabulary: int, width: int, layers: int, heads: int, length: int, rank: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width).requires_grad_(False)
        self.places = nn.Parameter(torch.randn(length, width) / 10, requires_grad=False)
        self.blocks = nn.ModuleList(Block(width, heads, rank) for _ in range(layers))
        nn.init.normal_(self.tokens.weight, std=1 / math.sqrt(width))

    def forward(self, tokens: Tensor) -> Tensor:
        values = self.tokens(tokens) + self.places[: tokens.shape[-1]]
        for block in self.blocks:
            values = block(values)
        return functional.linear(values, self.tokens.weight)


def decoder(width: int, layers: int, *, vocabulary: int = 64, length: int = 32, rank: int = 4) -> Decoder:
    """One whose weights depend on nothing but its sizes."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Decoder(
            vocabulary=vocabulary, width=width, layers=layers, heads=max(1, width // 32), length=length, rank=rank
        )


def texts(count: int, *, vocabulary: int = 64, length: int = 32) -> Collection:
    """Walks over tokens with steps of 1 to 3; half of their beginnings are not asked about."""
    generator = torch_generator(0, "synthetic", "lora")
    steps = torch.randint(1, 4, (count, length), generator=generator)
    tokens = steps.cumsum(dim=1) % vocabulary
    asked = torch.arange(length) >= torch.randint(1, length // 2, (count, 1), generator=generator)
    samples = ArraySamples(tokens, torch.where(asked, tokens, -100))
    few = ArraySamples(samples.inputs[:4], samples.targets[:4])
    return Collection(name="walks", task="next_token", classes=(), train=samples, test=few)


def experiment(model: nn.Module, recipe: pr.Recipe, clients: int, held: int, rounds: int) -> pr.Experiment:
    """Of such texts, over clients that all hold the same number of them."""
    assert isinstance(model, Decoder)
    data = texts(clients * held, vocabulary=model.tokens.num_embeddings, length=len(model.places))
    federation = pr.federate(data, pr.data.Iid(), clients, 0)
    return pr.Experiment(federation=federation, model=model, recipe=recipe, rounds=rounds)


Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]
"""Of a model, a batch's tokens and what follows them."""
TASK = task("next_token")


def of_task(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """The task's loss of the model's logits."""
    return TASK.loss(model(inputs), targets)


def by_hand(
    made: pr.Experiment, model: nn.Module, batch: int, rate: float, device: torch.device, loss: Loss = of_task
) -> Iterator[None]:
    """Rounds of the loop that anybody would write, on a device."""
    model, data = copy.deepcopy(model).to(device), made.federation.train
    assert isinstance(data, ArraySamples)
    inputs, targets = data.inputs.to(device), data.targets.to(device)
    learns = {name: value for name, value in model.named_parameters() if value.requires_grad}
    start = {name: value.detach().clone() for name, value in learns.items()}
    while True:
        mean = {name: torch.zeros_like(value) for name, value in start.items()}
        for client in range(made.federation.clients):
            for name, value in learns.items():
                value.data.copy_(start[name])
            sgd, own = torch.optim.SGD(learns.values(), lr=rate), made.federation.indices(client)
            for part in own[torch.randperm(len(own))].to(device).split(batch):
                sgd.zero_grad()
                loss(model, inputs[part], targets[part]).backward()
                sgd.step()
            for name, value in learns.items():
                mean[name] += value.detach() / made.federation.clients
        start = mean
        yield


def ours(of: Prepared) -> Iterator[None]:
    """The same rounds of a run without a record: the first visits are taken before the first is given."""
    engine = of.chosen.engine
    driver = InlineDriver(of.recipe, of.setup, engine, of.data_of, of.world(), executor=of.crew.executor(of.clients))
    version = 0
    for moment in driver.moments(engine.initial()):
        if moment.turn.state.version > version:
            version = moment.turn.state.version
            yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--held", type=int, default=40, help="texts of each")
    parser.add_argument("--batch", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--engine", default="torch", choices=("torch", "stacked"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    model = decoder(given.width, given.layers)
    recipe = pr.fedavg(cohort=given.clients, epochs=1, batch=given.batch, lr=0.05)
    made = experiment(model, recipe, given.clients, given.held, given.rounds + 3)
    of = prepare(made, pr.Execution(engine=given.engine, device="cpu", driver="inline"))
    sides, times = (ours(of), by_hand(made, model, given.batch, 0.05, torch.device("cpu"))), ([], [])
    for number in range(given.rounds + 1):
        for side, found in zip(sides, times, strict=True):
            begun = time.perf_counter()
            next(side)
            if number:  # in the first everything is made ready
                found.append(time.perf_counter() - begun)
    steps = given.clients * -(-given.held // given.batch)
    mine, theirs = (statistics.median(found) / steps for found in times)
    learns = sum(p.numel() for p in model.parameters() if p.requires_grad)
    told = {"engine": of.chosen.kind, "parameters": sum(p.numel() for p in model.parameters()), "learn": learns}
    print(json.dumps({**told, "ours_s": mine, "by_hand_s": theirs, "ratio": mine / theirs}))


if __name__ == "__main__":
    main()
