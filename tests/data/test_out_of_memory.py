"""Tables that lie in a file and are larger than the memory that a process may take."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import polyrhythm as pr

ROWS, FEATURES = 300_000, 256  # 307 MB
ROOM = 160 * 2**20
"""Bytes that the process may take beside what it had before it read a sample."""
PROGRAM = """
import resource, sys
import numpy as np, torch
import polyrhythm as pr
from test_out_of_memory import ROOM, Mapped, experiment

def taken():
    with open("/proc/self/status") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith("VmData"))

torch.set_num_threads(1)
resource.setrlimit(resource.RLIMIT_DATA, (taken() + ROOM, -1))
given = np.load(sys.argv[1], mmap_mode="r")
if sys.argv[3] == "held":
    given = np.array(given)  # which the limit does not allow
labels = np.arange(len(given)) % 4
print(pr.run(experiment(Mapped(given, labels), labels), out=sys.argv[2]).summary["digest"])
"""


class Mapped(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Rows of a table that are read when they are asked for."""

    def __init__(self, rows: np.ndarray, labels: np.ndarray) -> None:
        self.rows, self.labels = rows, labels

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.from_numpy(np.array(self.rows[index])), int(self.labels[index])


def experiment(items: Mapped, labels: np.ndarray) -> pr.Experiment:
    """Of few of its clients."""
    few = torch.utils.data.Subset(items, range(100))
    collection = pr.data.dataset(items, few, targets=labels, test_targets=labels[:100])
    federation = pr.federate(collection, pr.data.Iid(), clients=len(items) // 100, seed=0)
    return pr.Experiment(federation=federation, model="logistic", recipe=pr.fedavg(cohort=2, batch=20), rounds=2)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the limit of private memory is Linux's")
def test_a_table_may_be_larger_than_memory(tmp_path: Path) -> None:
    table = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float32, (ROWS, FEATURES))
    for begin in range(0, ROWS, 10_000):
        table[begin : begin + 10_000] = np.arange(FEATURES) / 100
    del table
    here = str(Path(__file__).parent)
    for how, fits in (("mapped", True), ("held", False)):
        command = [sys.executable, "-c", PROGRAM, str(tmp_path / "x.npy"), str(tmp_path / how), how]
        done = subprocess.run(command, capture_output=True, text=True, cwd=here, timeout=300, check=False)
        assert (done.returncode == 0) is fits, done.stderr[-2000:]


def test_rows_that_are_read_when_they_are_asked_for_are_drawn_alike(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(600, 5)).astype(np.float32)
    labels = np.arange(600) % 4
    np.save(tmp_path / "x.npy", rows)
    found = []
    for name, given in (("held", rows), ("mapped", np.load(tmp_path / "x.npy", mmap_mode="r"))):
        run = pr.run(experiment(Mapped(given, labels), labels), out=tmp_path / name)
        found.append(run.summary["digest"])
    inputs = pr.data.arrays(rows, labels, test=(rows[:100], labels[:100]))
    federation = pr.federate(inputs, pr.data.Iid(), clients=6, seed=0)
    recipe = pr.fedavg(cohort=2, batch=20)
    same = pr.Experiment(federation=federation, model="logistic", recipe=recipe, rounds=2)
    engine = pr.Execution(engine="torch")
    read = pr.run(experiment(Mapped(rows, labels), labels), out=tmp_path / "read", execution=engine)
    whole = pr.run(same, out=tmp_path / "whole", execution=engine)
    assert found[0] == found[1]
    assert read.summary["digest"] == whole.summary["digest"]
