"""How the time of a round grows: with the cohort, with the parameters, and with one or two workers.

A network of three layers, of 10⁴ to 10⁷ parameters; each client holds 20 samples and takes two steps of ten. What would
hold more than 10⁹ numbers in a round's updates is left out. Settings take turns; the median of several rounds counts.
One JSON line for each setting.

    python benchmarks/growth.py > growth.jsonl
    python benchmarks/growth.py --cohort 10 --parameters 10000 >> growth.jsonl    a part of it
    python benchmarks/growth.py --read growth.jsonl --output docs/pictures/growth.svg    a table, and a picture
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, final

import torch

import polyrhythm as pr
from polyrhythm.data import ArraySamples, Collection
from polyrhythm.experiments.prepared import prepare
from polyrhythm.experiments.session import carry_out
from polyrhythm.models.catalogue import find
from polyrhythm.runs.observer import Observer
from polyrhythm.runs.records import ModelView, Plan, RunStatus, VersionRecord

COHORTS, WORKERS = (10, 100, 1_000), (1, 2)
HIDDEN = {10**4: (12,), 10**5: (116, 64), 10**6: (1_000, 200), 10**7: (4_000, 1_700)}
COLOURS = ["#0072B2", "#D55E00", "#009E73"]  # Okabe and Ito's, which colour-blind people can tell apart
MOST, HELD, ROUNDS = 1.1e9, 20, 5


@final
class Clock(Observer):
    """Seconds of each round but the first, which makes memory, and the last, which is evaluated."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def begin(self, plan: Plan) -> None:
        self.parameters = plan.parameters

    def version(self, record: VersionRecord, model: ModelView) -> None:
        self.ends.append(time.perf_counter())

    def end(self, status: RunStatus, reason: str, summary: Mapping[str, Any]) -> None:
        self.seconds = [b - a for a, b in itertools.pairwise(self.ends[1:-1])]


@functools.cache
def collection() -> Collection:
    """Twenty samples for each of 2,000 clients."""
    count = 2 * max(COHORTS) * HELD
    train = ArraySamples(torch.randn(count, 784), torch.randint(10, (count,)))
    classes = tuple(map(str, range(10)))
    few = ArraySamples(train.inputs[:10], train.targets[:10])
    return Collection(name="noise", task="classification", classes=classes, train=train, test=few)


def run(cohort: int, parameters: int, workers: int, rounds: int) -> Clock:
    """One run of a setting."""
    experiment = pr.Experiment(
        federation=pr.federate(collection(), pr.data.Iid(), 2 * max(COHORTS), 0),
        model=functools.partial(find("mlp"), hidden=HIDDEN[parameters]),
        recipe=pr.fedavg(cohort=cohort, epochs=1, batch=10, lr=0.01),
        rounds=rounds + 2,
        evaluation=pr.Evaluation(every=rounds + 3),
    )
    clock = Clock()
    carry_out(prepare(experiment, pr.Execution(workers=workers)), [clock])
    return clock


def measure(cohorts: Sequence[int], sizes: Sequence[int], crews: Sequence[int], repeats: int) -> None:
    """All settings in turn, again and again; then a line for each."""
    settings = [s for s in itertools.product(cohorts, sizes, crews) if s[0] * s[1] < MOST]
    seconds: dict[tuple[int, int, int], list[float]] = {setting: [] for setting in settings}
    exact: dict[int, int] = {}
    for _ in range(repeats):
        for setting in settings:
            clock = run(*setting, ROUNDS)
            seconds[setting] += clock.seconds
            exact[setting[1]] = clock.parameters
    for (cohort, parameters, workers), found in seconds.items():
        told = {"cohort": cohort, "parameters": exact[parameters], "workers": workers}
        told |= {"seconds": round(statistics.median(found), 5), "least": round(min(found), 5)}
        print(json.dumps({**told, "load": round(os.getloadavg()[0], 1)}), flush=True)


def draw(path: Path, output: Path | None) -> None:
    """The table, and the picture."""
    rows = [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")]
    found = {(r["cohort"], r["parameters"], r["workers"]): r["seconds"] for r in rows}
    sizes = sorted({r["parameters"] for r in rows})
    print("| cohort | workers | " + " | ".join(f"{size:,}" for size in sizes) + " |")
    print("| --- " * (len(sizes) + 2) + "|")
    for cohort, workers in itertools.product(COHORTS, WORKERS):
        cells = [found.get((cohort, size, workers)) for size in sizes]
        words = " | ".join("–" if cell is None else f"{cell:.3g}" for cell in cells)
        print(f"| {cohort:,} | {workers} | {words} |")
    if output is None:
        return
    import altair as alt
    import pandas as pd

    frame = pd.DataFrame(rows)
    frame["workers"] = frame["workers"].map({1: "one", 2: "two"})
    frame["cohort"] = frame["cohort"].map("{:,}".format)
    names = [f"{cohort:,}" for cohort in COHORTS]
    chart = alt.Chart(frame).encode(
        x=alt.X(
            "parameters:Q", scale=alt.Scale(type="log", nice=False), title="parameters", axis=alt.Axis(format="~s")
        ),
        y=alt.Y("seconds:Q", scale=alt.Scale(type="log"), title="seconds a round"),
        color=alt.Color("cohort:N", title="cohort", sort=names, scale=alt.Scale(domain=names, range=COLOURS)),
        strokeDash=alt.StrokeDash("workers:N", title="workers", sort=["one", "two"]),
    )
    (chart.mark_line() + chart.mark_point(filled=True)).properties(width=420, height=260).configure(aria=False).save(
        output
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--cohort", type=int, action="append", choices=COHORTS, help="only this; several times for more"
    )
    parser.add_argument("--parameters", type=int, action="append", choices=list(HIDDEN), help="likewise")
    parser.add_argument("--workers", type=int, action="append", choices=WORKERS, help="likewise")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--read", type=Path, help="draw what was measured before")
    parser.add_argument("--output", "-o", type=Path, help="the picture")
    given = parser.parse_args()
    if given.read is None:
        cohorts, sizes, crews = given.cohort or COHORTS, given.parameters or list(HIDDEN), given.workers or WORKERS
        measure(cohorts, sizes, crews, given.repeats)
    else:
        draw(given.read, given.output)


if __name__ == "__main__":
    main()
