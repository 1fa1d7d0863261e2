"""FedCL, figure 16: what it costs a client to look for critical periods, by gradient norm and by Fisher information.

One client's visit (2 epochs in batches of 16) with each detector: seconds of processor time, and the most bytes that
tensors hold at once. Images are made up, since neither depends on what they show. One thread, the reference engine.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from polyrhythm.base.messages import Assignment
from polyrhythm.base.streams import seeded_torch, torch_generator
from polyrhythm.base.threads import one_thread
from polyrhythm.core.client import work
from polyrhythm.core.client_state import ClientState
from polyrhythm.data.holding import Holding
from polyrhythm.data.samples import ArraySamples
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.methods.mechanism import Setup
from polyrhythm.methods.papers import fedavg
from polyrhythm.methods.participation.critical_periods import CriticalPeriods, Detector, FisherTrace, GradientNorm
from polyrhythm.methods.recipe import Recipe
from polyrhythm.models.building import build
from polyrhythm.models.tasks import task
from polyrhythm.studies.definition import Scale
from polyrhythm.studies.page.findings import Findings, Outcome, Table, Verdict, holding

TIMES, MEMORY = 9.0, 40.0  # what the paper says that FedFIM takes, "up to"
NOTHING, FGN, FEDFIM, WHOLE = "nothing", "FGN", "FedFIM", "FedFIM, whole gradients"
WATCHED: Mapping[str, Detector | None] = {NOTHING: None, FGN: GradientNorm(), FEDFIM: FisherTrace(), WHOLE: None}


@final
@dataclass(frozen=True, kw_only=True)
class Case:
    """A model on images of a shape.

    Args:
        name: as the paper's figure has it.
        model: a name of the catalogue.
        shape: of an image.
        samples: that the client holds.
    """

    name: str
    model: str
    shape: tuple[int, ...]
    samples: int


@final
@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a visit takes.

    Args:
        seconds: of processor time, the least of several visits.
        bytes: the most that tensors hold at once.
    """

    seconds: float
    bytes: int


def cases(scale: Scale) -> Sequence[Case]:
    """The paper's four; 128 clients share the 50,000 or 60,000 samples. Small ones at smaller scales."""
    if scale == "smoke":
        return (Case(name="mlp on digits", model="mlp", shape=(1, 8, 8), samples=32),)
    of_cifar, of_mnist = (390, 469) if scale == "paper" else (64, 64)
    return (
        Case(name="AlexNet on CIFAR-10", model="alexnet", shape=(3, 32, 32), samples=of_cifar),
        Case(name="VGG-11 on CIFAR-10", model="vgg11", shape=(3, 32, 32), samples=of_cifar),
        Case(name="mlp on MNIST", model="mlp", shape=(1, 28, 28), samples=of_mnist),
        Case(name="AlexNet on Fashion-MNIST", model="alexnet", shape=(1, 32, 32), samples=of_mnist),
    )


def findings(scale: Scale, folder: Path, runs: Path) -> Findings:
    """Measures every case with every detector.

    Args:
        scale: how many samples the client holds.
        folder, runs: of the page, and of runs; nothing is put there.
    """
    found = {case: costs(case, repeats=1 if scale == "smoke" else 3) for case in cases(scale)}
    outcomes = (
        _outcome(found, "FedFIM takes more processor time than FGN", "seconds", lambda ratio: ratio > 1),
        _outcome(found, "Up to 9 times the time", "seconds", lambda ratio: ratio >= TIMES, any),
        _outcome(found, "FedFIM takes more memory than FGN", "bytes", lambda ratio: ratio > 1),
        _outcome(found, "Up to 40 times the memory", "bytes", lambda ratio: ratio >= MEMORY, any),
    )
    return Findings(
        verdict=holding(outcomes),
        tables=(_table(found),),
        claims=outcomes,
        notes=tuple(_until_forty(case, costs) for case, costs in found.items()),
    )


def costs(case: Case, repeats: int) -> dict[str, Cost]:
    """What a visit takes with each detector."""
    with one_thread():
        visits = {name: _visit(case, name) for name in WATCHED}
        for visit in visits.values():
            visit()  # what only a first call does
        least = dict.fromkeys(visits, float("inf"))
        for _ in range(repeats):  # in turns, so that a busy moment of the machine meets all of them
            for name, visit in visits.items():
                start = time.process_time()
                visit()
                least[name] = min(least[name], time.process_time() - start)
        return {name: Cost(seconds=least[name], bytes=most_held(visit)) for name, visit in visits.items()}


def most_held(call: Callable[[], object]) -> int:
    """The most bytes that tensors hold at once during a call, those apart that a kernel takes for itself."""
    held = _Held()
    with held:
        call()
    return held.most


@final
class _Held(TorchDispatchMode):  # type: ignore[no-untyped-call]  # its __init_subclass__
    """Adds up the storage of all tensors that operations give, until it is freed."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.most = self._now = 0
        self._sizes: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = func(*args, **(kwargs or {}))
        for value in tree_leaves(given):
            if isinstance(value, Tensor):
                self._hold(value.untyped_storage())
        return given

    def _hold(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key not in self._sizes:
            self._sizes[key] = storage.nbytes()
            self._now += storage.nbytes()
            self.most = max(self.most, self._now)
            weakref.finalize(storage, self._freed, key)

    def _freed(self, key: int) -> None:
        self._now -= self._sizes.pop(key)


def _visit(case: Case, name: str) -> Callable[[], object]:
    """A visit under a detector; "FedFIM, whole gradients" takes those before a plain visit."""
    generator = torch_generator(0, "synthetic", "images")
    inputs = torch.rand(case.samples, *case.shape, generator=generator)
    targets = torch.randint(10, (case.samples,), generator=generator)
    with seeded_torch(0, "init"):
        module = build(case.model, case.shape, 10)
    recipe = fedavg(epochs=2, batch=16, lr=0.01, momentum=0.9, weight_decay=1e-5)
    watched = WATCHED[name]
    if watched is not None:
        recipe = recipe | CriticalPeriods(detector=watched, act=False)
    engine = TorchEngine(module, task("classification"))
    data = Holding(ArraySamples(inputs, targets))
    frozen = module.eval()

    def visit() -> None:
        if name == WHOLE:
            fisher_trace(frozen, inputs, targets)
        _work(recipe, engine, data)

    return visit


def fisher_trace(module: nn.Module, inputs: Tensor, targets: Tensor) -> float:
    """The trace of the empirical Fisher information from the whole gradients of all samples, at once in memory."""
    weights = {name: parameter.detach() for name, parameter in module.named_parameters()}

    def loss(weights: Mapping[str, Tensor], one: Tensor, target: Tensor) -> Tensor:
        return functional.cross_entropy(functional_call(module, dict(weights), (one[None],)), target[None])

    gradients = vmap(grad(loss), in_dims=(None, 0, 0))(weights, inputs, targets)
    return float(sum(g.square().sum() for g in gradients.values())) / len(inputs)


def _work(recipe: Recipe, engine: TorchEngine, data: Holding) -> None:
    first, layout = engine.initial(), engine.layout
    setup = Setup(size=layout.size, dtype=layout.dtype, population=1, total_rounds=1, seed=0)
    assignment = Assignment(
        dispatch=0,
        client=0,
        visit=0,
        accepted=-1,
        kind="train",
        version=0,
        total_rounds=1,
        weights=first.weights,
        buffers=first.buffers,
        briefs={},
        recipe=recipe.digest,
    )
    work(recipe, setup, ClientState(), assignment, data, engine)


def _ratios(found: Mapping[Case, Mapping[str, Cost]], what: str) -> Iterator[tuple[str, float]]:
    for case, costs in found.items():
        yield case.name, getattr(costs[WHOLE], what) / getattr(costs[FGN], what)


def _until_forty(case: Case, costs: Mapping[str, Cost]) -> str:
    """Whole gradients take as much for every sample, so any ratio is one of how many samples a client has."""
    enough = case.samples * MEMORY * costs[FGN].bytes / costs[WHOLE].bytes
    return f"{case.name}: whole gradients would take {MEMORY:.0f} times FGN's memory with about {enough:.0f} samples."


def _outcome(
    found: Mapping[Case, Mapping[str, Cost]],
    says: str,
    what: str,
    holds: Callable[[float], bool],
    over: Callable[[Iterator[bool]], bool] = all,
) -> Outcome:
    ratios = dict(_ratios(found, what))
    evidence = ", ".join(f"{name}: {ratio:.1f} times" for name, ratio in ratios.items())
    verdict: Verdict = "holds" if over(holds(r) for r in ratios.values()) else "differs"
    return Outcome(says=says, verdict=verdict, evidence=evidence)


def _table(found: Mapping[Case, Mapping[str, Cost]]) -> Table:
    rows = [
        (
            f"{case.name}, {name}",
            f"{cost.seconds:.3f}",
            f"{cost.seconds / costs[FGN].seconds:.2f}",
            f"{cost.bytes / 2**20:,.1f}",
            f"{cost.bytes / costs[FGN].bytes:.2f}",
        )
        for case, costs in found.items()
        for name, cost in costs.items()
    ]
    held = ", ".join(f"{case.samples} on {case.name}" for case in found)
    return Table(
        name="detection",
        caption=f"A visit of two epochs with each detector; samples of the client: {held}.",
        head=("visit", "processor s", "of FGN's", "MB in tensors", "of FGN's"),
        rows=tuple(rows),
    )
