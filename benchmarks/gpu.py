"""All that is to be known of a GPU, in one command of a few minutes that installs nothing.

    python benchmarks/gpu.py --out gpu            on the card that is there
    python benchmarks/gpu.py --device cpu --small the same program in its small form, on a processor

In this order, so that what matters most is there if time runs short; what is not there says why:

- agreement: stacked on the device beside torch on the processor, for every family of recipes; how far the weights lie
  apart after three versions, as a share of how far they went, which is to be `CLOSE` at most;
- speed: a round of LeNet-5 clients, stacked on the device, as a bare loop on the same device, and by the native engine;
  then of clients with adapters of a transformer, whose frozen part is there once for all of them; and the most that the
  device held meanwhile;
- precision: the same in TF32 and in bfloat16: how much faster a round is, and how far its weights lie from float32's;
- pieces: the same round where half of the cohort has room, and on a card where memory runs out; both are to come to
  the same weights;
- resume: a run that is killed goes on, and comes to the weights of one that was not;
- ray: two workers that share the card come to the weights of one process.

Writes OUT.json and OUT.md after every row, so what was found until then is there whenever it ends. When the time is
over, what is under way is broken off. Exits with 1 where something disagrees.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib.util
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

import polyrhythm as pr

sys.path.insert(0, str(Path(__file__).parent))
import lora

from polyrhythm.base.streams import torch_generator
from polyrhythm.data import ArraySamples, Collection
from polyrhythm.engines import stacked
from polyrhythm.engines.devices import device_of, named
from polyrhythm.engines.kinds import Precision
from polyrhythm.experiments.prepared import Prepared, prepare
from polyrhythm.models import build
from polyrhythm.simulation.simulator import InlineDriver

CLOSE = 1e-3
"""How far weights may lie apart, as a share of how far they went: other sums, in float32, over three versions."""
COARSE = 0.15
"""The same of products in TF32 or bfloat16, which have 10 and 7 bits: a processor's bfloat16 came to 0.06."""
ASKED = 20.0
"""How many times the bare loop's speed on the same card is aimed at, with a hundred clients."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """How large everything is.

    Args:
        clients, held: how many, and the samples that each holds.
        batch: samples in a step.
        repeats: rounds that are measured.
        models: what the families of recipes are tried on.
        texts: that each client holds where adapters are measured.
        wide: width and layers of the transformer there.
        briefly: the models on which only one family is tried.
    """

    clients: int
    held: int
    batch: int
    repeats: int
    models: tuple[str, ...]
    texts: int
    wide: tuple[int, int]
    briefly: tuple[str, ...] = ()


SMALL = Size(clients=4, held=12, batch=5, repeats=1, models=("mlp", "lora"), briefly=("lora",), texts=6, wide=(32, 2))
WHOLE = Size(
    clients=100,
    held=600,
    batch=10,
    repeats=5,
    models=("lenet5", "resnet9", "lora"),
    texts=100,
    wide=(256, 4),
)


def families(batch: int) -> dict[str, pr.Recipe]:
    """One recipe of every family that the engine takes by itself: what a step adds, and what a visit brings home."""
    common: dict[str, Any] = {"cohort": 4, "epochs": 1, "batch": batch, "lr": 0.05}
    plain = pr.fedavg(**common)
    return {
        "fedavg": plain,
        "a pull (fedprox)": pr.fedprox(mu=0.1, **common),
        "a shift (scaffold)": pr.scaffold(**common),
        "a pull and a shift (feddyn)": pr.feddyn(**common),
        "a factor (fedcm)": pr.fedcm(**common),
        "momentum, decay, a limit": pr.fedavg(**common, momentum=0.9, weight_decay=1e-3, clip=1.0),
        "momentum that is kept": pr.fedavg(**common, momentum=0.9, keep_state=True),
        "rates of each step": pr.fedavg(**common, schedule=pr.parts.cosine(unit="step")),
        "gradients that are measured": pr.fedavg(**{**common, "cohort": 2}) | pr.parts.critical_periods(),
        "a model of each client's own (ditto)": pr.ditto(**common),
        "a server's Adam (cc_fedadam)": pr.cc_fedadam(cohort=4, batch=batch, lr=0.05),
        "without rounds (fedbuff)": pr.fedbuff(concurrency=4, buffer=2, epochs=1, batch=batch, lr=0.05),
        "budgets of steps (ccfl)": pr.ccfl(cohort=4, batch=batch, steps=3, lr=0.05),
    }


def noise(clients: int, held: int, shape: tuple[int, ...] = (3, 32, 32)) -> Collection:
    """Classes with a centre each, so that there is something to learn."""
    generator, count = torch_generator(0, "synthetic", "gpu"), clients * held
    targets = torch.randint(10, (count,), generator=generator)
    inputs = torch.randn(count, *shape, generator=generator)
    inputs += torch.randn(10, *shape, generator=generator).index_select(0, targets) / 2
    few = ArraySamples(inputs[:10], targets[:10])
    samples, classes = ArraySamples(inputs, targets), tuple(map(str, range(10)))
    return Collection(name="noise", task="classification", classes=classes, train=samples, test=few)


def experiment(model: str, recipe: pr.Recipe, clients: int, held: int, rounds: int) -> pr.Experiment:
    """Of noise, over clients that all hold the same number of samples."""
    if model == "lora":
        return lora.experiment(lora.decoder(64, 2), recipe, clients, held, rounds)
    federation = pr.federate(noise(clients, held), pr.data.Iid(), clients, 0)
    return pr.Experiment(federation=federation, model=model, recipe=recipe, rounds=rounds)


def weights(of: Prepared) -> list[Tensor]:
    """Of the first and of the last version."""
    engine = of.chosen.engine
    driver = InlineDriver(of.recipe, of.setup, engine, of.data_of, of.world(), executor=of.crew.executor(of.clients))
    moments = [moment.turn.state.weights for moment in driver.moments(engine.initial())]
    return [moments[0], moments[-1]]


def apart(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> float:
    """How far the ends lie apart, as a share of how far they went."""
    return float((ours[-1] - theirs[-1]).norm() / (theirs[-1] - theirs[0]).norm())


def agreement(device: str, size: Size) -> Iterator[dict[str, Any]]:
    """Stacked on the device beside torch on the processor."""
    for model in size.models:
        tried = families(size.batch).items()
        for name, recipe in itertools.islice(tried, 1 if model in size.briefly else None):
            made = experiment(model, recipe, 4, min(size.held, 50), 3)
            ours = prepare(made, pr.Execution(engine="stacked", device=device, driver="inline"))
            theirs = prepare(made, pr.Execution(engine="torch", device="cpu", driver="inline"))
            found = {"model": model, "family": name, "engine": ours.chosen.kind}
            if ours.chosen.kind != "stacked":
                yield {**found, "why": str(ours.chosen.why_not), "agrees": False}
                continue
            distance = apart(weights(ours), weights(theirs))
            yield {**found, "apart": distance, "agrees": distance <= CLOSE}
    yield from dropped(device, size)


def dropped(device: str, size: Size) -> Iterator[dict[str, Any]]:
    """Dropout, whose masks are the stacked engine's own: on the device beside the same engine on the processor."""
    made = experiment("ccfl-mlp", families(size.batch)["fedavg"], 4, min(size.held, 50), 3)
    both = [prepare(made, pr.Execution(engine="stacked", device=where, driver="inline")) for where in (device, "cpu")]
    distance = apart(*map(weights, both))
    told = {"model": "ccfl-mlp", "family": "dropout", "engine": both[0].chosen.kind}
    yield {**told, "apart": distance, "agrees": both[0].chosen.kind == "stacked" and distance <= CLOSE}


def synchronised(device: torch.device) -> float:
    """The time, once the device has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def of_speed(size: Size) -> pr.Experiment:
    """One round of everybody."""
    recipe = pr.fedavg(cohort=size.clients, epochs=1, batch=size.batch, lr=0.05)
    return experiment("lenet5", recipe, size.clients, size.held, 2 + size.repeats)


def rounds(of: Prepared, device: torch.device) -> list[float]:
    """Seconds of each round but the first, in which everything is made ready, and the last.

    The visits of a round are computed before the moment in which the one before it ends is given: in the last interval
    there are none.
    """
    engine = of.chosen.engine
    driver = InlineDriver(of.recipe, of.setup, engine, of.data_of, of.world(), executor=of.crew.executor(of.clients))
    times, version = [synchronised(device)], 0
    for moment in driver.moments(engine.initial()):
        if moment.turn.state.version > version:
            version = moment.turn.state.version
            times.append(synchronised(device))
    return [after - before for before, after in itertools.pairwise(times)][1:-1]


def peak(device: torch.device, *, anew: bool = False) -> float | None:
    """The most that a card held in MB, since it was begun anew."""
    if device.type != "cuda":
        return None
    held = torch.cuda.max_memory_allocated(device) / 2**20
    if anew:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    return held


def bare(made: pr.Experiment, size: Size, device: torch.device) -> list[float]:
    """The loop that anybody would write: one client after the other, on the device."""
    model = build("lenet5", (3, 32, 32), 10).to(device)
    data = made.federation.train
    assert isinstance(data, ArraySamples)
    inputs, targets = data.inputs.to(device), data.targets.to(device)
    start = {name: value.detach().clone() for name, value in model.state_dict().items()}
    found = []
    for _ in range(1 + size.repeats):
        begun = synchronised(device)
        mean = {name: torch.zeros_like(value) for name, value in start.items()}
        for client in range(size.clients):
            model.load_state_dict(start)
            sgd = torch.optim.SGD(model.parameters(), lr=0.05)
            order = made.federation.indices(client)[torch.randperm(size.held)].to(device)
            for part in order.split(size.batch):
                sgd.zero_grad()
                functional.cross_entropy(model(inputs[part]), targets[part]).backward()
                sgd.step()
            for name, value in model.state_dict().items():
                mean[name] += value / size.clients
        start = mean
        found.append(synchronised(device) - begun)
    return found[1:]


def speed(device: str, size: Size) -> Iterator[dict[str, Any]]:
    """Seconds of a round, each way."""
    where, made = device_of(device), of_speed(size)
    peak(where, anew=True)
    ours = statistics.median(rounds(prepare(made, pr.Execution(engine="stacked", device=device)), where))
    held = peak(where)
    native = prepare(made, pr.Execution(engine="native", device="cpu"))
    there = statistics.median(rounds(native, torch.device("cpu"))) if native.chosen.kind == "native" else None
    loop = statistics.median(bare(of_speed(size), size, where))
    yield {"clients": size.clients, "steps": size.clients * -(-size.held // size.batch), "stacked_s": ours}
    yield {"bare_s": loop, "times_bare": loop / ours, "asked": ASKED if where.type == "cuda" else None}
    yield {"native_s": there, "times_native": None if there is None else there / ours}
    yield {"peak_mb": held}
    yield from adapters(where, device, size)


def adapters(where: torch.device, device: str, size: Size) -> Iterator[dict[str, Any]]:
    """Seconds of a round of clients with adapters of one transformer, and how often its frozen part is in memory."""
    model = lora.decoder(*size.wide)
    frozen = sum(p.nbytes for p in model.parameters() if not p.requires_grad) / 2**20
    recipe = pr.fedavg(cohort=size.clients, epochs=1, batch=size.batch, lr=0.05)
    made = lora.experiment(model, recipe, size.clients, size.texts, 2 + size.repeats)
    peak(where, anew=True)
    of = prepare(made, pr.Execution(engine="stacked", device=device))
    ours, held = statistics.median(rounds(of, where)), peak(where)
    loop, times = lora.by_hand(made, model, size.batch, 0.05, where), list[float]()
    for _ in range(1 + min(2, size.repeats)):
        begun = synchronised(where)
        next(loop)
        times.append(synchronised(where) - begun)
    by_hand = statistics.median(times[1:])
    told = {"model": "lora", "engine": of.chosen.kind, "clients": size.clients, "frozen_mb": frozen}
    yield {**told, "stacked_s": ours, "bare_s": by_hand, "times_bare": by_hand / ours, "peak_mb": held}


def precision(device: str, size: Size) -> Iterator[dict[str, Any]]:
    """Rounds with products in fewer bits beside those in float32."""
    where, made = device_of(device), of_speed(size)
    few = experiment("lenet5", pr.fedavg(cohort=4, epochs=1, batch=size.batch, lr=0.05), 4, min(size.held, 50), 3)
    exact, whole = weights(prepare(few, pr.Execution(engine="stacked", device=device))), 0.0
    kinds: tuple[Precision, ...] = ("float32", "tf32", "bfloat16") if where.type == "cuda" else ("float32", "bfloat16")
    for kind in kinds:
        how = pr.Execution(engine="stacked", device=device, precision=kind)
        seconds = statistics.median(rounds(prepare(made, how), where))
        whole = seconds if kind == "float32" else whole
        distance = apart(weights(prepare(few, how)), exact)
        yield {
            "precision": kind,
            "s": seconds,
            "faster": whole / seconds,
            "apart": distance,
            "agrees": distance <= COARSE,
        }


def pieces(device: str, size: Size) -> Iterator[dict[str, Any]]:
    """A cohort that has no room at once: told of little room on a processor, by a share of the memory on a card."""
    made = experiment("lenet5", pr.fedavg(cohort=4, epochs=1, batch=size.batch, lr=0.05), 4, min(size.held, 50), 2)
    whole = prepare(made, pr.Execution(engine="stacked", device=device))
    halved = prepare(made, pr.Execution(engine="stacked", device=device, stack=2))
    distance = apart(weights(halved), weights(whole))
    yield {"stack": 2, "apart": distance, "agrees": distance <= CLOSE, "vectors": stacked.VECTORS}
    where = device_of(device)
    if where.type != "cuda":
        yield {"why": "there is no card whose memory could run out"}
        return
    made = of_speed(dataclasses.replace(size, repeats=0))
    peak(where, anew=True)
    exact = weights(prepare(made, pr.Execution(engine="stacked", device=device)))
    needed = peak(where, anew=True) or 0.0
    with little_room(where, 0.7 * needed), warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        distance = apart(weights(prepare(made, pr.Execution(engine="stacked", device=device))), exact)
    halved = [str(warning.message) for warning in heard if "no memory for" in str(warning.message)]
    yield {"needed_mb": needed, "halved": halved, "apart": distance, "agrees": bool(halved) and distance <= CLOSE}


@contextlib.contextmanager
def little_room(device: torch.device, megabytes: float) -> Iterator[None]:
    """Has a card give this process no more than so much."""
    total = torch.cuda.get_device_properties(device).total_memory / 2**20
    torch.cuda.set_per_process_memory_fraction(megabytes / total, device)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)


LONG = """
import sys, polyrhythm as pr
sys.path.insert(0, sys.argv[1])
import gpu
made = gpu.experiment("lenet5", pr.fedavg(cohort=4, epochs=1, batch=5, lr=0.05), 4, 12, int(sys.argv[4]))
how = pr.Execution(engine="stacked", device=sys.argv[3], checkpoint=pr.Checkpoint(every=1))
pr.run(made, execution=how, out=sys.argv[2], resume="auto" if sys.argv[5] == "again" else "never")
"""


def resume(device: str, size: Size) -> Iterator[dict[str, Any]]:
    """A run is killed at its first checkpoint, goes on, and is held to one that was not killed."""
    del size
    with tempfile.TemporaryDirectory() as folder:
        here = str(Path(__file__).parent)

        def command(out: str, *more: str) -> list[str]:
            return [sys.executable, "-c", LONG, here, f"{folder}/{out}", device, "40", *more]

        first = subprocess.Popen(command("killed", "first"), stdout=subprocess.DEVNULL)
        while first.poll() is None and not list(Path(folder).glob("killed/*/checkpoint-*")):
            time.sleep(0.02)
        killed = first.poll() is None
        first.send_signal(signal.SIGKILL)
        first.wait()
        subprocess.run(command("killed", "again"), stdout=subprocess.DEVNULL, check=True)
        subprocess.run(command("whole", "first"), stdout=subprocess.DEVNULL, check=True)
        digests = [[run.summary["digest"] for run in pr.Run.all(f"{folder}/{out}")] for out in ("killed", "whole")]
    yield {"killed": killed, "agrees": digests[0] == digests[1]}


def ray(device: str, size: Size) -> Iterator[dict[str, Any]]:
    """Two workers with half of the card each."""
    if importlib.util.find_spec("ray") is None:
        yield {"why": "Ray is not installed"}
        return
    if device_of(device).type != "cuda":
        yield {"why": "there is no card to be shared"}
        return
    made = experiment("lenet5", pr.fedavg(cohort=4, epochs=1, batch=size.batch, lr=0.05), 4, min(size.held, 50), 3)
    alone = weights(prepare(made, pr.Execution(engine="stacked", device=device, driver="inline", stack=2)))
    begun = time.perf_counter()
    both = weights(prepare(made, pr.Execution(driver="ray", workers=2, gpus=0.5, stack=2)))
    distance = apart(both, alone)
    told = {"workers": 2, "gpus": 0.5, "with_start_s": time.perf_counter() - begun}
    yield {**told, "apart": distance, "agrees": distance <= CLOSE}


PARTS: dict[str, Callable[[str, Size], Iterator[dict[str, Any]]]] = {
    "agreement": agreement,
    "speed": speed,
    "precision": precision,
    "pieces": pieces,
    "resume": resume,
    "ray": ray,
}


@dataclass
class Found:
    """What was found, and where it is written.

    Args:
        out: the files without their ends.
        about: of the device and the libraries.
    """

    out: Path
    about: dict[str, Any]
    parts: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    @property
    def disagrees(self) -> list[str]:
        """The parts in which something does."""
        return [name for name, rows in self.parts.items() if any(row.get("agrees") is False for row in rows)]

    def write(self) -> None:
        """All that there is so far; each file is whole or the one before."""
        self.out.parent.mkdir(parents=True, exist_ok=True)
        told = {**self.about, "parts": self.parts, "disagrees": self.disagrees}
        for end, text in ((".json", json.dumps(told, indent=1) + "\n"), (".md", self.page())):
            fresh = self.out.with_suffix(f"{end}.new")
            fresh.write_text(text, encoding="utf-8")
            os.replace(fresh, self.out.with_suffix(end))

    def page(self) -> str:
        """The same to be read."""
        lines = [f"# {self.about['device']}", "", ", ".join(f"{k} {v}" for k, v in self.about.items()), ""]
        for name, rows in self.parts.items():
            lines += [f"## {name}", ""]
            lines += [f"- {', '.join(f'{key} {_short(value)}' for key, value in row.items())}" for row in rows]
            lines += [""]
        return "\n".join(lines)


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


class TimeOver(BaseException):
    """The time is over, wherever the program is."""


@contextlib.contextmanager
def no_longer_than(seconds: float) -> Iterator[None]:
    """Breaks a block off when the time is over: between two steps of Python, so not within one of the device."""

    def over(*_: object) -> None:
        raise TimeOver

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def carry_out(found: Found, device: str, size: Size, seconds: float) -> None:
    """All parts, of which none goes on when the time is over, and none that fails ends the others.

    Agreement takes half of the time at most: no card is there for it alone.
    """
    begun = time.monotonic()
    for name, part in PARTS.items():
        rows = found.parts[name] = list[dict[str, Any]]()
        left = seconds - (time.monotonic() - begun)
        share = min(left, seconds / 2) if name == "agreement" else left
        try:
            if share > 0:
                with no_longer_than(share):
                    for row in part(device, size):
                        rows.append(row)
                        print(name, json.dumps(row), flush=True)
                        found.write()
            else:
                rows.append({"why": f"{seconds:.0f} s were over"})
        except TimeOver:
            rows.append({"why": f"{share:.0f} s were over"})
        except Exception as error:  # the others are to be measured all the same
            rows.append({"why": f"{type(error).__name__}: {error}", "agrees": False})
        found.write()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, or cpu to try this program out")
    parser.add_argument("--small", action="store_true", help="four clients with few samples")
    parser.add_argument("--seconds", type=float, default=480, help="after which nothing goes on")
    parser.add_argument("--out", type=Path, default=Path("gpu"))
    given = parser.parse_args()
    device = device_of(given.device)
    about = {"device": named(device), "torch": torch.__version__, "cuda": torch.version.cuda, "small": given.small}
    found = Found(given.out, about)
    carry_out(found, given.device, SMALL if given.small else WHOLE, given.seconds)
    sys.exit(1 if found.disagrees else 0)


if __name__ == "__main__":
    main()
