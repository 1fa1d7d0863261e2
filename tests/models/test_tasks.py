"""Losses and metrics: pooled over samples, equal to their definitions, and refused where they mean nothing."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import r2_score
from torch import Tensor
from torch.nn import functional

from polyrhythm.base.errors import UserError
from polyrhythm.base.streams import stream
from polyrhythm.models.multilabel import MultiLabel
from polyrhythm.models.regression import Regression
from polyrhythm.models.survival import Survival
from polyrhythm.models.tally import Tally
from polyrhythm.models.task import Task
from polyrhythm.models.tasks import TASKS, Classification, NextCharacter, task

# Whole numbers, so that sums are exact and associativity can be asked for exactly.
TALLIES = st.builds(
    Tally,
    st.integers(0, 1000),
    st.dictionaries(st.sampled_from(["loss", "correct", "found"]), st.integers(-(2**40), 2**40).map(float)),
)


@given(TALLIES, TALLIES, TALLIES)
def test_tallies_are_a_monoid(a: Tally, b: Tally, c: Tally) -> None:
    assert (a + b) + c == a + (b + c)
    assert a + b == b + a
    assert Tally() + a == a == a + Tally()


def test_pooled_accuracy_is_33_of_34_and_the_mean_over_clients_is_a_half() -> None:
    scores = torch.eye(2)
    wrong = Classification().tally(scores[[0]], torch.tensor([1]))
    right = [Classification().tally(scores[[1] * size], torch.ones(size, dtype=torch.int64)) for size in (32, 1)]
    clients = [wrong, sum(right, Tally())]
    accuracies = [Classification().read(client)["accuracy"] for client in clients]
    assert Classification().read(sum(clients, Tally()))["accuracy"] == 33 / 34
    assert sum(accuracies) / 2 == 1 / 2


def example(kind: Task, samples: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(samples)
    if isinstance(kind, NextCharacter):
        outputs = torch.randn(samples, 3, 7, generator=generator)
    else:
        outputs = torch.randn(samples, 7, generator=generator)
    if isinstance(kind, (Classification, NextCharacter)):
        return outputs, torch.randint(7, (samples,), generator=generator)
    if isinstance(kind, MultiLabel):
        return outputs, (torch.rand(samples, 7, generator=generator) < 0.3).float()
    if isinstance(kind, Survival):
        times, events = torch.randint(1, 5, (samples,), generator=generator), torch.arange(samples) % 2
        return outputs[:, :1], torch.stack([times, events], dim=1).float()
    if kind.name == "next_token":
        outputs = torch.randn(samples, 5, 7, generator=generator)
        targets = torch.randint(7, (samples, 5), generator=generator)
        targets[torch.rand(samples, 5, generator=generator) < 0.3] = -100
        targets[:, 1] = 3  # somebody is asked something
        return outputs, targets
    return outputs, 3 + torch.randn(samples, 7, generator=generator)


@settings(deadline=None)
@given(st.sampled_from(sorted(TASKS)), st.integers(1, 40), st.data())
def test_metrics_do_not_depend_on_how_samples_were_cut(name: str, samples: int, data: st.DataObject) -> None:
    kind = task(name)
    outputs, targets = example(kind, samples)
    cuts = sorted(data.draw(st.sets(st.integers(1, samples - 1)))) if samples > 1 else []
    parts = zip([0, *cuts], [*cuts, samples], strict=True)
    cut = sum((kind.tally(outputs[a:b], targets[a:b]) for a, b in parts), Tally())
    whole = kind.read(kind.tally(outputs, targets))
    assert kind.read(cut) == pytest.approx(whole, rel=1e-9, abs=1e-12)
    assert whole["loss"] == pytest.approx(kind.loss(outputs, targets).item(), rel=1e-5)
    assert {"loss", *kind.metrics_read} - {*kind.undefined(targets, 7)} <= whole.keys()


ALONE = sorted(name for name in TASKS if task(name).samples_have_losses)


@pytest.mark.parametrize("name", ALONE)
def test_losses_belong_to_their_samples(name: str) -> None:
    kind = task(name)
    outputs, targets = example(kind, 6)
    losses = kind.losses(outputs, targets)
    assert losses.shape == (6,)
    alone = torch.stack([kind.losses(outputs[i : i + 1], targets[i : i + 1])[0] for i in range(6)])
    torch.testing.assert_close(losses, alone)


@pytest.mark.parametrize("name", ALONE)
def test_drawn_targets_are_targets_and_do_not_depend_on_the_cuts(name: str) -> None:
    kind = task(name)
    outputs, targets = example(kind, 12)
    drawn = kind.draw(outputs, stream(0, "labels"))
    assert (drawn.dtype, drawn.shape) == (targets.dtype, targets.shape)
    kind.check(tuple(outputs.shape), drawn)
    generator = stream(0, "labels")
    assert torch.equal(torch.cat([kind.draw(part, generator) for part in outputs.split(5)]), drawn)


def test_targets_are_drawn_as_often_as_the_model_expects_them() -> None:
    outputs, count = torch.tensor([[0.0, math.log(2), -math.inf, math.log(5)]]), 20_000
    many = outputs.expand(count, 4)
    classes = Classification().draw(many, stream(0, "labels"))
    shares = torch.bincount(classes, minlength=4) / count
    torch.testing.assert_close(shares, torch.tensor([1 / 8, 2 / 8, 0, 5 / 8]), atol=0.01, rtol=0)
    labels = MultiLabel().draw(many, stream(0, "labels"))
    torch.testing.assert_close(labels.mean(dim=0), torch.tensor([1 / 2, 2 / 3, 0, 5 / 6]), atol=0.01, rtol=0)
    assert torch.corrcoef(labels[:, [0, 1, 3]].T).fill_diagonal_(0).abs().max() < 0.02
    numbers = Regression().draw(torch.tensor([[1.0, 2.0, 3.0]]).expand(count, 3), stream(0, "labels"))
    torch.testing.assert_close(numbers.mean(dim=0), torch.tensor([1.0, 2.0, 3.0]), atol=0.04, rtol=0)
    torch.testing.assert_close(numbers.var(dim=0), torch.full((3,), 1.5), atol=0.06, rtol=0)
    one = Regression().draw(torch.zeros(count), stream(0, "labels"))
    assert one.var().item() == pytest.approx(0.5, rel=0.04)


def test_the_normal_of_a_regression_has_its_loss_as_negative_log_likelihood() -> None:
    outputs, targets = example(Regression(), 9)
    normal = torch.distributions.Normal(outputs, (7 / 2) ** 0.5)
    likelihood = -normal.log_prob(targets).sum(dim=1)
    losses = Regression().losses(outputs, targets)
    torch.testing.assert_close(likelihood - likelihood[0], losses - losses[0])


def test_the_loss_has_the_gradient_of_torchs_own() -> None:
    outputs, targets = example(Classification(), 9)
    ours, torchs = outputs.clone().requires_grad_(), outputs.clone().requires_grad_()
    Classification().loss(ours, targets).backward()
    functional.cross_entropy(torchs, targets).backward()
    torch.testing.assert_close(ours.grad, torchs.grad)


@pytest.mark.parametrize("kind", [Classification(smoothing=0.1), NextCharacter(smoothing=0.3)])
def test_label_smoothing_is_torchs_and_only_for_training(kind: Classification | NextCharacter) -> None:
    outputs, targets = example(kind, 9)
    plain, last = replace(kind, smoothing=0.0), outputs if outputs.dim() == 2 else outputs[:, -1]
    found = kind.objective(kind.loss(outputs, targets), outputs, targets)
    torch.testing.assert_close(found, functional.cross_entropy(last, targets, label_smoothing=kind.smoothing))
    assert torch.equal(kind.losses(outputs, targets), plain.losses(outputs, targets))
    assert torch.equal(kind.loss(outputs, targets), plain.loss(outputs, targets))
    assert kind.tally(outputs, targets) == plain.tally(outputs, targets)
    loss = plain.loss(outputs, targets)
    assert plain.objective(loss, outputs, targets) is loss


def test_only_the_last_position_counts() -> None:
    outputs, targets = example(NextCharacter(), 8)
    assert NextCharacter().tally(outputs, targets) == Classification().tally(outputs[:, -1], targets)
    assert NextCharacter().tally(outputs[:, -1], targets) == NextCharacter().tally(outputs, targets)


def test_summed_label_losses_are_labels_times_the_mean() -> None:
    outputs, targets = example(MultiLabel(), 5)
    mean, total = MultiLabel(), MultiLabel(labels="sum")
    torch.testing.assert_close(7 * mean.losses(outputs, targets), total.losses(outputs, targets))
    expected = functional.binary_cross_entropy_with_logits(outputs, targets)
    torch.testing.assert_close(mean.loss(outputs, targets), expected)


@given(st.integers(1, 9), st.integers(1, 6), st.integers(1, 6))
def test_recall_at_k_is_the_share_of_present_labels_among_the_k_highest(samples: int, labels: int, k: int) -> None:
    generator = torch.Generator().manual_seed(100 * samples + labels)
    outputs = torch.randn(samples, labels, generator=generator)
    targets = (torch.rand(samples, labels, generator=generator) < 0.4).float()
    found = present = 0
    for row, truth in zip(outputs.tolist(), targets.tolist(), strict=True):
        highest = sorted(range(labels), key=lambda j: -row[j])[:k]
        found += sum(truth[j] == 1 for j in highest)
        present += sum(value == 1 for value in truth)
    kind = MultiLabel(k=k)
    recall = kind.read(kind.tally(outputs, targets)).get(f"recall_at_{k}")
    assert recall == (found / present if present else None)


def test_fewer_than_five_labels_are_all_found() -> None:
    kind = MultiLabel()
    assert kind.headline == "recall_at_5"
    assert kind.read(kind.tally(torch.zeros(2, 3), torch.ones(2, 3)))["recall_at_5"] == 1.0
    assert "recall_at_5" not in kind.read(kind.tally(torch.zeros(2, 3), torch.zeros(2, 3)))
    assert kind.constant(5) == ("recall_at_5",)
    assert kind.constant(6) == ()


@pytest.mark.parametrize("numbers", [1, 3])
@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_r2_and_rmse_are_those_of_scikit_learn(numbers: int, offset: float) -> None:
    generator = np.random.default_rng(4)
    truth = generator.normal(offset, 2.0, (50, numbers))
    guess = truth + generator.normal(0.0, 1.0, (50, numbers))
    metrics = Regression().read(Regression().tally(torch.tensor(guess), torch.tensor(truth)))
    assert metrics["r2"] == pytest.approx(r2_score(truth, guess, multioutput="variance_weighted"), rel=1e-9)
    assert metrics["rmse"] == pytest.approx(np.sqrt(np.mean((truth - guess) ** 2)), rel=1e-12)
    assert metrics["loss"] == pytest.approx(metrics["rmse"] ** 2)


@pytest.mark.parametrize("count", [1, 4])
def test_r2_of_constant_targets_is_undefined(count: int) -> None:
    same = torch.full((count,), 0.1)
    for outputs in (same, same + 1):
        metrics = Regression().read(Regression().tally(outputs, same))
        assert metrics.keys() == {"loss", "rmse"}
    assert Regression().undefined(same, 1) == ("r2",)


@pytest.mark.parametrize("kind", [task(name) for name in TASKS])
def test_an_output_of_nan_is_wrong_and_counted(kind: Task) -> None:
    outputs, targets = example(kind, 6)
    if isinstance(kind, (Classification, NextCharacter)):
        targets = torch.zeros_like(targets)  # the class that NaN would be taken for
    outputs[4] = math.nan
    metrics = kind.read(kind.tally(outputs[:4], targets[:4]) + kind.tally(outputs[4:5], targets[4:5]))
    assert metrics["nan_outputs"] == 1
    assert math.isnan(metrics["loss"])
    good = kind.tally(outputs[:4], targets[:4]).sums
    for name in ("correct", "found"):
        if name in good:
            assert kind.tally(outputs[:5], targets[:5]).sums[name] == good[name]
    assert "nan_outputs" not in kind.read(kind.tally(outputs[:4], targets[:4]))


def test_a_column_of_outputs_is_never_broadcast_against_a_row_of_targets() -> None:
    outputs, targets = torch.tensor([[1.0], [2.0]]), torch.tensor([1.0, 2.0])
    assert Regression().losses(outputs, targets).tolist() == [0.0, 0.0]
    assert Regression().read(Regression().tally(outputs, targets))["r2"] == 1.0


@pytest.mark.parametrize("name", sorted(TASKS))
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_reduced_precision_outputs_get_a_float32_loss(name: str, dtype: torch.dtype) -> None:
    kind = task(name)
    outputs, targets = example(kind, 4)
    low = outputs.to(dtype).requires_grad_()
    loss = kind.loss(low, targets)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, kind.loss(low.float(), targets))
    loss.backward()
    assert low.grad is not None
    assert low.grad.dtype == dtype
    assert math.isfinite(kind.read(kind.tally(low, targets))["loss"])


ONE, HOT, REAL = torch.tensor([0, 1, 2]), torch.eye(3), torch.tensor([0.5, 1.5, 2.5])


@pytest.mark.parametrize(
    ("kind", "shape", "targets"),
    [
        (Classification(), (2, 3), ONE),
        (Classification(), (2, 4), ONE),
        (Classification(), (2, 3), ONE[:0]),
        (NextCharacter(), (2, 3), ONE),
        (NextCharacter(), (2, 80, 3), ONE),
        (MultiLabel(), (2, 3), HOT),
        (Regression(), (2, 1), REAL),
        (Regression(), (2,), REAL),
        (Regression(), (2, 3), HOT),
    ],
)
def test_targets_that_belong_are_taken(kind: Task, shape: tuple[int, ...], targets: Tensor) -> None:
    kind.check(shape, targets)


@pytest.mark.parametrize(
    ("kind", "shape", "targets", "problem"),
    [
        (Classification(), (2, 2), ONE, "label 2"),
        (Classification(), (2, 3), ONE - 1, "label -1"),
        (Classification(), (2, 3), ONE - 100, "label -100"),
        (Classification(), (2, 3), REAL, "float32 targets"),
        (Classification(), (2, 3), ONE.int(), "int32 targets"),
        (Classification(), (2, 3), HOT, "float32 targets of shape (3, 3)"),
        (Classification(), (2, 5, 3), ONE, "(2, 5, 3)"),
        (NextCharacter(), (2, 80, 2), ONE, "label 2"),
        (NextCharacter(), (2,), ONE, "(2,)"),
        (NextCharacter(), (2, 3), HOT.long(), "int64 targets of shape (3, 3)"),
        (MultiLabel(), (2, 4), HOT, "4 outputs"),
        (MultiLabel(), (2, 3), ONE, "int64 targets"),
        (MultiLabel(), (2,), HOT, "(2,)"),
        (MultiLabel(), (2, 3), 2 * HOT, "value 2"),
        (MultiLabel(), (2, 3), HOT * math.nan, "value nan"),
        (Regression(), (2, 2), REAL, "2 outputs"),
        (Regression(), (2, 1), ONE, "int64 targets"),
        (Regression(), (2, 1), REAL / 0, "NaN or infinite"),
        (Regression(), (2, 1, 1), REAL, "(2, 1, 1)"),
    ],
)
def test_targets_that_do_not_belong_are_refused(
    kind: Task, shape: tuple[int, ...], targets: Tensor, problem: str
) -> None:
    with pytest.raises(UserError) as refusal:
        kind.check(shape, targets)
    assert problem in refusal.value.found


@pytest.mark.parametrize(
    ("name", "given_settings"),
    [("clasification", {}), ("multilabel", {"labels": "median"}), ("multilabel", {"k": 0}), ("regression", {"k": 3})],
)
def test_unknown_tasks_and_settings_are_refused(name: str, given_settings: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        task(name, **given_settings)


def test_tasks_go_by_their_names() -> None:
    assert {name: task(name).name for name in TASKS} == {name: name for name in TASKS}
    assert task("multilabel", labels="sum", k=3) == MultiLabel(labels="sum", k=3)


def test_judging_on_nothing_is_refused() -> None:
    with pytest.raises(UserError, match="no sample"):
        Classification().read(Tally())
