"""Memory, files and loading: what a run takes does not grow with its rounds, and is known before."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch.utils.data import Dataset

import polyrhythm as pr
from polyrhythm.config import data_names, names
from polyrhythm.config.assembly import assemble
from polyrhythm.config.configuration import configure
from polyrhythm.experiments.estimate import estimate
from polyrhythm.experiments.session import carry_out
from small import experiment, federation, prepared

TESTS = Path(__file__).parents[1]


class Counted(Dataset[Any]):
    """Counts how often it is made."""

    made: ClassVar[int] = 0

    def __init__(self) -> None:
        Counted.made += 1
        self.targets = torch.arange(30) % 3

    def __len__(self) -> int:
        return 30

    def __getitem__(self, item: int) -> tuple[torch.Tensor, int]:
        return torch.full((4,), float(item)), int(self.targets[item])


def test_data_are_loaded_once_and_not_by_client_and_round(monkeypatch: pytest.MonkeyPatch) -> None:
    Counted.made = 0
    data = pr.data.dataset(Counted(), Counted())
    some = prepared(federation=pr.federate(data, pr.data.Iid(), 10, 0), rounds=5)
    carry_out(some, [])
    assert Counted.made == 2
    loaded = []
    real = data_names.SOURCES["digits"]

    @functools.wraps(real)
    def counting(**settings: Any) -> Any:
        loaded.append(settings)
        return real(**settings)

    monkeypatch.setitem(data_names.SOURCES, "digits", counting)
    assert len(list(assemble(configure(None, {"seeds": "0-3", "model": "logistic"}, [])))) == 4
    assert len(loaded) == 1


def test_what_the_server_holds_of_a_cohort_is_known_before_the_run() -> None:
    """The updates of a version are held until it is made; a check counts them, and what clients keep."""

    def kept(recipe: pr.Recipe) -> int:
        wide = names.model("mlp(hidden=[300])")
        return estimate(experiment(federation=federation(40), model=wide, recipe=recipe, rounds=1), out="nowhere").kept

    vector = 4 * (4 * 300 + 300 + 300 * 3 + 3)
    assert kept(pr.fedavg(cohort=34)) - kept(pr.fedavg(cohort=2)) == pytest.approx(32 * vector, rel=0.01)
    # The server's control, and of each of the eight clients one and an upload of one.
    assert kept(pr.scaffold(cohort=8)) - kept(pr.fedavg(cohort=8)) == pytest.approx((1 + 8 + 8) * vector, rel=0.01)


LIMITED = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
import polyrhythm as pr
from polyrhythm.config import data_names, names
from polyrhythm.experiments.session import carry_out
from small import prepared
if __name__ == "__main__":
    deep = names.model(f"mlp(hidden={[3] * 60})")
    run = prepared(model=deep, driver="processes", workers=4, rounds=5, recipe=pr.scaffold(cohort=4, epochs=1))
    print(carry_out(run, [])["status"])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="worker processes are forked, which only Linux allows here")
def test_few_open_files_are_enough_for_many_workers_and_tensors() -> None:
    """A model travels as one vector, so handles depend neither on its tensors nor on rounds."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])}
    found = subprocess.run(
        [sys.executable, "-c", LIMITED], capture_output=True, text=True, env=environment, check=False
    )
    assert (found.returncode, found.stdout.strip()) == (0, "finished"), found.stderr
