"""How near a training step of deep networks in PyTorch comes to what the processor can do.

chrt -r 1 python benchmarks/limit.py [WORK ...]

A step is the bare loop's: forward, loss, backward, plain SGD, on one thread. Beside each, in turn with it, a product of
two large matrices, which is the most arithmetic that oneDNN gets out of the processor here. `at_most` is how many times
as fast a step would be in which every product went at that speed and everything else took no time, with as many
products; `products` is the share of a step's time that products and convolutions take, by torch's profiler. Prints a
JSON line for each.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from polyrhythm.models.catalogue import find


class Work(NamedTuple):
    """A network with its settings, the shape of a sample, and the size of a batch."""

    model: str
    settings: Mapping[str, Any]
    shape: tuple[int, ...]
    batch: int
    outputs: int = 10


WORKS: Mapping[str, Work] = {
    "alexnet-fmnist": Work("alexnet", {}, (1, 32, 32), 10),
    "vgg11-cifar10": Work("vgg11", {}, (3, 32, 32), 16),
    "resnet9-group": Work("resnet9", {}, (3, 32, 32), 50),
    "resnet9-batch": Work("resnet9", {"norm": "batch"}, (3, 32, 32), 50),
    "resnet18-group": Work("resnet18", {}, (3, 32, 32), 20),
    "resnet18-batch": Work("resnet18", {"norm": "batch"}, (3, 32, 32), 20),
    "lstm-64": Work("char-lstm", {"hidden": 64}, (80,), 10, 80),
    "lstm-512": Work("char-lstm", {"embedding": 256, "hidden": 512}, (80,), 16, 80),
}
SIDE = 2048
"""Of the matrices."""
_PRODUCTS = ("mkldnn_convolution", "convolution_backward", "addmm", "aten::mm", "bmm", "mkldnn_rnn_layer")


def flops(work: Work, step: Callable[[], None]) -> int:
    """Additions and multiplications of a step's products; of an LSTM, which torch does not count, by its sizes."""
    if work.model == "char-lstm":
        hidden, inputs = work.settings["hidden"], work.settings.get("embedding", 8)
        gates = 4 * hidden * (inputs + hidden) + 4 * hidden * (hidden + hidden)
        return 3 * 2 * work.batch * (work.shape[0] * gates + hidden * work.outputs)
    with FlopCounterMode(display=False) as counter:
        step()
    return int(counter.get_total_flops())


def stepping(work: Work, *, last: bool = False) -> Callable[[], None]:
    """A step of the bare loop.

    Args:
        work: of what.
        last: whether channels lie last in memory.
    """
    torch.manual_seed(0)
    model: nn.Module = functools.partial(find(work.model), **work.settings)(work.shape, work.outputs)
    inputs: Tensor = (
        torch.randint(work.outputs, (work.batch, *work.shape))
        if work.model == "char-lstm"
        else torch.randn(work.batch, *work.shape)
    )
    targets = torch.randint(work.outputs, (work.batch,))
    if last:
        model, inputs = model.to(memory_format=torch.channels_last), inputs.to(memory_format=torch.channels_last)
    parameters = list(model.parameters())

    def step() -> None:
        loss = functional.cross_entropy(model(inputs), targets)
        model.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            for parameter in parameters:
                parameter.add_(parameter.grad, alpha=-1e-4)  # type: ignore[arg-type]

    return step


def took(what: Callable[[], object]) -> float:
    """Seconds."""
    begun = time.perf_counter()
    what()
    return time.perf_counter() - begun


def share_of_products(step: Callable[[], None]) -> float:
    """The share of a step's time in products and convolutions."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        step()
    spent = {event.key: event.self_cpu_time_total for event in profile.key_averages()}
    products = sum(time for key, time in spent.items() if any(name in key for name in _PRODUCTS))
    return float(products / sum(spent.values()))


def measured(name: str, seconds: float) -> dict[str, Any]:
    """A line of what is printed."""
    work = WORKS[name]
    step = stepping(work)
    steps = {"step": step}
    if len(work.shape) == 3:
        steps["channels_last"] = stepping(work, last=True)
    one, two = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE)
    out = torch.empty(SIDE, SIDE)
    counted = flops(work, step)
    times: dict[str, list[float]] = {key: [] for key in (*steps, "product")}
    for taken in steps.values():
        taken()
    torch.mm(one, two, out=out)
    begun = time.perf_counter()
    while time.perf_counter() - begun < seconds or len(times["step"]) < 5:
        for key, taken in steps.items():
            times[key].append(took(taken))
        times["product"].append(took(lambda: torch.mm(one, two, out=out)))
    middle = {key: statistics.median(found) for key, found in times.items()}
    reached, most = counted / middle["step"] / 1e9, 2 * SIDE**3 / middle["product"] / 1e9
    return {
        "work": name,
        "batch": work.batch,
        "gflop_a_step": round(counted / 1e9, 2),
        **{f"{key}_ms": round(1e3 * middle[key], 2) for key in steps},
        "gflops": round(reached, 1),
        "most_gflops": round(most, 1),
        "share_of_most": round(reached / most, 3),
        "at_most": round(most / reached, 2),
        "products": round(share_of_products(step), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", nargs="*", choices=[*WORKS, []], help="by default all")
    parser.add_argument("--seconds", type=float, default=6.0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    for name in given.work or WORKS:
        print(json.dumps(measured(name, given.seconds)), flush=True)


if __name__ == "__main__":
    main()
