"""The measured process of a benchmark: a whole run with its record, one round for each line that is read."""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import final

import torch

from polyrhythm.base.vectors import Layout
from polyrhythm.bench.works import experiment, values_of
from polyrhythm.experiments.execution import Execution
from polyrhythm.experiments.prepared import prepare
from polyrhythm.experiments.session import carry_out
from polyrhythm.runs.observer import Observer
from polyrhythm.runs.recorder import Recorder
from polyrhythm.runs.records import ModelView, VersionRecord
from polyrhythm.simulation.workers.choosing import ExecutionPlan
from polyrhythm.simulation.workers.executors import Done, Executor, VisitFuture, VisitTask


@final
class Watch(Observer):
    """Keeps the loss of the newest version, and the weights of the first.

    Args:
        path: where those go.
        layout: of the model.
    """

    def __init__(self, path: str, layout: Layout) -> None:
        self._path, self._layout = path, layout
        self.loss: float | None = None

    def version(self, record: VersionRecord, model: ModelView) -> None:
        self.loss = record.train_loss
        if record.version == 1:
            torch.save(values_of(self._layout, model()), self._path)


@final
class Gate:
    """Lets a run go on by one round for each line on standard input, and says how long it took.

    A round is measured from where its visits set out to where those of the next would: the books on a version are made
    while workers are at the visits of the next, so only there is nothing under way in the pause. What is told of a
    version is therefore told a round late.

    Args:
        watch: knows the loss.
        engine: that is told.
    """

    goes_on: bool
    deaths = 0

    def __init__(self, watch: Watch, engine: str) -> None:
        self._watch, self._engine = watch, engine
        self._crew: Executor
        self._begun = math.nan

    def before(self, crew: Executor) -> Executor:
        """Stands before whoever carries out the visits."""
        self._crew, self.goes_on = crew, crew.goes_on
        return self

    def start(self, tasks: Sequence[VisitTask]) -> Sequence[VisitFuture]:
        """Tells of the round before, and waits."""
        if not tasks:
            return self._crew.start(tasks)
        if not math.isnan(self._begun):
            told = {"seconds": time.perf_counter() - self._begun, "loss": self._watch.loss, "engine": self._engine}
            print(json.dumps(told), flush=True)
        if not sys.stdin.readline():
            raise KeyboardInterrupt("measured")
        self._begun = time.perf_counter()
        return self._crew.start(tasks)

    def done(self, future: VisitFuture) -> Done:
        return self._crew.done(future)

    def close(self) -> None:
        self._crew.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("work")
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--path", required=True)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--engine", required=True)
    given = parser.parse_args()
    # One round more than are measured, since the last one is evaluated.
    of = prepare(experiment(given.work, given.rounds + 1), Execution(workers=given.workers, engine=given.engine))
    watch, executor = Watch(given.path, of.chosen.engine.layout), ExecutionPlan.executor
    gate = Gate(watch, of.chosen.name)
    ExecutionPlan.executor = lambda crew, clients: gate.before(executor(crew, clients))  # type: ignore[assignment, method-assign]
    with tempfile.TemporaryDirectory() as folder:
        carry_out(of, [Recorder(folder), watch])


if __name__ == "__main__":
    main()
