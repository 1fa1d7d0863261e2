"""What newcomers give in Python is taken, or refused in words before any work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import polyrhythm as pr
from polyrhythm.base.errors import UserError
from small import collection, experiment

WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "a partition by name": (lambda: pr.federate(collection(), "iid", clients=3, seed=0), "partition is a str: 'iid'"),  # type: ignore[arg-type]
    "a partition's class": (lambda: pr.federate(collection(), pr.data.Iid, clients=3, seed=0), "the class Iid"),  # type: ignore[arg-type]
    "arrays for a collection": (
        lambda: pr.federate(np.zeros((3, 2)), pr.data.Iid(), clients=3, seed=0),  # type: ignore[arg-type]
        "collection is a ndarray",
    ),
    "half a client": (lambda: pr.federate(collection(), pr.data.Iid(), clients=2.5, seed=0), "clients is a float"),  # type: ignore[arg-type]
    "clients as text": (lambda: pr.federate(collection(), pr.data.Iid(), clients="3", seed=0), "clients is a str"),  # type: ignore[arg-type]
    "no seed": (lambda: pr.federate(collection(), pr.data.Iid(), clients=3, seed=None), "seed is a NoneType"),  # type: ignore[arg-type]
    "a task's name twice": (lambda: pr.task("classification", name="x"), "name"),
    "a task by number": (lambda: pr.task(3), "3"),  # type: ignore[arg-type]
    "no tests": (lambda: pr.data.arrays(np.zeros((6, 2)), np.arange(6) % 2, test=None), "None"),  # type: ignore[arg-type]
    "no folder": (lambda: pr.run(experiment(), out=None), "out is a NoneType"),  # type: ignore[arg-type]
    "no experiment": (lambda: pr.run("mlp"), "experiment is a str: 'mlp'"),  # type: ignore[arg-type]
    "how as a dict": (lambda: pr.run(experiment(), execution={"workers": 2}), "execution is a dict"),  # type: ignore[arg-type]
    "a run by number": (lambda: pr.resume(experiment(), 3), "run is a int: 3"),  # type: ignore[arg-type]
    "nothing to open": (lambda: pr.Run.open(None), "reference is a NoneType"),  # type: ignore[arg-type]
    "a range as text": (lambda: pr.studies.Search(space={"lr": "0.1..0.2"}), r"space\['lr'\] is a str"),
    "a part by name": (lambda: pr.fedavg(cohort=2) | "prox", "'prox' on the right of a pipe"),
}


@pytest.mark.parametrize("what", WRONG)
def test_it_is_refused_in_words(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    do, words = WRONG[what]
    with pytest.raises(UserError, match=words):
        do()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64, torch.tensor, np.array])
def test_numbers_of_numpy_and_torch_are_numbers(kind: Any) -> None:
    recipe = pr.fedavg(cohort=kind(2) if kind not in (np.float32, np.float64) else 2, lr=kind(1))
    assert recipe.digest == pr.fedavg(cohort=2, lr=kind(1).item()).digest
    assert type(recipe.cohort) is int


def test_values_of_a_search_may_stand_in_any_list() -> None:
    for values in ([0.1, 0.2], (0.1, 0.2), np.array([0.1, 0.2])):
        search = pr.studies.Search(space={"lr": values}, rows={"a": {"epochs": [1, 2]}})
        assert search.tried("a") == ({"lr": (0.1, 0.2), "epochs": (1, 2)}, ())
