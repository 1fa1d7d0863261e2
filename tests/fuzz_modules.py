"""Holds every engine to a plain loop in PyTorch, on modules as people write them (`modules.py`).

    python tests/fuzz_modules.py --tries 2000

prints, for each engine, how many modules it took, how many were left to torch and why, and each that it took and
computed otherwise. The loop is a dozen lines: the module itself, `train()`, `backward()`, `torch.optim.SGD`, `eval()`.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import random
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

import polyrhythm as pr
from modules import OUTPUTS, Drawn, drawn
from polyrhythm.base.errors import UserError
from polyrhythm.base.threads import one_thread
from polyrhythm.core.local_step import LocalRule
from polyrhythm.core.protocols import Job, Opening
from polyrhythm.data import ArraySamples
from polyrhythm.data.holding import Holding
from polyrhythm.engines.native.engine import NativeEngine
from polyrhythm.engines.selection import AnyEngine, Named, Work, choose
from polyrhythm.engines.step import Masks, keys_of
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.methods.local.optimisers import LocalSgd
from polyrhythm.methods.mechanism import Model
from polyrhythm.models.probing import output_shape
from polyrhythm.models.tasks import task

RATE, ENDS, HELD, SEED = 0.1, (9, 18, 22), 24, 7
CLOSE = 1e-3  # of the way that weights went, and of outputs: three steps are many roundings
ENGINES: tuple[Named, ...] = ("torch", "native", "stacked")


@final
@dataclass
class Tally:
    """What became of modules.

    Args:
        tried: how many were drawn.
        unrunnable: of them, those that PyTorch itself could not train.
        taken: by engine.
        left: by engine and reason, those that are torch's.
        wrong: what an engine took and computed otherwise, by number and engine.
    """

    tried: int = 0
    unrunnable: int = 0
    taken: Counter[str] = field(default_factory=Counter)
    left: dict[str, Counter[str]] = field(default_factory=dict)
    wrong: dict[tuple[int, str], str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{self.tried} modules, of which PyTorch itself cannot train {self.unrunnable}"]
        for engine in [e for e in ENGINES if e in self.taken or e in self.left]:
            left = self.left.get(engine, Counter())
            lines.append(
                f"{engine}: {self.taken[engine]} taken, {left.total()} left to torch, {self.errors(engine)} wrong"
            )
            lines += [f"    {count:5} {why}" for why, count in left.most_common()]
        return "\n".join(lines)

    def errors(self, engine: str) -> int:
        """How many an engine got wrong."""
        return sum(of == engine for _, of in self.wrong)


@final
@dataclass(frozen=True)
class Way:
    """Where a module ended: the trained parameters by name, the summed loss, and outputs in evaluation."""

    parameters: dict[str, Tensor]
    loss: float
    outputs: Tensor


def data_for(of: Drawn) -> tuple[Tensor, Tensor]:
    """Inputs and labels, the same for all modules of a shape."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(HELD, *of.shape, generator=generator), torch.arange(HELD) % OUTPUTS


@contextlib.contextmanager
def seeded() -> Iterator[None]:
    """Runs a block with all generators seeded."""
    kept = random.getstate(), np.random.get_state(), torch.get_rng_state()
    random.seed(SEED), np.random.seed(SEED), torch.manual_seed(SEED)
    try:
        yield
    finally:
        random.setstate(kept[0]), np.random.set_state(kept[1]), torch.set_rng_state(kept[2])


def made(of: Drawn) -> nn.Module:
    """A new module, with weights that are the same every time."""
    with seeded():
        return of.build()()


def plainly(of: Drawn, masks: Sequence[Any]) -> Way:
    """The plain loop.

    Args:
        of: the module.
        masks: what stands in for dropout in each step, if an engine draws its own.
    """
    module, (inputs, labels) = made(of), data_for(of)
    optimiser = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=RATE)
    trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
    total, begin = 0.0, 0
    module.train()
    with seeded():
        for step, end in enumerate(ENDS):
            optimiser.zero_grad()
            with masks[step] if masks else contextlib.nullcontext():
                loss = nn.functional.cross_entropy(module(inputs[begin:end].clone()), labels[begin:end])
            loss.backward()
            optimiser.step()
            total, begin = total + float(loss) * (end - begin), end
    last = made(of)  # evaluation is of a model that is sent, which has no more than its weights and buffers
    last.load_state_dict(module.state_dict())
    last.eval()
    with torch.no_grad(), seeded():
        outputs = last(inputs.clone())
    return Way({name: p.detach().clone() for name, p in trained.items()}, total, outputs)


def carried_out(engine: AnyEngine, start: Model, of: Drawn) -> Way:
    """The same by an engine, in a visit, and an evaluation of where it ended."""
    inputs, labels = data_for(of)
    data = Holding(ArraySamples(inputs, labels))
    with seeded():
        _open(engine, data, start)
        positions = np.arange(ENDS[-1])
        job = Job(
            data=data,
            positions=positions,
            ends=np.array(ENDS),
            rates=[RATE] * len(ENDS),
            optimiser=LocalSgd(lr=RATE),
            push=None,
            start=start.weights,
            moments={},
            seed=SEED,
            gradient_squares=False,
        )
        done = None if isinstance(engine, TorchEngine) else engine.local_round(job)
        loss = _stepped(engine, data) if done is None else done.loss
    ended = Model(weights=engine.weights.clone(), buffers=engine.buffers())
    parameters = {n: p.clone() for n, p in engine.layout.named(ended.weights).items()}
    with seeded():
        _open(engine, data, ended)
        outputs = _outputs(engine)
    return Way(parameters, loss, outputs)


def _open(engine: AnyEngine, data: Holding, model: Model) -> None:
    engine.open(Opening(data=data, start=model, received=model, previous=None, reuse=False, seed=SEED))


def _stepped(engine: AnyEngine, data: Holding) -> float:
    total, begin, start = 0.0, 0, engine.weights.clone()
    rule = LocalRule(optimiser=LocalSgd(lr=RATE), push=None, start=start, moments={}, seed=SEED, gradient_squares=False)
    for end in ENDS:
        positions = np.arange(begin, end)
        computed = engine.step(*data.batch(positions, None), positions, rule, RATE)
        total, begin = total + float(computed.loss) * len(positions), end
    return total


def _outputs(engine: AnyEngine) -> Tensor:
    inside = engine if isinstance(engine, (TorchEngine, NativeEngine)) else engine.reference
    return inside.frozen_outputs("received")[0]


def difference(ours: Way, plain: Way, of: Drawn) -> str:
    """What is not the same; empty if nothing is."""
    close = CLOSE if "autocast" not in of.oddities else 100 * CLOSE  # in bfloat16, rounding is more
    start = made(of)
    first = dict(start.named_parameters())
    if ours.parameters.keys() != plain.parameters.keys():
        return f"trains {sorted(ours.parameters)}, not {sorted(plain.parameters)}"
    for name, weights in plain.parameters.items():
        way = float((weights - first[name]).norm())
        apart = float((ours.parameters[name] - weights).norm())
        if not apart <= close * way + 1e-6 * (1 + float(weights.norm())):
            return f"{name} ends {apart:.2g} away from where it should, which went {way:.2g}"
    if not abs(ours.loss - plain.loss) <= close * abs(plain.loss):
        return f"a loss of {ours.loss:.6g}, not {plain.loss:.6g}"
    apart, size = float((ours.outputs - plain.outputs).norm()), float(plain.outputs.norm())
    return "" if apart <= close * size + 1e-6 else f"outputs {apart:.2g} apart of {size:.2g}"


def attempt(number: int, engine: Named) -> tuple[str, str]:
    """Tries a module with an engine.

    Returns:
        What happened ("unrunnable", "taken", "left" or "wrong"), and what there is to say.
    """
    of = drawn(number)
    module, (inputs, labels) = made(of), data_for(of)
    before = copy.deepcopy(dict(module.state_dict()))
    work = Work(
        module=module,
        task=task("classification"),
        samples=ArraySamples(inputs, labels),
        recipe=pr.fedavg(cohort=1, batch=9, lr=RATE),
        largest=HELD,
    )
    try:
        plainly(of, ())
    except Exception:
        return "unrunnable", ""
    try:
        with seeded():
            output_shape(module, inputs[:2])
            chosen = choose(engine, work)
    except UserError as refused:
        return "left", f"refused in words: {refused.found}"
    if chosen.kind != engine:
        return "left", chosen.why_not
    if any(not torch.equal(value, before[name]) for name, value in module.state_dict().items()):
        return "wrong", "the module that was given was changed"
    start, (masks, drops) = chosen.engine.initial(), masks_of(chosen.engine)
    with drops:
        ours, again = (carried_out(chosen.engine, start, of) for _ in range(2))
    told = difference(ours, plainly(of, masks), of)
    if not told and any(not torch.equal(ours.parameters[n], again.parameters[n]) for n in ours.parameters):
        told = "the same visit ends elsewhere the second time"
    return ("wrong", told) if told else ("taken", "")


def masks_of(engine: AnyEngine) -> tuple[Sequence[Any], contextlib.AbstractContextManager[None]]:
    """What the plain loop takes for dropout in each step, and what the engine needs for it to be the same."""
    if isinstance(engine, NativeEngine):
        return [Masks(None) for _ in ENDS], engine.undropped()
    if isinstance(engine, TorchEngine):
        return (), contextlib.nullcontext()
    keys = torch.from_numpy(keys_of(SEED, len(ENDS), engine.dropouts))
    return [Masks(keys[step]) for step in range(len(ENDS))], contextlib.nullcontext()


def tally(numbers: Sequence[int], engines: Sequence[Named]) -> Tally:
    """Tries modules with engines."""
    found = Tally()
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in numbers:
            found.tried += 1
            for engine in engines:
                kind, told = attempt(number, engine)
                if kind == "unrunnable":
                    found.unrunnable += 1
                    break
                if kind == "taken":
                    found.taken[engine] += 1
                elif kind == "left":
                    found.left.setdefault(engine, Counter())[general(told)] += 1
                else:
                    found.wrong[number, engine] = f"{told}\n{drawn(number).oddities}\n{drawn(number).source}"
    return found


def general(reason: str) -> str:
    """A reason without names and numbers."""
    reason = re.sub(r"\b(l\d+|[a-z]\d*)\.(weight|bias|layer\S*)", "a parameter", reason.split("\n")[0])
    reason = re.sub(r"\bl\d+(\.\d+)?\b", "a layer", reason)
    return re.sub(r"-?\d[\d.e+-]*", "#", reason)[:110]


def main() -> int:
    """Tries as many as are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tries", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--engines", default=",".join(ENGINES))
    given = parser.parse_args()
    found = tally(range(given.first, given.first + given.tries), given.engines.split(","))
    print(found)
    for (number, engine), told in found.wrong.items():
        print(f"\n{number} on {engine}: {told}")
    return bool(found.wrong)


if __name__ == "__main__":
    sys.exit(main())
