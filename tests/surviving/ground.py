"""The killing ground: a process that has imported everything, and forks a run whenever it is told to.

Told of a job on a line of its standard input, as JSON, it forks and says the child's process number. The child says
"begun" and, if it lives so long, "ended". A job may say at which step of a checkpoint, counted over the run, the child
kills itself; else whoever reads its number kills it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import polyrhythm as pr
import small
from polyrhythm.experiments import session
from polyrhythm.runs import checkpointing, files, stored
from polyrhythm.runs.database_writer import Writer
from polyrhythm.runs.observer import Observer
from polyrhythm.simulation.client_store.vector_files import VectorFiles
from surviving import scenarios


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def at(owner: Any, name: str, call: int, *, after: bool = False) -> None:
    """Has the process die at the call of a function, or just after it."""
    original: Callable[..., Any] = getattr(owner, name)
    calls = 0

    def counted(*given: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call and not after:
            die()
        made = original(*given, **named)
        if calls == call:
            die()
        return made

    setattr(owner, name, counted)


def pieces(call: int) -> None:
    """Has the process die when half of a checkpoint is written."""
    original, calls = stored._pieces, 0

    def some(header: bytes, tensors: Any) -> Any:
        nonlocal calls
        calls += 1
        for number, piece in enumerate(original(header, tensors)):
            if calls == call and number == 4:
                die()
            yield piece

    stored._pieces = some


STEPS: dict[str, Callable[[int], None]] = {
    "before the rows are durable": lambda call: at(Writer, "commit", call),
    "after the rows are durable": lambda call: at(checkpointing, "store", call),
    "half of it written": pieces,
    "before it is on the disk": lambda call: at(files.os, "fsync", call),
    "before it has its name": lambda call: at(Path, "replace", call),
    "when it has its name": lambda call: at(Path, "replace", call, after=True),
    "before an old one is removed": lambda call: at(Path, "unlink", call),
    "when an old one is removed": lambda call: at(Path, "unlink", call, after=True),
    "before a client's vector is written": lambda call: at(VectorFiles, "_written", call),
    "when a client's vector is written": lambda call: at(VectorFiles, "_written", call, after=True),
    "before it holds what clients remember": lambda call: at(VectorFiles, "pin", call),
    "when it holds what clients remember": lambda call: at(VectorFiles, "pin", call, after=True),
}


class Says(Observer):
    """An observer that says when the run has begun."""

    def begin(self, plan: object) -> None:
        print("begun", flush=True)


def carry_out(job: dict[str, Any]) -> None:
    if "step" in job:
        STEPS[job["step"]](job["call"])
    changes: dict[str, Any] = (
        {} if job["every"] != "never" else {"driver": "inline", "workers": None}
    )  # which changes no number
    changes["checkpoint"] = pr.Checkpoint(every=job["every"], keep=3)
    small.run(scenarios.prepared(job["scenario"], **changes), out=job["out"], observers=[Says()], resume="auto")
    print("ended", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    session.carry_out(scenarios.prepared("fedavg", rounds=1), [])  # what is slow the first time
    print("ready", flush=True)
    child = 0
    for line in sys.stdin:
        if child:
            os.waitpid(child, 0)
        child = os.fork()
        if child == 0:
            try:
                carry_out(json.loads(line))
            except BaseException as error:
                print(f"failed {error!r}", flush=True)
            os._exit(0)
        print(child, flush=True)
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # its number stays its own until the next job
        print("gone", flush=True)


if __name__ == "__main__":
    main()
