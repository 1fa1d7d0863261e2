"""One meaning of targets: whatever holds them, and by whatever way they come, the task is the same, and is said."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import TensorDataset

import polyrhythm as pr
from polyrhythm.base.errors import UserError
from polyrhythm.data.targets import as_targets

N = 60
X = np.random.default_rng(0).normal(size=(N, 6)).astype("f4")
TEN = np.random.default_rng(1).integers(0, 10, N)
TEN[:10] = range(10)
PRICES = np.random.default_rng(2).permutation(np.arange(100, 100 + 7 * N, 7))


def by_arrays(targets: Any, **settings: Any) -> pr.data.Collection:
    return pr.data.arrays(X, targets, **settings)


class Pairs:
    def __init__(self, targets: Any) -> None:
        self.targets = targets

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> tuple[torch.Tensor, Any]:
        return torch.from_numpy(X[index]), self.targets[index]


def by_dataset(targets: Any, **settings: Any) -> pr.data.Collection:
    return pr.data.dataset(Pairs(targets), Pairs(targets), **settings)


def by_npz(targets: Any, tmp_path: Path) -> pr.data.Collection:
    np.savez(tmp_path / "a.npz", x=X, y=targets)
    return pr.data.npz(tmp_path / "a.npz")


def by_table(targets: np.ndarray, tmp_path: Path) -> pr.data.Collection:
    frame = pd.DataFrame({f"x{i}": X[:, i] for i in range(6)})
    frame.assign(y=targets).to_csv(tmp_path / "t.csv", index=False)
    return pr.data.table(tmp_path / "t.csv", target="y")


FLAT: dict[str, tuple[np.ndarray, str, int]] = {
    "whole": (TEN, "classification", 10),
    "whole floats": (TEN.astype(float), "classification", 10),
    "two": (TEN % 2, "classification", 2),
    "two floats": ((TEN % 2).astype("f4"), "classification", 2),
    "minus one and one": (TEN % 2 * 2 - 1, "classification", 2),
    "booleans": (TEN % 2 == 1, "classification", 2),
    "texts": (np.array([f"class {t}" for t in TEN]), "classification", 10),
    "prices": (PRICES, "classification", N),
    "prices as floats": (PRICES.astype(float), "regression", 1),
    "fractions": (PRICES / 8, "regression", 1),
}


@pytest.mark.parametrize("name", FLAT)
def test_every_way_decides_alike(name: str, tmp_path: Path) -> None:
    values, task, outputs = FLAT[name]
    column = values[:, None]
    ways: list[Callable[[], pr.data.Collection]] = [
        lambda: by_arrays(values),
        lambda: by_arrays(column),
        lambda: by_arrays(values.tolist()),
        lambda: by_arrays(column.tolist()),
        lambda: by_arrays(values.astype(object)),
        lambda: by_arrays(np.ma.masked_array(values)),
        lambda: by_arrays(pd.Series(values)),
        lambda: by_dataset(values),
        lambda: by_dataset(column),
        lambda: by_dataset(values.tolist()),
        lambda: by_npz(values, tmp_path),
        lambda: by_npz(column, tmp_path),
        lambda: by_table(values, tmp_path),
    ]
    if values.dtype.kind != "U":
        ways += [lambda: by_arrays(torch.from_numpy(values)), lambda: by_dataset(torch.from_numpy(column))]
    classes = set()
    for way in ways:
        found = way()
        assert (found.task, found.outputs) == (task, outputs)
        classes.add(found.classes)
    assert len(classes) == 1


@pytest.mark.parametrize("held", [np.ndarray.tolist, torch.from_numpy, np.asarray])
def test_a_column_of_class_numbers_is_those_classes(held: Callable[[np.ndarray], Any]) -> None:
    found = pr.data.arrays(X, held(TEN[:, None]), test=(X, held(TEN[:, None])))
    assert found.train.targets.tolist() == found.test.targets.tolist() == TEN.tolist()
    assert found.classes == tuple(map(str, range(10)))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("prices", "60 different whole numbers, taken as 60 classes with "),
        ("prices as floats", "60 different whole numbers, taken as amounts to predict (regression)"),
        ("two floats", "whole numbers held as floats, taken as 2 classes"),
    ],
)
def test_near_the_border_it_is_said(name: str, said: str, tmp_path: Path) -> None:
    values, _, _ = FLAT[name]
    for found in (by_arrays(values), by_dataset(values), by_table(values, tmp_path)):
        assert any(said in note for note in found.notes)
        federation = pr.federate(found, pr.data.Iid(), clients=2, seed=0)
        assert any(said in note for note in federation.notes)
    forced = by_arrays(values, task="regression")
    assert forced.task == "regression"
    assert not any(said in note for note in forced.notes)


def test_what_is_plain_is_not_said() -> None:
    for name in ("whole", "two", "booleans", "texts", "fractions"):
        assert by_arrays(FLAT[name][0]).notes == ()
    assert any("one class" in note for note in by_arrays(np.zeros(N, int)).notes)


HOT = np.eye(3)[TEN % 3]
TAGS = (np.random.default_rng(3).random((N, 4)) < 0.5).astype(int)
TAGS[0] = 1


@pytest.mark.parametrize("dtype", [int, float, bool, "f4"])
def test_rows_of_one_hot_labels_are_refused_or_classes_by_word(dtype: Any) -> None:
    rows = HOT.astype(dtype)
    for way in (by_arrays, by_dataset):
        with pytest.raises(UserError, match="exactly one 1 in every row"):
            way(rows)
        found = way(rows, task="classification")
        assert found.classes == ("0", "1", "2")
        assert by_dataset(rows, task="multilabel").task == "multilabel"
    whole = pr.data.arrays(X, rows, test=(X, rows), task="classification", classes=["a", "b", "c"])
    assert whole.train.targets.tolist() == (TEN % 3).tolist()
    assert whole.classes == ("a", "b", "c")


@pytest.mark.parametrize("dtype", [int, float, bool])
def test_rows_of_tags_are_tags(dtype: Any) -> None:
    for way in (by_arrays, by_dataset):
        found = way(TAGS.astype(dtype))
        assert (found.task, found.outputs) == ("multilabel", 4)
        assert found.train.targets.dtype == torch.float32


@pytest.mark.parametrize(
    ("targets", "said"),
    [
        (np.ma.masked_array(TEN, mask=np.arange(N) % 7 == 3), "9 of 60 targets missing (NaN, None or masked): that of"),
        (np.where(np.arange(N) == 5, np.nan, TEN), "1 of 60 targets missing (NaN, None or masked): that of sample 5"),
        ([None if i == 5 else "ab"[i % 2] for i in range(N)], "that of sample 5"),
        (pd.array([pd.NA if i == 5 else i % 3 for i in range(N)], dtype="Int64"), "that of sample 5"),
        (np.where(np.arange(N) == 5, np.inf, TEN), "an infinite target, of sample 5"),
        ([1 if i % 2 else "1" for i in range(N)], "targets '1' and 1"),
        ([Decimal("NaN") if i == 5 else Decimal(i % 2) for i in range(N)], "that of sample 5"),
        ([[1, 2], [1]] * 30, "targets that are no array"),
        (np.arange(N).astype("datetime64[D]"), "targets of datetime64"),
        (TEN * 1j, "targets of complex128"),
        ([2**70 + i for i in range(N)], "a target as large as"),
        (np.zeros((N, 4, 4), int), "targets of shape (60, 4, 4)"),
        (np.array([["a", "b"]] * N), "2 texts a sample"),
        (np.full((N, 2), 0.5), "shares of 2 classes"),
        (np.where(np.arange(N) == 5, -100, TEN), "label -100"),
    ],
)
def test_what_is_no_target_is_refused_in_words(targets: Any, said: str) -> None:
    with pytest.raises(UserError) as refused:
        by_arrays(targets)
    assert said in refused.value.found


@pytest.mark.parametrize(
    ("targets", "task"),
    [
        (TEN, "multilabel"),
        (PRICES / 8, "multilabel"),
        (TAGS, "classification"),
        (HOT * 2, "multilabel"),
        (np.array(["a", "b"] * 30), "regression"),
        (TEN, "ranking"),
    ],
)
def test_a_task_that_targets_cannot_be_is_refused(targets: Any, task: str) -> None:
    for way in (by_arrays, by_dataset):
        with pytest.raises(UserError):
            way(targets, task=task)


@pytest.mark.parametrize("test", [np.array(["0", "1"] * 30), TEN[:, None] + np.zeros((1, 2))])
def test_tests_of_another_kind_are_refused(test: Any) -> None:
    with pytest.raises(UserError, match="training targets that are"):
        pr.data.arrays(X, TEN, test=(X, test))


def test_a_task_can_be_forced() -> None:
    assert by_arrays(TEN, task="regression").train.targets.dtype == torch.float32
    assert by_arrays(PRICES.astype(float), task="classification").outputs == N
    assert by_arrays(TEN.astype(float), classes=range(10)).notes == ()


def test_decimals_sparse_and_short_floats_are_numbers() -> None:
    assert as_targets([Decimal("1.5"), Decimal(2)]).dtype == np.float64
    assert as_targets(torch.tensor([1, 0]).to_sparse()).tolist() == [1, 0]
    assert as_targets(torch.tensor([0.5]).bfloat16()).dtype == np.float32


def test_sample_weights_in_third_place_are_no_labels() -> None:
    three = TensorDataset(torch.from_numpy(X), torch.from_numpy(TEN), torch.rand(N))
    with pytest.raises(UserError, match="3 values"):
        pr.data.dataset(three, three)
    found = pr.data.dataset(three, three, adapt=lambda item: item[:2])
    assert found.train.targets.tolist() == TEN.tolist()


@pytest.mark.parametrize("labels", [[], np.zeros(0), np.zeros((0, 2))])
def test_no_samples_at_all_are_refused_in_words(labels: Any) -> None:
    for given in ((X[:0], labels), (X, TEN)):
        with pytest.raises(UserError, match="0 inputs and 0 targets"):
            pr.data.arrays(*given, test=(X[:0], labels) if len(given[1]) else 0.2)


@pytest.mark.parametrize("value", [1e39, -1e300])
def test_amounts_beyond_float32_are_refused_in_words(value: float) -> None:
    for by in (by_arrays, by_dataset):
        with pytest.raises(UserError, match=r"a target as large as 1e\+"):
            by(np.array([value, *np.linspace(0.5, 1.5, N - 1)]))


def test_labels_without_numbers_are_refused_in_words() -> None:
    with pytest.raises(UserError, match="without numbers"):
        by_arrays(torch.ones(N, device="meta"))
    items = [(torch.zeros(3), torch.ones((), device="meta"))] * 4
    with pytest.raises(UserError, match="a label of type Tensor"):
        pr.data.dataset(items, items)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("plain", [True, False])
def test_nan_among_the_inputs_of_items_is_refused_with_its_place(value: float, plain: bool) -> None:
    inputs = torch.from_numpy(X.copy())
    inputs[7, 2] = value
    good, bad = (TensorDataset(torch.from_numpy(x), torch.from_numpy(TEN)) for x in (X, inputs.numpy()))
    wrapped: Any = bad if plain else [bad[i] for i in range(N)]
    for pair in ((good, wrapped), (wrapped, good)):
        with pytest.raises(UserError, match="item 7 has inputs that are NaN or infinite"):
            pr.data.dataset(*pair)
