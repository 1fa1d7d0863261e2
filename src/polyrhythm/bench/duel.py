"""Two programs doing the same rounds, one after the other and in turn, so that both meet the same neighbours."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from polyrhythm.base.errors import RunFailed, unknown
from polyrhythm.bench import bare
from polyrhythm.bench.works import experiment, write_job

ALIKE = 1e-3
"""How far the weights may lie apart after one round, as a share of their way: roundings grow along a path."""

ALIKE_LOSSES = 0.1
"""How far mean losses of a round may differ, as a share, where weights cannot be compared."""

COMPARABLE = 100
"""Steps in a visit up to which the weights of two engines can be compared. Roundings grow along a path, in jumps where
they decide which of two pixels a pooling takes: after the 500 steps of `lenet5-cifar10`, with momentum, plain PyTorch
in single precision lies 0.4 of its way apart from itself in double precision."""


WARM_UP = 2
"""Rounds that are not measured: the first makes memory, and what it came to is told, and compared, in the second."""

ASKED = {
    "lenet5-fmnist": 4.0,
    "mlp-fmnist": 1.5,
    "ccfl-fmnist": 3.0,
    "lenet5-cifar10": 3.0,
    "resnet9-cifar10": 1.3,
    "resnet9-batch-cifar10": 1.3,
    "resnet18-cifar10": 1.3,
    "resnet18-batch-cifar10": 1.3,
    "alexnet-fmnist": 1.3,
    "vgg11-cifar10": 1.3,
    "lstm-shakespeare": 1.3,
}
"""How many times as fast as the loop by hand ours is meant to be, at least, both with two workers."""


def duel(name: str, *, against: str | None, repeats: int, workers: int = 2, engine: str = "auto") -> dict[str, Any]:
    """Measures one work.

    Both programs are processes of their own, with one thread for each worker. They take the same initial weights and
    the same batches, make two rounds to warm up, and then one after the other in turn.

    Args:
        name: of the work.
        against: "bare" for the loop by hand; None for ours alone.
        repeats: rounds that are measured.
        workers: of both programs.
        engine: of ours.

    Returns:
        Seconds of both, and "ratio": how many times as fast as the other ours is, by medians; "asked": what it is meant
        to be.

    Raises:
        UserError: no such work.
        RunFailed: a program failed, or the two did not do the same work.
    """
    if name not in bare.WORKS:
        raise unknown("work", name, bare.WORKS)
    rounds = repeats + WARM_UP
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as running:
        job = Path(folder) / "job.pt"
        write_job(experiment(name, rounds), rounds, job)
        options = [f"--workers={workers}", f"--engine={engine}"]
        commands = {"ours": ["-m", "polyrhythm.bench.ours", name, f"--rounds={rounds}", f"--path={job}.ours", *options]}
        if against is not None:
            commands[against] = [str(Path(bare.__file__)), name, f"--workers={workers}", f"--job={job}"]
        programs = {who: running.enter_context(_started(command)) for who, command in commands.items()}
        told: dict[str, list[dict[str, Any]]] = {who: [] for who in programs}
        for number in range(rounds):
            for who, program in programs.items():
                told[who].append(_next_round(who, program))
                if number == 1 and against is not None and who == "ours":  # which tells of a version a round late
                    apart = _difference(job, against)
                    used, work = told[who][0]["engine"], bare.WORKS[name]
                    long = (work.steps or work.epochs * -(-work.samples // work.batch)) > COMPARABLE
                    losses = [told[who][1]["loss"], told[against][0]["loss"]]
                    alike(apart, losses, only_losses=used != "torch" and (work.draws or work.deep or long))
        found: dict[str, Any] = {"work": name, "workers": workers, "engine": told["ours"][0]["engine"]}
        found |= {"repeats": repeats, "load": os.getloadavg()[0]}
        for who, all_rounds in told.items():
            seconds = [r["seconds"] for r in all_rounds[WARM_UP:]]
            found[who] = {
                "median": statistics.median(seconds),
                "min": min(seconds),
                "seconds": seconds,
                "loss": all_rounds[-1 if who == "ours" else -2]["loss"],
            }
        if against is not None:
            found["ratio"] = found[against]["median"] / found["ours"]["median"]
            found["ratio_of_minima"] = found[against]["min"] / found["ours"]["min"]
            found["asked"] = ASKED.get(name)
            found["difference"] = apart
    return found


@contextlib.contextmanager
def _started(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    program = subprocess.Popen([sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield program
    finally:
        # The end of its input ends it.
        program.communicate()


def _next_round(who: str, program: subprocess.Popen[str]) -> dict[str, Any]:
    assert program.stdin is not None
    assert program.stdout is not None
    try:
        program.stdin.write("go\n")
        program.stdin.flush()
    except BrokenPipeError:
        raise RunFailed(f"{who} ended before all rounds were made") from None
    line = program.stdout.readline()
    if not line:
        raise RunFailed(f"{who} ended before all rounds were made")
    told: dict[str, Any] = json.loads(line)
    return told


def _difference(job: Path, against: str) -> float:
    """How far the weights lie apart, as a share of the way that they went."""
    start = torch.cat([w.flatten() for w in torch.load(job, weights_only=True)["weights"]])
    ours, other = (
        torch.cat([w.flatten() for w in torch.load(f"{job}.{who}", weights_only=True)]) for who in ("ours", against)
    )
    return float((ours - other).norm() / (ours - start).norm())


def alike(apart: float, losses: Sequence[float], *, only_losses: bool) -> None:
    """Sees to it that two programs did the same work.

    Args:
        apart: how far their weights lie apart after a round, as a share of their way.
        losses: their mean losses in that round.
        only_losses: whether these alone must agree: two engines may draw dropout each in its own way, and their
            roundings grow along a path.

    Raises:
        RunFailed: they did not.
    """
    one, other = losses
    if only_losses and not abs(one - other) < ALIKE_LOSSES * abs(other):
        raise RunFailed(f"the losses of a round are {one:.4f} and {other:.4f}: the two did not do the same work")
    if not only_losses and not apart < ALIKE:
        raise RunFailed(
            f"after a round the weights lie {apart:.2g} of their way apart: the two did not do the same work"
        )
