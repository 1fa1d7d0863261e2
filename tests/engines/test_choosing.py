"""Which engine is chosen, and what a run says of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import polyrhythm as pr
from polyrhythm.core.interfaces import TakesJobs
from polyrhythm.data import ArraySamples
from polyrhythm.engines import choosing
from polyrhythm.engines.native import engine as native
from polyrhythm.engines.native.engine import LARGEST, NativeEngine, extension
from polyrhythm.engines.torch import TorchEngine
from small import collection, experiment, federation, logged

compiled = pytest.mark.skipif(extension() is None, reason="polyrhythm was installed without its compiled extension")
LARGE = pr.fedavg(cohort=2, epochs=1, batch=10)


def test_torch_is_the_default_and_says_nothing() -> None:
    made = experiment()
    assert isinstance(made.chosen.engine, TorchEngine)
    assert not isinstance(made.chosen.engine, TakesJobs)
    assert (made.chosen.name, made.chosen.why_not) == ("torch", "")
    assert not [n for n in made.notices() if "engine" in n]


@compiled
@pytest.mark.parametrize("asked", ["auto", "native"])
def test_native_where_it_can_be(asked: Any) -> None:
    made = experiment(engine=asked, recipe=LARGE)
    assert isinstance(made.chosen.engine, NativeEngine)
    assert isinstance(made.chosen.engine, TakesJobs)
    assert made.chosen.engine.releases_lock
    assert made.chosen.name.startswith("native (")
    assert made.describe()["computed_by"] == made.chosen.name


@compiled
def test_auto_says_that_it_is_native_and_native_that_it_is_not(tmp_path: Path) -> None:
    run = pr.run(experiment(engine="auto", recipe=LARGE), out=tmp_path)
    assert [n for n in run.notices if "native (" in n]
    assert run.config["engine"] == "auto"
    assert run.config["computed_by"].startswith("native (")
    run = pr.run(experiment(engine="native", recipe=pr.fedavg(cohort=2) | pr.local_adam()), out=tmp_path)
    assert [n for n in run.notices if n.startswith("engine: torch") and "local_adam" in n]
    assert run.config["computed_by"] == "torch"


@compiled
def test_auto_leaves_small_batches_to_torch() -> None:
    small = pr.fedavg(cohort=2, epochs=1, batch=choosing.WORTHWHILE - 1)
    assert isinstance(experiment(engine="auto", recipe=small).chosen.engine, TorchEngine)
    assert isinstance(experiment(engine="native", recipe=small).chosen.engine, NativeEngine)


def augmented() -> pr.data.Federation:
    data = collection()
    crop = ArraySamples(data.train.inputs, data.train.targets, augmentations=[lambda inputs, generator: inputs])
    return pr.federate(dataclasses.replace(data, train=crop), pr.data.Iid(), 4, 0)


def doubled() -> pr.data.Federation:
    data = collection()
    train, test = (ArraySamples(s.inputs.double(), s.targets) for s in (data.train, data.test))
    return pr.federate(dataclasses.replace(data, train=train, test=test), pr.data.Iid(), 4, 0)


@compiled
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"recipe": pr.fedavg(cohort=2) | pr.local_adam()}, "local_adam"),
        ({"recipe": pr.moon(cohort=2)}, "model_contrast"),
        ({"recipe": pr.alt(cohort=2)}, "stop_on_drift"),
        ({"federation": augmented()}, "augmented"),
        ({"federation": doubled(), "model": nn.Linear(4, 3).double()}, "not float32"),
        ({"model": nn.Sequential(nn.Linear(4, 3), nn.Tanh())}, "Tanh"),
    ],
    ids=["adam", "loss term", "early stop", "augmented", "float64", "layer"],
)
def test_why_an_experiment_is_not_native(changes: dict[str, Any], words: str) -> None:
    made = experiment(engine="native", **changes)
    assert words in made.chosen.why_not
    assert isinstance(made.chosen.engine, TorchEngine)


def test_without_the_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "extension", lambda: None)
    assert "C++ compiler" in experiment(engine="native").chosen.why_not
    assert logged(engine="auto")[0]["digest"] == logged(engine="torch")[0]["digest"]


def test_no_such_engine() -> None:
    with pytest.raises(pr.UserError, match="engine 'nativ'"):
        experiment(engine="nativ")


@compiled
def test_a_batch_beyond_the_room_is_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert experiment().federation.sizes.max() < LARGEST
    monkeypatch.setattr(choosing, "LARGEST", 4)
    assert "more than 4" in experiment(engine="native").chosen.why_not


@compiled
def test_a_job_that_is_refused_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = logged(engine="torch")[0]["digest"]
    monkeypatch.setattr(native, "LARGEST", 4)
    assert logged(engine="native")[0]["digest"] == wanted


@compiled
def test_ragged_federations_and_ends_of_runs() -> None:
    summary, log = logged(engine="native", federation=federation(clients=7), rounds=5)
    expected, _ = logged(engine="torch", federation=federation(clients=7), rounds=5)
    assert summary["samples"] == expected["samples"]
    assert summary["flops"] == expected["flops"]
    assert log.versions[-1].test is not None


@compiled
def test_the_border_refuses_what_does_not_fit() -> None:
    built = extension().Program(3, 1, 1, 16, "cross_entropy", 0.0, 1.0)
    built.linear(0, -1, 2)
    rounds = extension().Rounds(built)
    good: dict[str, Any] = {
        "weights": np.zeros(16, dtype=np.float32),
        "start": None,
        "shift": None,
        "moment": None,
        "inputs": np.ones((4, 3), dtype=np.float32),
        "labels": np.array([0, 1, 0, 1]),
        "targets": None,
        "order": np.array([0, 3, 1]),
        "ends": np.array([2, 3]),
        "rates": np.ones(2, dtype=np.float32),
        **{
            "pull": 0.0,
            "decay": 0.0,
            "momentum": 0.0,
            "nesterov": False,
            "clip": 0.0,
            "gradient_squares": False,
            "seed": 0,
        },
    }
    rounds.run(**good)
    for words, bad in (
        ("another size", {"weights": np.zeros(15, dtype=np.float32)}),
        ("another size", {"shift": np.zeros(15, dtype=np.float32)}),
        ("another shape", {"inputs": np.ones((4, 2), dtype=np.float32)}),
        ("outputs for", {"labels": np.array([0, 2, 0, 2])}),
        ("a label for", {"labels": None}),
        ("are there", {"order": np.array([0, 4, 1])}),
        ("are there", {"order": np.array([0, -1, 1])}),
        ("last batch", {"order": np.array([0, 1])}),
        ("not empty", {"ends": np.array([2, 2])}),
        ("as many rates", {"rates": np.ones(3, dtype=np.float32)}),
    ):
        with pytest.raises(ValueError, match=words):
            rounds.run(**good | bad)
    with pytest.raises(ValueError, match="outside"):
        built.linear(0, -1, 9)
    with pytest.raises(ValueError, match="no kernels"):
        extension().Rounds(built, "mmx")
    assert torch.isfinite(torch.from_numpy(good["weights"])).all()
