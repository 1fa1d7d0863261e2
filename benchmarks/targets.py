"""Every speed that is aimed at, measured: ours, what it is compared with, the ratio and the ratio that was asked for.

Each row is a program of its own whose two sides take turns, so that both meet the same neighbours on the machine; the
load average tells how many those were.

    python benchmarks/targets.py                 all, about ten minutes
    python benchmarks/targets.py start memory    some rows, by their names
    python benchmarks/targets.py resnet          or by how they begin: resnet9-cifar10 here
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from polyrhythm.bench.duel import ASKED, duel

HERE = Path(__file__).parent
REPEATS = {
    "lenet5-cifar10": 5,
    "resnet9-cifar10": 5,
    "resnet9-batch-cifar10": 5,
    "resnet18-cifar10": 5,
    "resnet18-batch-cifar10": 5,
    "alexnet-fmnist": 7,
    "vgg11-cifar10": 5,
}


class Row(NamedTuple):
    """A line of the table: texts, and whether what was asked for is reached (None: nothing was)."""

    what: str
    ours: str
    other: str
    ratio: str
    asked: str
    met: bool | None


def told(script: str, *arguments: str) -> list[dict[str, Any]]:
    """The JSON lines that a benchmark prints."""
    command = [sys.executable, str(HERE / script), *arguments]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def work(name: str) -> Iterator[Row]:
    found = duel(name, against="bare", repeats=REPEATS.get(name, 15))
    ours, bare, ratio, asked = found["ours"]["median"], found["bare"]["median"], found["ratio"], ASKED[name]
    words = f"{name} ({found['engine']})", f"{ours:.4f} s a round", f"bare loop {bare:.4f} s"
    yield Row(*words, f"{ratio:.2f} ×", f">= {asked:g} ×", ratio >= asked)


def recipes() -> Iterator[Row]:
    for found in told("recipes.py", "--engine", "native", "--work", "lenet5"):
        if found["recipe"] == "fedavg":
            continue
        what, ratio = f"recipe {found['recipe']} ({found['engine']})", found["ratio"]
        took, due = found["seconds_a_round"], found["fedavg_same_steps"] + found["own"]
        other = f"FedAvg's and own {due:.3f} s"
        yield Row(what, f"{took:.4f} s a round", other, f"{ratio:.2f}", "<= 1.10", ratio <= 1.1)


def start() -> Iterator[Row]:
    [found] = told("start.py")
    command, torch = (found["processor_seconds"][key] for key in ("command", "import_torch"))
    words = "start, digits to the first round", f"{command:.2f} s", f"import torch {torch:.2f} s"
    yield Row(*words, f"+ {command - torch:.2f} s", "<= + 1 s", command - torch <= 1)


def overhead() -> Iterator[Row]:
    [found] = told("overhead.py")
    words = "overhead, 1,000 clients, 1 M parameters", f"{found['seconds_a_round']:.2f} s a round"
    other, ratio = f"copies {found['copies_seconds']:.2f} s", found["ratio"]
    yield Row(*words, other, f"{ratio:.2f}", "<= 3", ratio <= 3)


def memory() -> Iterator[Row]:
    [found] = told("memory.py")
    beside = found["beside_the_data_mb"]
    words = "memory, 100,000 clients", f"{found['peak_mb']} MB", f"data {found['data_mb']} MB"
    yield Row(*words, f"+ {beside} MB", "<= + 300 MB", beside <= 300)


def population() -> Iterator[Row]:
    [found] = told("population.py", "--clients", "1000000", "--cohort", "1000", "--rounds", "10")
    rate, peak = found["visits_per_second"], found["peak_memory_mb"]
    yield Row("population 1,000,000, cohort 1,000", f"{rate:,} visits/s", f"{peak:,} MB", "runs", "runs", True)


ROWS: Mapping[str, Callable[[], Iterator[Row]]] = {
    **{name: lambda name=name: work(name) for name in ASKED},  # type: ignore[misc]
    **{"recipes": recipes, "start": start, "overhead": overhead, "memory": memory, "population": population},
}


def rows(beginning: str) -> list[str]:
    """The rows of that name, or all whose names begin with it."""
    found = [beginning] if beginning in ROWS else [name for name in ROWS if name.startswith(beginning)]
    if not found:
        raise argparse.ArgumentTypeError(f"no row is called, or begins with, {beginning!r}: {', '.join(ROWS)}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", type=rows, help=f"of {', '.join(ROWS)}")
    given = parser.parse_args()
    wanted = dict.fromkeys(name for names in given.rows for name in names) or ROWS
    print(f"{os.cpu_count()} processors, {platform.machine()}, {platform.system()}, Python {platform.python_version()}")
    print(line(Row("what", "ours", "compared with", "ratio", "asked", None), "load"), flush=True)
    for name in wanted:
        try:
            for row in ROWS[name]():
                print(line(row, f"{os.getloadavg()[0]:.1f}"), flush=True)
        except Exception as error:  # a row that cannot be measured must not hide the others
            print(f"{name}: {type(error).__name__}: {error}", flush=True)


def line(row: Row, load: str) -> str:
    met = {True: "reached", False: "MISSED", None: ""}[row.met]
    return f"{row.what:<44} {row.ours:<18} {row.other:<24} {row.ratio:>9} {row.asked:>12}  {met:<8} {load:>5}".rstrip()


if __name__ == "__main__":
    main()
