"""Writes the costs that come with the package: what the papers' tables and figures take at their own size here.

chrt -r 1 python docs/measure_costs.py --shakespeare shakespeare_by_role.json.gz
python docs/make_results.py

For each data set and model, the time of a training sample is that of `polyrhythm check` on the first row that has them
and orders no samples by their losses, if there is one: steps and visits, measured now on one thread with the engine
that `auto` takes, on random data of the same shape. A study's time is that, times the samples that its rows, columns,
seeds and trials visit, and a third of it for each test sample that is looked at, which has no way back. What a recipe
computes beside its steps, such as a Fisher trace, and what it leaves out, such as a skipped visit, is not in it.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from polyrhythm.experiments.estimate import estimate
from polyrhythm.experiments.execution import Execution
from polyrhythm.experiments.prepared import what_and_how
from polyrhythm.methods.work.base import Steps
from polyrhythm.runs.environment import machine
from polyrhythm.studies.advice.advising import made
from polyrhythm.studies.definition import Study
from polyrhythm.studies.files import needs
from polyrhythm.studies.files.catalogue import catalogue
from polyrhythm.studies.planning import Cell, CellMaker, Plan, planned

OUT = Path(needs.__file__).with_name(needs.COSTS)
PAPERS = ("fedcl", "alt", "client-centric", "curriculum", "ccfl")
SIZES: Mapping[str, int] = {
    "cifar10": 50_000,
    "cifar100": 50_000,
    "fashion-mnist": 60_000,
    "tiny-imagenet": 100_000,
    "shakespeare": 734_057,
    "stackoverflow-tags": 0,
}
"""Training samples; 0 where they depend on the file."""
TESTED: Mapping[str, int] = {"shakespeare": 70_657}
"""Test samples, where they are not 10,000."""
Kind = tuple[str, str]
"""Data and model."""


def plans() -> Iterator[tuple[Study, Plan]]:
    """Every study of a paper that trains, at the paper's own size."""
    for study in catalogue().values():
        if study.paper in PAPERS and not study.unknown and not study.program:
            yield study, planned(study, "paper")


def written(make: CellMaker) -> dict[str, Any]:
    """A cell as an experiment file has it, its method as one text."""
    found = dict(make.written() or {})
    method = found["method"]
    return found | {"method": method if isinstance(method, str) else " | ".join(method)}


def kind(values: Mapping[str, Any]) -> Kind:
    """What the time of a sample depends on."""
    data = str(values["data"])
    return data if data == "fashion-mnist(pad=2)" else data.partition("(")[0], str(values["model"])


def samples(values: Mapping[str, Any]) -> float:
    """Samples that a run visits, if every visit is a whole one and clients hold as many; a third of those it tests."""
    recipe = made(values["method"])
    held = (
        SIZES[kind(values)[0].partition("(")[0]] * (1.0 - float(values.get("validation", 0.0))) / int(values["clients"])
    )
    work = recipe.work
    if isinstance(work, Steps):
        visit = float(work.steps * min(recipe.batch or math.ceil(held), math.ceil(held)))
    else:
        visit = float(getattr(work, "epochs", 1.0)) * held
    trained = float(values["rounds"]) * min(recipe.cohort, int(values["clients"])) * visit
    looks = float(values["rounds"]) / dict(values.get("evaluation", {})).get("every", 1)
    return trained + looks * TESTED.get(kind(values)[0].partition("(")[0], 10_000) / 3.0


def _looks(method: str) -> bool:
    """Whether a visit looks at all its samples before it trains, which one of a few steps would pay for too dearly."""
    return "curriculum" in method and "vanilla" not in method


def stand_in(name: str, folder: Path, shakespeare: str) -> str:
    """Random data of the shape of a data set, a hundred samples for each of 128 clients, as a file names them."""
    if name == "shakespeare":
        return f"shakespeare(path={json.dumps(shakespeare)}, stride=20)"
    shape, classes = _SHAPES.get(name, ((1, 28, 28), 10))
    random, path = np.random.default_rng(0), folder / f"{name}.npz"
    if not path.exists():
        arrays: dict[str, np.ndarray] = {}
        for part, many in (("train", 12_800), ("test", 20)):
            arrays |= {f"x_{part}": random.integers(0, 256, (many, *shape), dtype=np.uint8)}
            arrays |= {f"y_{part}": np.arange(many) % classes}
        np.savez(path, **arrays)
    return f"npz(path={json.dumps(str(path))})"


_SHAPES: Mapping[str, tuple[tuple[int, ...], int]] = {
    "cifar10": ((3, 32, 32), 10),
    "cifar100": ((3, 32, 32), 100),
    "fashion-mnist(pad=2)": ((1, 32, 32), 10),
    "tiny-imagenet": ((3, 64, 64), 200),
}


def measured(cell: Cell, data: str) -> dict[str, Any]:
    """The time of a sample in the visits of a cell, by an estimate of two rounds."""
    setting = {"rounds": 2, "data": data, "clients": 128, "partition": "iid", "validation": 0.0}
    experiment, _ = what_and_how(cell.make(setting, 0))
    found = estimate(experiment, execution=Execution(driver="inline"), out="nowhere")
    return {"seconds_per_sample": found.seconds.expected / found.samples}


def counted(plan: Plan, times: Mapping[Kind, Mapping[str, Any]]) -> dict[str, Any] | None:
    """Runs, trials, samples and hours of a plan; None if the time of one of its networks is not known."""
    runs = [(written(cell.make), len(plan.seeds)) for cell in plan.cells]
    trials = [(written(arm.make), arm.many * len(arm.search.seeds)) for arm in plan.arms.values()]
    if any(kind(values) not in times for values, _ in runs):
        return None
    visited = [(many * samples(values), times[kind(values)]["seconds_per_sample"]) for values, many in (*runs, *trials)]
    return {
        "runs": sum(many for _, many in runs),
        "trials": sum(many for _, many in trials),
        "samples": round(sum(count for count, _ in visited)),
        "hours": sum(count * each for count, each in visited) / 3600,
    }


def main() -> None:
    """Measures, counts, and writes both."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--shakespeare", default="", help="a file of plays by role; without it there is no LSTM")
    options.add_argument("--again", action="store_true", help="measure what the file has already, too")
    given = options.parse_args()
    earlier = {"kinds": []} if given.again or not OUT.is_file() else json.loads(OUT.read_text(encoding="utf-8"))
    times: dict[Kind, dict[str, Any]] = {(one.pop("data"), one.pop("model")): one for one in earlier["kinds"]}
    known = len(times)
    studies: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for study, plan in plans():
            cells = [(cell, written(cell.make)) for cell in plan.cells]
            for cell, values in sorted(cells, key=lambda pair: _looks(pair[1]["method"])):
                what = kind(values)
                if (
                    what in times
                    or what[0] == "stackoverflow-tags"
                    or (what[0], given.shakespeare) == ("shakespeare", "")
                ):
                    continue
                times[what] = measured(cell, stand_in(what[0], Path(folder), given.shakespeare))
                print(study.name, *what, f"{times[what]['seconds_per_sample']:.3g} s a sample", flush=True)
            if (found := counted(plan, times)) is None:
                continue
            studies[study.name] = found
            if "quick" in study.scales and (quick := counted(planned(study, "quick"), times)) is not None:
                studies[study.name]["quick_hours"] = quick["hours"]
    where = machine()
    told = {
        "date": earlier["date"] if len(times) == known else datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": f"{where['cpu']}, {where['instructions']}",
        "command": "chrt -r 1 python docs/measure_costs.py --shakespeare shakespeare_by_role.json.gz",
        "kinds": [{"data": data, "model": model, **of} for (data, model), of in times.items()],
        "studies": studies,
    }
    OUT.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
