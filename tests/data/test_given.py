"""Arrays as users have them: taken as what they are, or refused in words."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from torch.utils.data import Dataset, TensorDataset

from polyrhythm import data
from polyrhythm.base.errors import UserError

X = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
Y = np.arange(60) % 3


def inputs(found: data.Collection) -> torch.Tensor:
    return torch.cat([part.batch(torch.arange(len(part)))[0] for part in (found.train, found.test)])


def read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(np.flip(np.flip(X, 1).copy(), 1), id="turned round"),
        pytest.param(X.astype(">f4"), id="big-endian"),
        pytest.param(read_only(X.copy()), id="read-only"),
        pytest.param(np.asfortranarray(X), id="by columns"),
        pytest.param(X.astype(object), id="objects"),
        pytest.param(X.tolist(), id="lists"),
        pytest.param(list(torch.tensor(X)), id="list of tensors"),
        pytest.param(torch.tensor(X, requires_grad=True), id="with a gradient"),
        pytest.param(np.ma.masked_array(X, mask=False), id="a mask of nothing"),
        pytest.param(X.astype(np.longdouble), id="long doubles"),
    ],
)
def test_arrays_of_every_make_are_one(given: Any) -> None:
    assert torch.equal(inputs(data.arrays(given, Y)), inputs(data.arrays(X, Y)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_floats_of_every_width_become_float32(dtype: torch.dtype) -> None:
    found = inputs(data.arrays(torch.tensor(X).to(dtype), Y, test=(torch.tensor(X).to(dtype), Y)))
    torch.testing.assert_close(found[:60], torch.tensor(X).to(dtype).float())


@pytest.mark.parametrize(
    ("given", "left"),
    [
        (1.7e9 + np.arange(60.0)[:, None], 1),
        (np.array([[10**12 + n] for n in range(60)]), 1),
        (np.arange(60.0)[:, None] * 1e-50, 1),
    ],
)
def test_what_float32_takes_for_one_is_said(given: np.ndarray, left: int) -> None:
    words = f"feature 0 has 48 different values, of which {left} are left in float32"
    assert any(note.startswith(words) for note in data.arrays(given, Y).notes)
    advised = any("scaling=" in note for note in data.arrays(given, Y).notes)
    assert advised is not any("float32" in note for note in data.arrays(given, Y, scaling="train").notes)
    assert not any("float32" in note for note in data.arrays(given - given[:1] + 1.0, Y).notes)


BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "masked": (lambda: data.arrays(np.ma.masked_array(X, mask=np.eye(60, 4)), Y), "4 inputs that are masked"),
    "masked tests": (lambda: data.arrays(X, Y, test=(np.ma.masked_array(X, mask=np.eye(60, 4)), Y)), "masked"),
    "ragged": (lambda: data.arrays([[1.0, 2.0], [1.0]] * 30, Y), "make no array"),
    "ragged objects": (lambda: data.arrays(np.array([[1.0], [1.0, 2.0]], dtype=object), [0, 1]), "Python objects"),
    "sparse": (lambda: data.arrays(torch.tensor(X).to_sparse(), Y), "sparse tensor"),
    "sparse matrix": (lambda: data.arrays(scipy.sparse.csr_matrix(X), Y), "sparse matrix"),
    "nothing there": (lambda: data.arrays(np.array([None, 1.0] * 30, dtype=object), Y), "30 inputs that are missing"),
    "mixed": (lambda: data.arrays(np.array(["a", 1.0] * 30, dtype=object), Y), "several kinds"),
    "complex": (lambda: data.arrays(X * 1j, Y), "inputs of complex64"),
    "without numbers": (lambda: data.arrays(torch.ones(60, 4, device="meta"), Y), "without numbers"),
    "nested": (
        lambda: data.arrays(torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged), [0, 1]),
        "inputs in a nested tensor",
    ),
    "no features": (lambda: data.arrays(X[:, :0], Y), "inputs of shape (60, 0)"),
    "1e300": (lambda: data.arrays(np.where(np.eye(60, 4) > 0, 1e300, 1.0), Y), "4 training inputs that are NaN"),
    "1e307 in all": (lambda: data.arrays(np.full((60, 4), 1e307), Y), "inputs that are NaN or infinite, or do not fit"),
    "1e307, scaled": (lambda: data.arrays(np.full((60, 4), 1e307), Y, scaling="train"), "do not fit"),
    "NaN in tests": (lambda: data.arrays(X, Y, test=(np.full((9, 4), np.nan), Y[:9])), "36 test inputs"),
    "beyond int64": (lambda: data.arrays(np.full((60, 1), 2**63 + 5, dtype=np.uint64), Y), "9,223,372,036,854,775,813"),
    "one outlier, scaled": (
        lambda: data.arrays(np.where(np.eye(60, 4) > 0, 1e200, 1.0), Y, scaling="train"),
        "do not fit",
    ),
    "a generator": (lambda: data.arrays((v for v in X), Y), "inputs of type generator"),
    "a set": (lambda: data.arrays({1, 2}, Y), "inputs of type set"),
    "a dict of text": (lambda: data.arrays({"x": ["a"] * len(Y)}, Y), "x of <U1"),
    "dates": (lambda: data.arrays([datetime.date(2024, 1, 1)] * 60, Y), "inputs of type date"),
    "keys of a number and text": (lambda: data.arrays(X, Y, columns={"u": [1, *["1"] * 59]}), "several kinds"),
    "keys of NaN and text": (lambda: data.arrays(X, Y, columns={"u": [np.nan, *["1"] * 59]}), "missing"),
    "keys that end in zeros": (lambda: data.arrays(X, Y, columns={"u": ["a", "a\0"] * 30}), "end in a zero character"),
    "labels that end in zeros": (lambda: data.arrays(X, ["a", "a\0"] * 30), "end in a zero character"),
    "bytes that end in zeros": (lambda: data.arrays(X, [b"a", b"a\0"] * 30), "end in a zero character"),
    "no key": (lambda: data.arrays(X, Y, columns={"u": [None, "u"] * 30}), "30 keys of column 'u' that are missing"),
    "NaN keys": (lambda: data.arrays(X, Y, columns={"u": [np.nan, 1.0] * 30}), "30 keys that are NaN"),
    "mixed keys": (lambda: data.arrays(X, Y, columns={"u": np.array([1, "1"] * 30, dtype=object)}), "several kinds"),
    "few keys": (lambda: data.arrays(X, Y, columns={"u": [0] * 59}), "59 keys for 60 samples"),
    "few test keys": (
        lambda: data.arrays(X, Y, test=(X, Y), columns={"u": Y}, test_columns={"u": [1]}),
        "1 keys for 60 samples",
    ),
    "rows of keys": (lambda: data.arrays(X, Y, columns={"u": X}), "shape (60, 4)"),
    "keys of a data set": (
        lambda: data.dataset(*[TensorDataset(torch.tensor(X), torch.tensor(Y))] * 2, columns={"u": [None] * 60}),
        "missing",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_taken_is_refused_in_words(name: str) -> None:
    make, said = BAD[name]
    with pytest.raises(UserError) as error:
        make()
    assert said in error.value.found


def test_decimals_are_numbers() -> None:
    assert inputs(data.arrays([[Decimal("1.5")], [Decimal(-2)]] * 30, Y)).unique().tolist() == [-2.0, 1.5]


def test_a_refused_number_is_found_by_its_sample() -> None:
    x = np.ones((60, 4))
    x[[17, 23], 2] = 1e39
    with pytest.raises(UserError, match=r"\(sample (17|23) first\)"):
        data.arrays(x, Y)


def test_wide_numbers_are_scaled_before_they_become_float32() -> None:
    moments = (1_700_000_000 + np.arange(60) * 0.25)[:, None]
    for given in (moments, (moments * 4).astype(np.int64)):
        found = inputs(data.arrays(given, Y, scaling="train"))
        assert found.unique().numel() == 60
        assert found.dtype == torch.float32
    one = data.arrays(X, Y, scaling="train", test=(X, Y))
    torch.testing.assert_close(inputs(one)[:60], torch.tensor((X - X.mean(0)) / X.std(0)), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_images_with_channels_last_are_turned_with_a_note(tmp_path: Path, dtype: Any, channels: int) -> None:
    images = np.random.default_rng(0).integers(0, 255, (20, 9, 8, channels)).astype(dtype)
    np.savez(tmp_path / "i.npz", x=images, y=Y[:20])
    white = 255 if dtype == np.uint8 else 1
    wanted = torch.tensor(images).permute(0, 3, 1, 2).float() / white
    for found in (data.arrays(images, Y[:20], test=(images, Y[:20])), data.npz(tmp_path / "i.npz")):
        assert found.train.shape == (channels, 9, 8)
        assert any("channels were put in front" in note for note in found.notes)
    assert torch.equal(inputs(data.arrays(images, Y[:20], test=(images, Y[:20])))[:20], wanted)


@pytest.mark.parametrize("shape", [(3, 9, 9), (16, 1, 1), (16, 4, 1), (9, 8, 7), (1, 32, 3)])
def test_other_shapes_stay(shape: tuple[int, ...]) -> None:
    assert data.arrays(np.ones((20, *shape), dtype=np.float32), Y[:20]).train.shape == shape


class One(Dataset[Any]):
    """Items of which one is NaN."""

    def __init__(self, bad: int) -> None:
        self.bad = bad

    def __len__(self) -> int:
        return 60

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        return torch.full((4,), float("nan") if i == self.bad else i / 60), i % 2


def test_an_item_that_is_nan_is_refused_by_its_index() -> None:
    rows = torch.tensor(X).clone()
    rows[7, 2] = torch.inf
    for items in (One(7), TensorDataset(rows, torch.tensor(Y))):
        with pytest.raises(UserError, match="item 7 has inputs that are NaN or infinite"):
            data.dataset(items, items)


def test_npz_of_another_kind_of_file_names_the_right_source(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,y\n1,2\n")
    with pytest.raises(UserError) as error:
        data.npz(tmp_path / "x.csv")
    assert "table(path=" in error.value.fix
