"""Metrics by name are scikit-learn's, undefined ones are left out, and NaN never counts for anything."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from sklearn import metrics as oracle
from torch import Tensor
from torch.nn import functional

import polyrhythm as pr
import small
from polyrhythm.base.errors import UserError
from polyrhythm.experiments.prepared import prepare
from polyrhythm.models.multilabel import MultiLabel
from polyrhythm.models.regression import Regression
from polyrhythm.models.tally import Tally
from polyrhythm.models.tasks import Classification, task

NAMES = ("balanced_accuracy", "precision", "recall", "f1", "auc", "class_accuracy")


def guessed(classes: int, samples: int = 60, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(classes, (samples,), generator=generator)
    outputs = torch.randn(samples, classes, generator=generator) + functional.one_hot(targets, classes)
    return outputs.round(decimals=1), targets  # so that there are ties


@pytest.mark.parametrize("classes", [2, 5])
def test_metrics_of_classes_are_those_of_scikit_learn(classes: int) -> None:
    outputs, targets = guessed(classes)
    kind = Classification(metrics=NAMES)
    found = kind.read(sum((kind.tally(outputs[i : i + 7], targets[i : i + 7]) for i in range(0, 60, 7)), Tally()))
    truth, predicted = targets.numpy(), outputs.argmax(dim=1).numpy()
    shares = outputs.double().softmax(dim=1).numpy()
    assert kind.headline == "balanced_accuracy"
    assert found["balanced_accuracy"] == pytest.approx(oracle.balanced_accuracy_score(truth, predicted))
    for name, score in (
        ("precision", oracle.precision_score),
        ("recall", oracle.recall_score),
        ("f1", oracle.f1_score),
    ):
        assert found[name] == pytest.approx(score(truth, predicted, average="macro"))
    given = shares[:, 1] if classes == 2 else shares
    assert found["auc"] == pytest.approx(oracle.roc_auc_score(truth, given, multi_class="ovr"))
    for one in range(classes):
        assert found[f"accuracy_of_{one}"] == pytest.approx(np.mean(predicted[truth == one] == one))


def test_metrics_of_labels_are_those_of_scikit_learn() -> None:
    generator = torch.Generator().manual_seed(1)
    targets = (torch.rand(50, 4, generator=generator) < 0.4).float()
    outputs = torch.randn(50, 4, generator=generator) + targets
    kind = MultiLabel(k=2, metrics=("f1", "precision", "recall", "auc"))
    found = kind.read(kind.tally(outputs, targets))
    truth, predicted = targets.numpy(), outputs.numpy() > 0
    assert kind.headline == "f1"
    assert "recall_at_2" in found
    assert found["f1"] == pytest.approx(oracle.f1_score(truth, predicted, average="macro"))
    assert found["precision"] == pytest.approx(oracle.precision_score(truth, predicted, average="macro"))
    assert found["recall"] == pytest.approx(oracle.recall_score(truth, predicted, average="macro"))
    assert found["auc"] == pytest.approx(oracle.roc_auc_score(truth, outputs.numpy(), average="macro"))


def test_the_mean_absolute_error_is_that_of_scikit_learn() -> None:
    outputs, targets = torch.randn(9, 2).double(), torch.randn(9, 2).double()
    kind = Regression(metrics=("r2", "mae"))
    found = kind.read(kind.tally(outputs, targets))["mae"]
    assert found == pytest.approx(oracle.mean_absolute_error(targets, outputs))


def test_classes_that_do_not_occur_are_left_out_of_means() -> None:
    outputs, targets = torch.eye(4)[[0, 0, 1]], torch.tensor([0, 1, 1])  # of classes 2 and 3 there are none
    found = (kind := Classification(metrics=NAMES)).read(kind.tally(outputs, targets))
    assert found["balanced_accuracy"] == found["recall"] == pytest.approx((1 + 1 / 2) / 2)
    assert found["precision"] == pytest.approx((1 / 2 + 1) / 2)
    assert found["f1"] == pytest.approx((2 / 3 + 2 / 3) / 2)
    assert {name for name in found if name.startswith("accuracy_of_")} == {"accuracy_of_0", "accuracy_of_1"}


def test_a_class_that_is_never_predicted_has_precision_zero() -> None:
    found = (kind := Classification(metrics=("precision",))).read(
        kind.tally(torch.eye(2)[[0, 0]], torch.tensor([0, 1]))
    )
    assert found["precision"] == pytest.approx((1 / 2 + 0) / 2)


def test_undefined_metrics_are_left_out() -> None:
    kind = Classification(metrics=("auc", "f1"))
    assert kind.undefined(torch.zeros(5, dtype=torch.int64), 3) == ("auc",)
    labels = MultiLabel(metrics=("recall", "auc", "precision"))
    assert labels.undefined(torch.zeros(5, 6), 6) == ("recall_at_5", "recall", "auc", "precision")


def test_nan_ranks_last_and_predicts_nothing() -> None:
    outputs, targets = torch.tensor([[3.0, 0.0], [math.nan, 0.0], [0.0, 3.0]]), torch.tensor([0, 0, 1])
    kind = Classification(metrics=("balanced_accuracy", "precision", "auc"))
    found = kind.read(kind.tally(outputs, targets))
    assert found["balanced_accuracy"] == pytest.approx((1 / 2 + 1) / 2)
    assert found["precision"] == 1.0
    assert found["auc"] == pytest.approx(0.5)  # the two of class 0 against that of class 1: one below, one above
    assert found["nan_outputs"] == 1


def kappa(outputs: Tensor, targets: Tensor) -> float:
    return float(oracle.cohen_kappa_score(targets.numpy(), outputs.argmax(dim=1).numpy()))


def nothing(outputs: Tensor, targets: Tensor) -> None:
    return None


def test_a_metric_of_ones_own_sees_all_samples_at_once() -> None:
    outputs, targets = guessed(3)
    kind = Classification(metrics=(kappa, "f1"))
    pieces = [kind.tally(outputs[i : i + 9], targets[i : i + 9]) for i in range(0, 60, 9)]
    assert kind.headline == "kappa"
    assert kind.read(sum(pieces, Tally()))["kappa"] == pytest.approx(kappa(outputs, targets))
    assert kind.describe()["metrics"] == [f"{__name__}:kappa", "f1"]
    broken = Classification(metrics=(nothing,))
    with pytest.raises(UserError, match="the metric nothing gives None"):
        broken.read(broken.tally(outputs, targets))


def focal(outputs: Tensor, targets: Tensor) -> Tensor:
    loss = functional.cross_entropy(outputs, targets, reduction="none")
    return (1 - (-loss).exp()) ** 2 * loss


def test_a_loss_of_ones_own_is_minimised_and_reported() -> None:
    outputs, targets = guessed(3)
    kind = Classification(loss_function=focal)
    kind.check((2, 3), targets)
    assert kind.objective(kind.loss(outputs, targets), outputs, targets) == focal(outputs, targets).mean()
    assert kind.read(kind.tally(outputs, targets))["loss"] == pytest.approx(float(focal(outputs, targets).mean()))


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (functional.cross_entropy, "something of shape ()"),
        (lambda outputs, targets: 1.0, "something of type float"),
        (lambda outputs, targets: torch.zeros(len(targets)), "has no gradient"),
        (lambda outputs, targets: outputs @ targets, "raises"),
    ],
)
def test_what_is_no_loss_of_each_sample_is_refused(loss: Any, said: str) -> None:
    with pytest.raises(UserError) as refused:
        Classification(loss_function=loss).check((2, 3), torch.tensor([0, 1, 2]))
    assert said in refused.value.found


def logarithm(outputs: Tensor, targets: Tensor) -> Tensor:
    return -(outputs.gather(1, targets[:, None])[:, 0]).log()


def root(outputs: Tensor, targets: Tensor) -> Tensor:
    return ((outputs - outputs.detach()) ** 2).sum(dim=1).sqrt()


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (logarithm, "the loss logarithm is nan for"),
        (root, "the gradient of the loss root is nan for 8 of the first 8 samples"),
    ],
)
def test_a_loss_that_is_no_number_at_the_beginning_is_refused_before_a_run(loss: Any, said: str) -> None:
    experiment = small.experiment(task=Classification(loss_function=loss), recipe=pr.fedavg(cohort=2, batch=8))
    with pytest.raises(UserError) as refused:
        prepare(experiment)
    assert said in refused.value.found
    assert "at any learning rate" in refused.value.why
    prepare(small.experiment(task=Classification(loss_function=focal), recipe=pr.fedavg(cohort=2, batch=8)))


@pytest.mark.parametrize(
    "settings",
    [
        {"metrics": ("f2",)},
        {"metrics": ("class_accuracy", "f1")},
        {"metrics": ("f1", "f1")},
        {"class_weights": "even"},
        {"class_weights": (1.0, 0.0)},
        {"class_weights": (1.0, 2.0), "loss_function": focal},
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        Classification(**settings)


@pytest.mark.parametrize("metric", ["rmse", "mae"])
def test_less_is_better_judges_no_run(metric: str) -> None:
    with pytest.raises(UserError, match="metrics that begin with"):
        task("regression", metrics=(metric, "r2"))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_class_weights_are_torchs_and_only_for_training(smoothing: float) -> None:
    outputs, targets = guessed(3)
    kind = Classification(class_weights=(0.5, 2.0, 1.0), smoothing=smoothing)
    weight = torch.tensor([0.5, 2.0, 1.0])
    wanted = functional.cross_entropy(outputs, targets, weight=weight, label_smoothing=smoothing)
    assert kind.objective(kind.loss(outputs, targets), outputs, targets) == wanted
    assert kind.loss(outputs, targets) == functional.cross_entropy(outputs, targets)
    with pytest.raises(UserError, match="3 class weights for 2 classes"):
        kind.check((2, 2), targets % 2)


def test_balanced_weights_are_those_of_scikit_learn() -> None:
    from sklearn.utils.class_weight import compute_class_weight

    targets = torch.tensor([0] * 5 + [1] * 3 + [3] * 2)
    fitted = Classification(class_weights="balanced").fitted(4, lambda: targets)
    weights = compute_class_weight("balanced", classes=np.array([0, 1, 3]), y=targets.numpy())
    assert fitted.class_weights == pytest.approx((weights[0], weights[1], 1.0, weights[2]))
