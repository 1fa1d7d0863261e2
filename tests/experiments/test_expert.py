"""The expert: trained once on all the data, asked once how difficult each sample is."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

import polyrhythm as pr
from polyrhythm.core.local_step import Computed
from polyrhythm.engines.torch import TorchEngine
from polyrhythm.experiments import difficulty
from polyrhythm.experiments import prepared as preparing
from polyrhythm.experiments.difficulty import expert_about, expert_losses, sample_difficulty
from polyrhythm.experiments.expert import train_expert
from polyrhythm.methods.order.base import Curriculum
from polyrhythm.methods.order.pacing import Pacing
from polyrhythm.methods.participation.client_curriculum import ClientCurriculum
from polyrhythm.models.building import build
from polyrhythm.models.weights import load_weights
from polyrhythm.runs.summary import model_digest
from small import collection, federation, logged
from small import prepared as small

BY_SAMPLE = pr.fedavg(cohort=2, epochs=2, batch=5) | Curriculum(score="expert", least=1)
SLOW = Pacing(a=1.0, b=0.25)
BY_CLIENT = pr.fedavg(epochs=1, batch=5) | ClientCurriculum(cohort=1, scores="expert", pacing=SLOW)


@pytest.fixture
def expert(tmp_path: Path) -> Path:
    path = tmp_path / "expert.safetensors"
    train_expert(collection(), "logistic", path, epochs=3, batch=10)
    return path


def losses_of(path: Path) -> np.ndarray:
    return sample_difficulty(collection(), "logistic", path)


def test_it_is_plain_training_on_all_the_data(tmp_path: Path) -> None:
    path, data = tmp_path / "expert.safetensors", collection()
    summary = train_expert(data, "logistic", path, epochs=3, batch=10, lr=0.2, seed=2)
    assert summary["status"] == "finished"
    assert summary["samples"] == 3 * len(data.train)
    about = expert_about(path)
    assert about["accuracy"] == f"{summary['final_accuracy']:.4f}"
    assert {k: about[k] for k in ("data", "model", "seed", "epochs", "batch", "lr")} == {
        "data": "blobs",
        "model": "logistic",
        "seed": "2",
        "epochs": "3",
        "batch": "10",
        "lr": "0.2",
    }


class Backwards(nn.Module):
    """Its layers run in another order than they are named; the output layer is the first."""

    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.out = nn.Linear(7, outputs, bias=False)
        self.enter = nn.Linear(shape[0], 7)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.out(torch.tanh(self.enter(inputs)))
        return outputs


def perceptron() -> nn.Module:
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))


MODELS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "a name": ("mlp", ("output.weight", "output.bias")),
    "one layer": ("logistic", ("output.weight", "output.bias")),
    "a builder": (Backwards, ("out.weight",)),
    "a module": (perceptron(), ("3.weight", "3.bias")),
    "a single layer": (nn.Linear(4, 3), ("weight", "bias")),
}


@pytest.mark.parametrize("name", MODELS)
def test_smoothing_and_the_last_layers_rate_by_hand(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain loop over the same batches, with two groups of parameters and torch's own label smoothing."""
    path, (model, head) = tmp_path / "expert.safetensors", MODELS[name]
    batches: list[tuple[Tensor, Tensor]] = []
    step = TorchEngine.step

    def noted(self: TorchEngine, inputs: Tensor, targets: Tensor, *rest: Any) -> Computed:
        batches.append((inputs, targets))
        return step(self, inputs, targets, *rest)

    monkeypatch.setattr(TorchEngine, "step", noted)
    data = collection()
    initial = small(federation=pr.federate(data, pr.data.Iid(), 1, 5), model=model, seed=5).chosen.engine.module
    module = copy.deepcopy(initial).train()
    given = copy.deepcopy(model.state_dict()) if isinstance(model, nn.Module) else None
    settings = {"smoothing": 0.1, "last_layer_rate": 10.0}
    summary = train_expert(data, model, path, epochs=3, batch=16, lr=0.05, seed=5, **settings)
    parameters = dict(module.named_parameters())
    assert set(head) <= parameters.keys()
    groups = [
        {"params": [p for n, p in parameters.items() if n not in head]},
        {"params": [parameters[n] for n in head], "lr": 0.5},
    ]
    optimiser = torch.optim.SGD([g for g in groups if g["params"]], lr=0.05)
    assert len(batches) == 3 * 4
    for inputs, targets in batches:
        optimiser.zero_grad()
        functional.cross_entropy(module(inputs), targets, label_smoothing=0.1).backward()
        optimiser.step()
    found = load_file(path)
    assert found.keys() == module.state_dict().keys()
    for key, tensor in module.state_dict().items():
        assert found[key].shape == tensor.shape
        torch.testing.assert_close(found[key], tensor, atol=1e-6, rtol=1e-6)
    about = expert_about(path)
    assert (about["smoothing"], about["last_layer_rate"]) == ("0.1", "10.0")
    assert summary["digest"] == model_digest(found)
    if given is not None:
        assert all(torch.equal(tensor, given[key]) for key, tensor in model.state_dict().items())


def test_both_off_is_centralised_training_to_the_last_bit(tmp_path: Path) -> None:
    path, recipe = tmp_path / "expert.safetensors", pr.centralised(epochs=1, batch=16, lr=0.1)
    _, log = logged(federation=pr.federate(collection(), pr.data.Iid(), 1, 0), model="mlp", recipe=recipe, rounds=2)
    found = []
    for settings in ({}, {"smoothing": 0.1}, {"last_layer_rate": 10.0}):
        train_expert(collection(), "mlp", path, epochs=2, batch=16, **settings)
        found.append(load_file(path))
    assert all(torch.equal(found[0][name], tensor) for name, tensor in log.states[-1].items())
    for other in found[1:]:
        assert any(not torch.equal(other[name], tensor) for name, tensor in found[0].items())


def test_losses_under_an_expert_are_never_smoothed(tmp_path: Path) -> None:
    path, data = tmp_path / "expert.safetensors", collection()
    train_expert(data, "logistic", path, epochs=2, smoothing=0.3)
    smoothed = pr.task("classification", smoothing=0.3)
    made = small(federation=pr.federate(data, pr.data.Iid(), 4, 0), recipe=BY_SAMPLE, expert=path, task=smoothed)
    assert np.array_equal(made.scores["expert"], losses_of(path))
    inputs, targets = data.train.batch(torch.arange(60))
    module = load_weights(build("logistic", (4,), 3), path)
    wanted = functional.cross_entropy(module(inputs), targets, reduction="none").detach().numpy()
    assert np.allclose(losses_of(path), wanted, atol=1e-6)


def tied() -> nn.Module:
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Unflatten(1, (4,)))
    net[2].weight = net[0].weight
    return net


@pytest.mark.parametrize(
    ("model", "settings", "found"),
    [
        ("logistic", {"smoothing": 1.0}, "smoothing = 1.0"),
        ("logistic", {"smoothing": -0.1}, "smoothing = -0.1"),
        ("logistic", {"last_layer_rate": 0.0}, "last_layer_rate = 0.0"),
        ("logistic", {"last_layer_rate": float("nan")}, "last_layer_rate = nan"),
        (
            nn.Sequential(nn.Unflatten(1, (4, 1)), nn.Conv1d(4, 3, 1), nn.Flatten()),
            {"last_layer_rate": 10},
            "runs no nn",
        ),
        (nn.Linear(5, 3), {"last_layer_rate": 10}, "could not be run"),
        (tied(), {"last_layer_rate": 10}, "shared with another layer"),
        (nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), {"last_layer_rate": 10}, "computed from"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    model: Any, settings: dict[str, float], found: str, tmp_path: Path
) -> None:
    with pytest.raises(pr.UserError) as caught:
        train_expert(collection(), model, tmp_path / "expert.safetensors", **settings)
    assert found in caught.value.found
    assert caught.value.expected
    assert caught.value.why
    assert caught.value.fix


@pytest.mark.parametrize("task", ["regression", "multilabel"])
def test_smoothing_is_refused_where_a_sample_has_no_one_class(task: str, tmp_path: Path) -> None:
    inputs = np.random.default_rng(0).normal(size=(40, 3))
    targets = inputs if task == "regression" else (inputs > 0).astype(np.float32)
    data = pr.data.arrays(inputs, targets, task=task)
    with pytest.raises(pr.UserError, match=f"smoothing = 0.1 .* {task}"):
        train_expert(data, "logistic", tmp_path / "expert.safetensors", smoothing=0.1)


def test_losses_are_those_of_the_file(expert: Path) -> None:
    data = collection()
    module = load_weights(build("logistic", data.train.shape, data.outputs), expert).eval()
    inputs, targets = data.train.batch(torch.arange(len(data.train)))
    with torch.no_grad():
        wanted = -torch.log_softmax(module(inputs), 1)[torch.arange(len(targets)), targets]
    assert np.allclose(losses_of(expert), wanted.numpy(), atol=1e-6)


@pytest.mark.parametrize("recipe", [BY_SAMPLE, BY_CLIENT], ids=["samples", "clients"])
def test_a_recipe_that_asks_for_an_expert_is_refused_without_one(recipe: pr.Recipe) -> None:
    with pytest.raises(pr.UserError, match="without an expert"):
        small(recipe=recipe)


def test_an_order_that_asks_nobody_needs_none() -> None:
    small(recipe=pr.fedavg(cohort=2) | Curriculum(score="expert", order="random"))
    small(recipe=pr.fedavg() | ClientCurriculum(cohort=1, scores="expert", order="random"))


def test_a_file_and_its_losses_are_one_expert(expert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Computed once, however many clients there are; and it decides: other losses, another model."""
    calls: list[Path] = []

    def counted(path: Path, *rest: object) -> np.ndarray:
        calls.append(path)
        return expert_losses(path, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(preparing, "expert_losses", counted)
    by_file, _ = logged(recipe=BY_SAMPLE, expert=expert)
    assert calls == [expert]
    losses = losses_of(expert)
    by_losses, _ = logged(recipe=BY_SAMPLE, expert=losses)
    backwards, _ = logged(recipe=BY_SAMPLE, expert=-losses)
    assert by_file["digest"] == by_losses["digest"] != backwards["digest"]


def test_clients_are_taken_from_easy_to_hard() -> None:
    """One client at a time while pacing grows the pool; each was asked once in the whole run."""
    whole = federation(clients=4)
    losses = np.zeros(len(whole.train))
    ease = {0: 3.0, 1: 1.0, 2: 4.0, 3: 2.0}
    for client, value in ease.items():
        losses[whole.indices(client).numpy()] = value
    _, log = logged(federation=whole, recipe=BY_CLIENT, rounds=6, expert=losses)
    trained = [v.client for v in log.visits if v.status == "trained"]
    assert trained[0] == 1
    assert set(trained[1:3]) <= {1, 3}
    measured = [v.client for v in log.visits if v.status == "measured"]
    assert sorted(measured) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("missing.safetensors", "no such file"),
        (np.zeros(3), "shape"),
        (np.full(60, np.nan), "not finite"),
    ],
)
def test_a_wrong_expert_is_refused_before_round_1(given: object, found: str) -> None:
    with pytest.raises(pr.UserError, match=found):
        small(recipe=BY_SAMPLE, expert=given)


def test_an_expert_of_another_model_is_refused_before_round_1(tmp_path: Path) -> None:
    path = tmp_path / "mlp.safetensors"
    train_expert(collection(), "mlp", path, epochs=1)
    with pytest.raises(pr.UserError, match="expert: "):
        small(recipe=BY_SAMPLE, expert=path)


def test_what_cannot_be_written_is_refused_before_the_training(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere" / "expert.safetensors"):
        with pytest.raises(pr.UserError, match="folder"):
            train_expert(collection(), "logistic", path)


def test_an_expert_that_diverges_is_not_saved(tmp_path: Path) -> None:
    path = tmp_path / "expert.safetensors"
    with pytest.raises(pr.RunFailed):
        train_expert(collection(), "mlp", path, epochs=3, lr=1e30)
    assert not path.exists()


def test_the_notes_say_what_a_reader_should_know(expert: Path) -> None:
    unused = small(expert=expert).notices()
    assert any("no part of this recipe asks" in note for note in unused)
    assert expert_about(Path(difficulty.__file__)) == {}
