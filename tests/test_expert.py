"""The expert: trained once on all the data, asked once how difficult each sample is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import polyrhythm as pr
from polyrhythm import difficulty, experiment
from polyrhythm.difficulty import expert_about, expert_losses, sample_difficulty
from polyrhythm.expert import train_expert
from polyrhythm.models.building import build
from polyrhythm.models.weights import load_weights
from polyrhythm.slots.client_curriculum import ClientCurriculum
from polyrhythm.slots.order import Curriculum
from polyrhythm.slots.pacing import Pacing
from small import collection, federation, logged
from small import experiment as small

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

    monkeypatch.setattr(experiment, "expert_losses", counted)
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
        small(recipe=BY_SAMPLE, expert=given).engine  # noqa: B018


def test_an_expert_of_another_model_is_refused_before_round_1(tmp_path: Path) -> None:
    path = tmp_path / "mlp.safetensors"
    train_expert(collection(), "mlp", path, epochs=1)
    with pytest.raises(pr.UserError, match="expert: "):
        small(recipe=BY_SAMPLE, expert=path).engine  # noqa: B018


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
