"""The measured process of a benchmark: a whole run with its record, one round for each line that is read."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Any, final

import torch

from polyrhythm.bench.works import experiment
from polyrhythm.runs.recorder import Recorder
from polyrhythm.runs.records import ModelView, Plan, RunStatus, VersionRecord, VisitRecord
from polyrhythm.session import carry_out


@final
class _Gate:
    """Lets a run go on by one round for each line on standard input, and says how long it took."""

    def __init__(self, path: str, engine: str) -> None:
        self._path, self._engine = path, engine
        self._begun = 0.0

    def begin(self, plan: Plan) -> None:
        """Nothing to prepare."""

    def visit(self, record: VisitRecord) -> None:
        """A visit is a part of its round."""

    def version(self, record: VersionRecord, model: ModelView) -> None:
        if record.version:
            told = {
                "seconds": time.perf_counter() - self._begun,
                "loss": record.train_loss,
                "engine": self._engine,
            }
            torch.save(list(model().values()), self._path)
            print(json.dumps(told), flush=True)
        if not sys.stdin.readline():
            raise KeyboardInterrupt("measured")
        self._begun = time.perf_counter()

    def end(self, status: RunStatus, reason: str, summary: Mapping[str, Any]) -> None:
        """Everything has been told."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("work")
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--path", required=True)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--engine", required=True)
    given = parser.parse_args()
    # One round more than are measured, since the last one is evaluated.
    of = dataclasses.replace(experiment(given.work, given.rounds + 1), workers=given.workers, engine=given.engine)
    with tempfile.TemporaryDirectory() as folder:
        carry_out(of, [Recorder(folder), _Gate(given.path, of.chosen.name)])


if __name__ == "__main__":
    main()
