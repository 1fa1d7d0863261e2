"""Nothing of a run that is over stays until somebody collects cycles: neither vectors nor file descriptors."""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import polyrhythm as pr
from polyrhythm.experiments.execution import Execution

CASES: list[Any] = [
    (pr.scaffold(cohort=2, epochs=1), {"driver": "inline"}),
    (pr.fedavg(cohort=2, epochs=1, lr=1e30), {"driver": "inline"}),  # which fails
    *(
        pytest.param(*case, marks=pytest.mark.slow)
        for case in (
            (pr.fedasync(concurrency=2, epochs=1), {"engine": "torch"}),
            (pr.fedavg(cohort=2, epochs=1), {"driver": "threads", "workers": 2}),
            (pr.fedavg(cohort=2, epochs=1), {"driver": "processes", "workers": 2}),
        )
    ),
]


@pytest.fixture
def uncollected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def vectors() -> Counter[tuple[int, ...]]:
    """Tensors as large as the model or its layers."""
    found = (o for o in gc.get_objects() if type(o) in (torch.Tensor, torch.nn.Parameter) and o.numel() >= 600)
    return Counter(tuple(tensor.shape) for tensor in found)


def shared() -> int:
    links = [os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
    return sum("memfd" in link for link in links)


@pytest.mark.parametrize(("recipe", "how"), CASES)
def test_memory_is_flat_over_runs(tmp_path: Path, uncollected: None, recipe: Any, how: dict[str, Any]) -> None:
    federation = pr.federate(pr.data.digits(), pr.data.Iid(), clients=3, seed=0)

    def once() -> None:
        experiment = pr.Experiment(federation=federation, model="logistic", recipe=recipe, rounds=2, seed=0)
        try:
            pr.run(experiment, out=tmp_path, execution=Execution(**how))
        except pr.RunFailed:
            assert recipe.optimiser.lr > 1

    once()  # what is built once and kept
    before, open_before = vectors(), shared()
    once()
    once()
    assert vectors() - before == Counter()
    assert shared() == open_before
