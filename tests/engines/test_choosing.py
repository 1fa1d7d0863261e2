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
from polyrhythm.base.compiled import extension
from polyrhythm.core.protocols import TakesJobs
from polyrhythm.data import ArraySamples
from polyrhythm.engines import selection
from polyrhythm.engines.native import engine as native
from polyrhythm.engines.native.engine import LARGEST, NativeEngine
from polyrhythm.engines.torch import TorchEngine
from small import collection, experiment, federation, logged, prepared

compiled = pytest.mark.skipif(extension() is None, reason="polyrhythm was installed without its compiled extension")
LARGE = pr.fedavg(cohort=2, epochs=1, batch=10)


def test_torch_says_nothing() -> None:
    made = prepared(engine="torch")
    assert isinstance(made.chosen.engine, TorchEngine)
    assert not isinstance(made.chosen.engine, TakesJobs)
    assert (made.chosen.name, made.chosen.why_not) == ("torch", "")
    assert not [n for n in made.notices() if "engine" in n]


@compiled
def test_the_default_is_the_rule() -> None:
    assert pr.Execution().engine == "auto"
    assert prepared(recipe=LARGE).chosen.kind == "native"
    assert prepared(recipe=LARGE, model=tanh()).chosen.kind == "torch"
    assert not [n for n in prepared(recipe=LARGE, model=tanh()).notices() if "engine" in n]


@compiled
def test_auto_leaves_broad_convolutions_to_torch() -> None:
    generator = np.random.default_rng(0)
    images = torch.tensor(generator.normal(size=(24, 8, 16, 16)), dtype=torch.float32)
    samples = ArraySamples(images, torch.arange(24) % 3)
    data = dataclasses.replace(collection(), train=samples, test=samples)
    # 8 * 16 * width * 13 * 13 products; of 3 × 3 with 14 × 14 outputs as many, but in squares.
    for width, kernel, kind in ((1408, 4, "native"), (1600, 4, "torch"), (2304, 3, "native")):
        side = 17 - kernel
        model = nn.Sequential(nn.Conv2d(8, width, kernel), nn.ReLU(), nn.MaxPool2d(side), nn.Flatten())
        model.append(nn.Linear(width, 3))
        dealt = pr.federate(data, pr.data.Iid(), 2, 0)
        assert prepared(federation=dealt, model=model, recipe=LARGE).chosen.kind == kind


@compiled
@pytest.mark.parametrize(("padding", "kind"), [(0, "torch"), (1, "native")])
@pytest.mark.parametrize("batch", [10, 16])
def test_products_beside_the_image_do_not_count_in_batches_of_any_size(batch: int, padding: int, kind: str) -> None:
    images = ArraySamples(torch.zeros(64, 64, 4 - 2 * padding, 3), torch.arange(64) % 3)
    data = dataclasses.replace(collection(), train=images, test=images)
    # 64 * 6 * 21000 * 2 * 2 products; with padding one of three rows of the window is outside.
    model = nn.Sequential(nn.Conv2d(64, 21000, (3, 2), padding=(padding, 0)), nn.ReLU(), nn.MaxPool2d(2))
    model += nn.Sequential(nn.Flatten(), nn.Linear(21000, 3))
    dealt = pr.federate(data, pr.data.Iid(), 1, 0)
    recipe = pr.fedavg(cohort=1, epochs=1, batch=batch)
    assert prepared(federation=dealt, model=model, recipe=recipe).chosen.kind == kind


@compiled
@pytest.mark.parametrize("asked", ["auto", "native"])
def test_native_where_it_can_be(asked: Any) -> None:
    made = prepared(engine=asked, recipe=LARGE)
    assert isinstance(made.chosen.engine, NativeEngine)
    assert isinstance(made.chosen.engine, TakesJobs)
    assert made.chosen.engine.releases_lock
    assert made.chosen.name.startswith("native (")
    assert made.computed()["computed_by"] == made.chosen.name


@compiled
def test_auto_says_that_it_is_native_and_native_that_it_is_not(tmp_path: Path) -> None:
    run = pr.run(experiment(recipe=LARGE), execution=pr.Execution(engine="auto"), out=tmp_path)
    assert [n for n in run.notices if "native (" in n]
    assert run.machine["engine"] == "auto"
    assert run.machine["computed_by"].startswith("native (")
    run = pr.run(experiment(model=tanh()), execution=pr.Execution(engine="native"), out=tmp_path)
    assert [n for n in run.notices if n.startswith("engine: torch") and "Tanh" in n]
    assert run.machine["computed_by"] == "torch"


@compiled
def test_auto_leaves_small_batches_to_torch() -> None:
    small = pr.fedavg(cohort=2, epochs=1, batch=selection.WORTHWHILE - 1)
    assert isinstance(prepared(engine="auto", recipe=small).chosen.engine, TorchEngine)
    assert isinstance(prepared(engine="native", recipe=small).chosen.engine, NativeEngine)


def tanh() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh())


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
    "changes",
    [
        {"recipe": pr.fedavg(cohort=2) | pr.parts.local_adam()},
        {"recipe": pr.moon(cohort=2)},
        {"recipe": pr.alt(cohort=2)},
        {"federation": augmented()},
    ],
    ids=["adam", "loss term", "early stop", "augmented"],
)
def test_what_every_recipe_asks_for_is_native(changes: dict[str, Any]) -> None:
    made = prepared(engine="native", **changes)
    assert made.chosen.why_not == ""
    assert isinstance(made.chosen.engine, NativeEngine)


@compiled
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"federation": doubled(), "model": nn.Linear(4, 3).double()}, "neither float32 nor tokens"),
        ({"model": tanh()}, "Tanh"),
    ],
    ids=["float64", "layer"],
)
def test_why_an_experiment_is_not_native(changes: dict[str, Any], words: str) -> None:
    made = prepared(engine="native", **changes)
    assert words in made.chosen.why_not
    assert isinstance(made.chosen.engine, TorchEngine)


@compiled
def test_a_representation_that_is_not_found_is_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    # As with a torch that does not say which submodule a traced operation belongs to.
    read = native.program_of
    monkeypatch.setattr(native, "program_of", lambda *given: dataclasses.replace(read(*given), places={}))
    assert "does not find projection" in prepared(engine="native", recipe=pr.alt(cohort=2)).chosen.why_not


def test_without_the_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "extension", lambda: None)
    assert "C++ compiler" in prepared(engine="native").chosen.why_not
    assert any("C++ compiler" in notice for notice in prepared(engine="auto", recipe=LARGE).notices())
    assert prepared(engine="torch", recipe=LARGE).chosen.why_not == ""
    assert logged(engine="auto")[0]["digest"] == logged(engine="torch")[0]["digest"]


def test_no_such_engine() -> None:
    with pytest.raises(pr.UserError, match="engine = 'nativ'"):
        pr.Execution(engine="nativ")  # type: ignore[arg-type]


@compiled
def test_a_batch_beyond_the_room_is_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert experiment().federation.sizes.max() < LARGEST
    monkeypatch.setattr(selection, "LARGEST", 4)
    assert "more than 4" in prepared(engine="native").chosen.why_not


@compiled
def test_batches_are_augmented_the_same_in_any_number_of_threads() -> None:
    data = augmented()
    model = nn.Sequential(nn.Linear(4, 20), nn.Dropout(0.3), nn.ReLU(), nn.Linear(20, 3))
    runs = [
        logged(engine="native", federation=data, model=model, recipe=LARGE, driver=driver, workers=workers)[0]
        for driver, workers in (("inline", None), ("threads", 1), ("threads", 2))
    ]
    assert len({summary["digest"] for summary in runs}) == 1


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
        "second": None,
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
            "first": 0,
            "beta2": 0.0,
            "epsilon": 0.0,
            "taken": 0,
            "decoupled": False,
            "watch": None,
            "still": False,
            "contrast": None,
        },
    }
    rounds.run(**good)
    z = np.ones((4, 2), dtype=np.float32)
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
        ("both moments", {"second": np.zeros(16, dtype=np.float32)}),
        ("a row for each", {"watch": (1, z)}),
        ("a row for each", {"watch": (1, z[:3, :1])}),
        ("a place in", {"watch": (2, z[:3])}),
        ("a place in", {"watch": (-1, z[:3])}),
        ("a row for each", {"contrast": (1, z, z, np.array([0, 1]), 1.0, 0.5)}),
        ("a row for each", {"contrast": (1, z, z[:3], np.array([0, 1, 2]), 1.0, 0.5)}),
        ("are there", {"contrast": (1, z, z, np.array([0, 1, 4]), 1.0, 0.5)}),
    ):
        with pytest.raises(ValueError, match=words):
            rounds.run(**good | bad)
    batch = {name: good[name] for name in ("weights", "inputs", "labels", "targets", "order")}
    with pytest.raises(RuntimeError, match="half way"):
        rounds.back(weights=good["weights"], gradient=good["weights"], more=[])
    with pytest.raises(ValueError, match="not empty"):
        rounds.ahead(**batch | {"order": np.zeros(0, dtype=np.int64)}, step=0, seed=0, places=[])
    rounds.ahead(**batch, step=0, seed=0, places=[(1, z[:3])])
    with pytest.raises(ValueError, match="a row for each"):
        rounds.back(weights=good["weights"], gradient=np.zeros(16, dtype=np.float32), more=[(1, z)])
    with pytest.raises(ValueError, match="a row for each"):
        rounds.look(weights=good["weights"], inputs=good["inputs"], order=good["order"], out=(1, z))
    with pytest.raises(ValueError, match="a label for"):
        rounds.trace(**batch | {"labels": None})
    with pytest.raises(ValueError, match="outside"):
        built.linear(0, -1, 9)
    with pytest.raises(ValueError, match="no kernels"):
        extension().Rounds(built, "mmx")
    assert torch.isfinite(torch.from_numpy(good["weights"])).all()
