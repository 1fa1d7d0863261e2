"""How near a training step of deep networks comes to what the processor can do, in PyTorch and on the native engine.

chrt -r 1 python benchmarks/limit.py [WORK ...]

A step of PyTorch is the bare loop's: forward, loss, backward, plain SGD, on one thread. In turn with it a visit on the
native engine, where that takes the network, and a product of two large matrices in PyTorch. Beside each work,
`peak.cpp`, compiled here (`CXX`, by default c++), measures what one core multiplies and adds on registers alone and
what it reads: the roof. `gflops` and `native_gflops` count as many products as PyTorch's counter does, those with the
zeros around an image among them, which the native engine leaves out where that saves much: so it may stand higher than
what it multiplies. `vectors_gb_s` is what passes over the parameters alone read and write: weights forward and back,
the gradient, and the step, six passes in all. `products` is the share of PyTorch's time in products and convolutions,
by its profiler. Prints a JSON line for each.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

import polyrhythm as pr
from polyrhythm.base.messages import Assignment
from polyrhythm.core.client import work as visit_of
from polyrhythm.core.client_state import ClientState
from polyrhythm.data import ArraySamples, Collection
from polyrhythm.experiments.prepared import prepare
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
    "lstm-64-of-32": Work("char-lstm", {"hidden": 64}, (80,), 32, 80),
    "lstm-96": Work("char-lstm", {"hidden": 96}, (80,), 10, 80),
    "lstm-128": Work("char-lstm", {"hidden": 128}, (80,), 10, 80),
    "lstm-256": Work("char-lstm", {"hidden": 256}, (80,), 10, 80),
    "lstm-512": Work("char-lstm", {"embedding": 256, "hidden": 512}, (80,), 16, 80),
}
SIDE = 2048
"""Of the matrices."""
_PRODUCTS = ("mkldnn_convolution", "convolution_backward", "addmm", "aten::mm", "bmm", "mkldnn_rnn_layer")


def roof(folder: Path) -> dict[str, float]:
    """What one core can do, measured now."""
    program = folder / "peak"
    if not program.exists():
        source = Path(__file__).with_name("peak.cpp")
        options = ["-O3", "-march=native", "-ffp-contract=fast", "-o", str(program)]
        subprocess.run([os.environ.get("CXX", "c++"), *options, str(source)], check=True)
    found: dict[str, float] = json.loads(subprocess.run([program], check=True, stdout=subprocess.PIPE).stdout)
    return found


def native(work: Work) -> tuple[Callable[[], None], int] | None:
    """A visit on the native engine and how many steps it has, or None if it does not take the network."""
    steps = 4
    held = steps * work.batch
    torch.manual_seed(1)  # samples for which no rounding decides which pixel a pooling takes: see `engines.proof`
    texts = len(work.shape) == 1
    drawn = torch.randint(work.outputs, (held, *work.shape)) if texts else torch.randn(held, *work.shape)
    samples = ArraySamples(drawn, torch.arange(held) % work.outputs)
    classes = tuple(map(str, range(work.outputs)))
    kind = "next_character" if texts else "classification"
    noise = Collection(name="noise", task=kind, classes=classes, train=samples, test=samples)
    recipe = pr.fedavg(cohort=1, epochs=1, batch=work.batch, lr=1e-4)
    model = functools.partial(find(work.model), **work.settings)
    of = pr.Experiment(federation=pr.federate(noise, pr.data.Iid(), 1, 0), model=model, recipe=recipe, rounds=1)
    prepared = prepare(of, pr.Execution(engine="native", workers=1))
    if prepared.chosen.kind != "native":
        return None
    engine, initial = prepared.chosen.engine, prepared.chosen.engine.initial()
    assignment = Assignment(
        **{"dispatch": 0, "client": 0, "visit": 0, "version": 0, "kind": "train", "total_rounds": 1},
        **{
            "recipe": recipe.digest,
            "weights": initial.weights,
            "buffers": initial.buffers,
            "briefs": {},
            "accepted": -1,
        },
    )

    def visit() -> None:
        visit_of(recipe, prepared.setup, ClientState(), assignment, prepared.data_of(0), engine)

    return visit, steps


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


def measured(name: str, seconds: float, folder: Path) -> dict[str, Any]:
    """A line of what is printed."""
    work = WORKS[name]
    step = stepping(work)
    ways: dict[str, tuple[Callable[[], object], int]] = {"step": (step, 1)}
    if len(work.shape) == 3:
        ways["channels_last"] = stepping(work, last=True), 1
    if visit := native(work):
        ways["native"] = visit
    one, two = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE)
    out = torch.empty(SIDE, SIDE)
    ways["product"] = (lambda: torch.mm(one, two, out=out)), 1
    counted = flops(work, step)
    times: dict[str, list[float]] = {key: [] for key in ways}
    for taken, _ in ways.values():
        taken()
    roofs = [roof(folder)]
    begun = time.perf_counter()
    while time.perf_counter() - begun < seconds or len(times["step"]) < 5:
        for key, (taken, steps) in ways.items():
            times[key].append(took(taken) / steps)
    roofs.append(roof(folder))
    most = {key: max(r[key] for r in roofs) for key in roofs[0]}
    middle = {key: statistics.median(found) for key, found in times.items()}
    reached = {key: counted / middle[key] / 1e9 for key in ("step", "native") if key in middle}
    torch.manual_seed(0)
    size = sum(
        p.numel() for p in functools.partial(find(work.model), **work.settings)(work.shape, work.outputs).parameters()
    )
    return {
        "work": name,
        "batch": work.batch,
        "gflop_a_step": round(counted / 1e9, 2),
        **{f"{key}_ms": round(1e3 * middle[key], 2) for key in middle if key != "product"},
        "gflops": round(reached["step"], 1),
        **({"native_gflops": round(reached["native"], 1)} if "native" in reached else {}),
        "product_gflops": round(2 * SIDE**3 / middle["product"] / 1e9, 1),
        **{f"roof_{key}": value for key, value in most.items()},
        "share_of_roof": round(reached["step"] / most["gflops"], 3),
        **({"native_is_faster_by": round(middle["step"] / middle["native"], 2)} if "native" in middle else {}),
        "vectors_gb_s": round(6 * 4 * size / middle["step"] / 1e9, 1),
        "products": round(share_of_products(step), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", nargs="*", choices=[*WORKS, []], help="by default all")
    parser.add_argument("--seconds", type=float, default=6.0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        for name in given.work or WORKS:
            print(json.dumps(measured(name, given.seconds, Path(folder))), flush=True)


if __name__ == "__main__":
    main()
