"""Seconds a round of the same work, by who carries out visits: in turn, so that the drivers meet the same machine.

The least, the median and the mean over the rounds of a run, without the first, which starts workers. All runs must end
with the same model, or this says so and fails. With --rolling as many clients as in a cohort are at work at any time,
on devices of three speeds, and so many updates make a version.

    python benchmarks/crews.py lenet5-fmnist mlp-fmnist --engine torch --workers 2
    python benchmarks/crews.py lenet5-fmnist mlp-fmnist --rolling --drivers inline processes
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
import time
from typing import Any

import polyrhythm as pr
from polyrhythm.bench.works import experiment
from polyrhythm.experiments.prepared import prepare
from polyrhythm.experiments.session import carry_out
from polyrhythm.runs import ModelView, VersionRecord
from polyrhythm.runs.observer import Observer

DRIVERS = ("inline", "processes", "ray")


class Clock(Observer):
    """Notes when each version is there."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def version(self, record: VersionRecord, model: ModelView) -> None:
        """Notes the time."""
        self.times.append(time.perf_counter())


def rolling(of: pr.Experiment) -> pr.Experiment:
    """The same work without rounds."""
    recipe = of.recipe | pr.parts.rolling() | pr.parts.buffer(size=of.recipe.participation.size)
    return dataclasses.replace(of, recipe=recipe, fleet=pr.Fleet(devices=pr.fleet.Tiers()))


def measured(of: pr.Experiment, engine: Any, work: str, driver: Any, workers: int) -> dict[str, Any]:
    """One run."""
    how = pr.Execution(engine=engine, driver=driver, workers=None if driver == "inline" else workers)
    clock = Clock()
    summary = carry_out(prepare(of, how), [clock])
    # The last one is evaluated, and the first starts the workers.
    seconds = [b - a for a, b in zip(clock.times[1:-1], clock.times[2:-1], strict=False)]
    shown = {"mean": statistics.fmean(seconds), "median": statistics.median(seconds), "least": min(seconds)}
    return {"work": work, "driver": driver, "engine": engine, "digest": summary["digest"], **shown}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", nargs="+")
    parser.add_argument("--engine", default="torch")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--rolling", action="store_true")
    parser.add_argument("--drivers", nargs="+", default=DRIVERS)
    given = parser.parse_args()
    alike = True
    for work in given.work:
        of = experiment(work, given.rounds + 1)
        of = rolling(of) if given.rolling else of
        found = [measured(of, given.engine, work, driver, given.workers) for driver in given.drivers]
        for row in found:
            print(json.dumps(row), flush=True)
        alike &= len({row["digest"] for row in found}) == 1
    return 0 if alike else 1


if __name__ == "__main__":
    sys.exit(main())
