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
from small import collection, experiment, federation

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
    "a part's class": (
        lambda: pr.fedavg(cohort=2) | pr.parts.prox,
        r"the class Prox on the right(.|\n)*call it: Prox\(…\)",
    ),
    "a recipe's function": (lambda: pr.fedavg(cohort=2) | pr.scaffold, r"call it: scaffold\(…\)"),
    "a fleet's class": (lambda: pr.Fleet() | pr.fleet.Faults, r"call it: Faults\(…\)"),
    "a recipe that is not called": (
        lambda: experiment(recipe=pr.fedavg),
        r"the function fedavg(.|\n)*pr.fedavg\(cohort=10\)",
    ),
    "data that nobody holds": (
        lambda: experiment(federation=collection()),
        r"federation is a Collection: <Collection blobs(.|\n)*nothing else has(.|\n)*pr.federate\(",
    ),
    "a model by number": (lambda: experiment(model=3), "model = 3(.|\n)*a name such as 'mlp'(.|\n)*another value$"),
    "weights by number": (lambda: experiment(initial=3), "initial = 3(.|\n)*a file, a state dict, a module or a run"),
    "too few to test on": (
        lambda: pr.data.arrays(np.zeros((8, 2)), np.arange(8) % 2, test=0.01),
        r"a larger share, e.g. test=0.5",
    ),
    "a setting of another recipe": (lambda: pr.fedbuff(size=3), r"fedbuff alone(.|\n)*help\(pr.fedbuff\)"),  # type: ignore[call-arg]
    "runs by name": (lambda: pr.compare(["night"]), "one of the runs is a str: 'night'"),  # type: ignore[list-item]
    "a run to verify by name": (lambda: pr.verify("night", experiment()), r"pr.Run.open\('night'\)"),  # type: ignore[arg-type]
    "a run to replay by name": (lambda: pr.replay("night", experiment()), r"pr.Run.open\('night'\)"),  # type: ignore[arg-type]
    "a metric without its list": (lambda: pr.task("classification", metrics="f1"), r"write \['f1'\] for a list of one"),
    "a column of data without any": (
        lambda: pr.federate(collection(), pr.data.ByColumn(column="ward"), clients=None, seed=0),
        r"these data have none(.|\n)*table\(…, client=…\)",
    ),
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


def test_a_list_is_taken_where_files_have_one() -> None:
    assert pr.task("classification", metrics=["f1", "auc"]) == pr.task("classification", metrics=("f1", "auc"))
    assert hash(pr.fleet.Tiers(slowdown=[1, 4])) == hash(pr.fleet.Tiers(slowdown=(1, 4)))  # type: ignore[arg-type]


def test_a_file_or_other_weights_are_refused_by_a_run(tmp_path: Path) -> None:
    run = pr.run(experiment(), out=tmp_path)
    with pytest.raises(UserError, match=r"pandas.read_csv\('new.csv'\)"):
        run.predict("new.csv")
    with pytest.raises(UserError, match=r"\[run, other\]"):
        pr.compare(run)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="experiment is a Federation"):
        pr.verify(run, federation())  # type: ignore[arg-type]
    with pytest.raises(UserError, match="unknown weights 'last'"):
        run.weights("last")  # type: ignore[arg-type]


def test_values_of_a_search_may_stand_in_any_list() -> None:
    for values in ([0.1, 0.2], (0.1, 0.2), np.array([0.1, 0.2])):
        search = pr.studies.Search(space={"lr": values}, rows={"a": {"epochs": [1, 2]}})
        assert search.tried("a") == ({"lr": (0.1, 0.2), "epochs": (1, 2)}, ())
