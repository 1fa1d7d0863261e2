"""Arrays of every type and form with their labels, and torch Datasets, and what must come out of each."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, final

import numpy as np
import pandas as pd
import torch
from torch.utils.data import Dataset

from drawn.case import Case, Draw, Rows, apart, apart_in_any_order, rows_of
from polyrhythm import data

DTYPES = ("float16", "float32", "float64", "longdouble", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64",
          "uint64", "bool")  # fmt: skip
WORDS = ("cat", "dog", "None", "NA", "007", "7", "é", "e\u0301", "日本", " a", "a", "")


def values_of(draw: Draw, n: int) -> tuple[np.ndarray, str]:
    """Numbers of some type and shape, and what they are."""
    shape = draw.choice([(3,), (3,), (1,), (2, 3), (), (5, 6, 3), (1, 8, 8), (6, 6), (0,), (7, 7, 4)])
    dtype = draw.choice(DTYPES)
    random = np.random.Generator(np.random.PCG64(draw.randrange(2**32)))
    whole = (
        random.normal(0, 3, (n, *shape))
        if dtype.startswith(("float", "long"))
        else random.integers(0, 100, (n, *shape))
    )
    return whole.astype(dtype), f"{dtype} {shape}"


def right_inputs(values: np.ndarray) -> np.ndarray:
    """What a run must read: floats as float32, bytes in [0, 1], other whole numbers as they are, channels in front."""
    if values.dtype == np.uint8 and values.ndim == 3:
        values = values[:, None]
    elif values.ndim == 4 and values.shape[3] in (1, 3, 4) and min(values.shape[1:3]) > 4:
        values = values.transpose(0, 3, 1, 2)
    if values.dtype == np.uint8:
        return values.astype(np.float32) / np.float32(255)
    return values.astype(np.float32) if values.dtype.kind == "f" else values.astype(np.int64)


def held(draw: Draw, values: np.ndarray) -> tuple[Any, str]:
    """The same numbers in another container or order of memory."""
    ways: dict[str, Callable[[], Any]] = {
        "array": lambda: values,
        "turned": lambda: values[::-1].copy()[::-1],
        "by columns": lambda: np.asfortranarray(values),
        "every second": lambda: np.repeat(values, 2, axis=0)[::2],
        "read only": lambda: _frozen(values),
        "swapped": lambda: values.astype(values.dtype.newbyteorder(">")),
        "list": lambda: values.tolist() if values.dtype not in (np.uint8, np.longdouble) else values,
        "list of rows": lambda: list(values),
        "objects": lambda: values.astype(object) if values.dtype not in (np.uint8, np.longdouble) else values,
        "masked nowhere": lambda: np.ma.MaskedArray(values),
        "tensor": lambda: torch.from_numpy(np.ascontiguousarray(values)) if values.dtype != np.longdouble else values,
        "tensor that learns": lambda: (
            torch.tensor(values, requires_grad=True) if values.dtype == np.float32 else values
        ),
        "strided tensor": lambda: (
            torch.from_numpy(np.repeat(values, 2, axis=0))[::2] if values.dtype != np.longdouble else values
        ),
        "frame": lambda: pd.DataFrame(values) if values.ndim == 2 else values,
        "tensors": lambda: [torch.tensor(row) for row in values] if values.dtype in (np.float32, np.int64) else values,
    }
    way = draw.choice(list(ways))
    return ways[way](), way


def _frozen(values: np.ndarray) -> np.ndarray:
    values = values.copy()
    values.flags.writeable = False
    return values


def labels_of(draw: Draw, n: int) -> tuple[Any, list[Any], str]:
    """Labels as they are given and as they must come out."""
    words, draws = draw.sample(WORDS, 3), [draw.randrange(3) for _ in range(n)]
    amounts = np.array([draw.uniform(-1, 1) for _ in range(n)])
    tags = np.array([[draw.randrange(2) for _ in range(3)] for _ in range(n - 2)] + [[1, 1, 0], [0, 0, 0]])
    texts, numbers = [words[i] for i in draws], [str(i) for i in draws]
    truth, rows = [str(i == 1) for i in draws], np.stack([amounts, amounts * 2], axis=1)
    narrow = [float(np.float32(v)) for v in amounts]
    many: dict[str, Callable[[], tuple[Any, list[Any]]]] = {
        "texts": lambda: (texts, texts),
        "array of texts": lambda: (np.array(texts), texts),
        "bytes": lambda: (np.array([text.encode() for text in texts]), texts),
        "series of texts": lambda: (pd.Series(texts), texts),
        "categories": lambda: (pd.Categorical(texts), texts),
        "numbers": lambda: (draws, numbers),
        "int8": lambda: (np.array(draws, dtype=np.int8), numbers),
        "uint64": lambda: (np.array(draws, dtype=np.uint64), numbers),
        "large": lambda: (np.array(draws, dtype=np.uint64) + 2**63, [str(2**63 + i) for i in draws]),
        "whole floats": lambda: (np.array(draws, dtype=np.float32), numbers),
        "column": lambda: (np.array(draws)[:, None], numbers),
        "truth": lambda: ([i == 1 for i in draws], truth),
        "tensor": lambda: (torch.tensor(draws), numbers),
        "bfloat16": lambda: (torch.tensor(draws, dtype=torch.bfloat16), numbers),
        "amounts": lambda: (amounts, narrow),
        "tensor of amounts": lambda: (torch.tensor(amounts), narrow),
        "rows": lambda: (rows, rows.astype(np.float32).tolist()),
        "tags": lambda: (tags, tags.astype(np.float32).tolist()),
        "tensor of tags": lambda: (torch.tensor(tags), tags.astype(np.float32).tolist()),
    }
    kind = draw.choice(list(many))
    return (*many[kind](), kind)


Broken = tuple[Any, Any]
BREAKS: Mapping[str, Callable[[Draw, Any, Any, int], Broken]] = {
    "NaN": lambda draw, x, y, n: (_with(x, draw, float("nan")), y),
    "infinity": lambda draw, x, y, n: (_with(x, draw, float("inf")), y),
    "too large": lambda draw, x, y, n: (_with(np.asarray(x, dtype=np.float64), draw, -1e300), y),
    "beyond int64": lambda draw, x, y, n: (np.full((n, 2), 2**63 + draw.randrange(9), dtype=np.uint64), y),
    "lists of dates": lambda draw, x, y, n: ([datetime.date(2024, 1, 1)] * n, y),
    "None": lambda draw, x, y, n: ([None, *range(n - 1)], y),
    "ragged": lambda draw, x, y, n: ([[1.0] * (1 + i % 2) for i in range(n)], y),
    "texts": lambda draw, x, y, n: (["a"] * n, y),
    "number texts": lambda draw, x, y, n: (["1"] * n, y),
    "complex": lambda draw, x, y, n: (np.ones((n, 2)) * 1j, y),
    "dates": lambda draw, x, y, n: (np.zeros(n, dtype="M8[s]"), y),
    "records": lambda draw, x, y, n: (np.zeros(n, dtype=[("a", "f4"), ("b", "i4")]), y),
    "masked": lambda draw, x, y, n: (np.ma.MaskedArray(np.ones((n, 2)), mask=[[i == 3, False] for i in range(n)]), y),
    "sparse": lambda draw, x, y, n: (torch.eye(n).to_sparse(), y),
    "meta": lambda draw, x, y, n: (torch.empty(n, 3, device="meta"), y),
    "one number": lambda draw, x, y, n: (3.0, y),
    "nothing": lambda draw, x, y, n: (None, y),
    "a text": lambda draw, x, y, n: ("inputs", y),
    "a dict": lambda draw, x, y, n: ({"x": x, "z": x[: n - 1]}, y),
    "a generator": lambda draw, x, y, n: ((v for v in range(n)), y),
    "a set": lambda draw, x, y, n: (set(range(n)), y),
    "shorter": lambda draw, x, y, n: (x[: n - 1], y),
    "empty": lambda draw, x, y, n: (x[:0], y[:0]),
    "label None": lambda draw, x, y, n: (x, [None, *[1] * (n - 1)]),
    "label NaN": lambda draw, x, y, n: (x, [float("nan"), *[1.0] * (n - 1)]),
    "label inf": lambda draw, x, y, n: (x, [float("inf"), *[1.5] * (n - 1)]),
    "label too large": lambda draw, x, y, n: (x, [1e300, *[1.5] * (n - 1)]),
    "label beyond all": lambda draw, x, y, n: (x, [10**400, *[1] * (n - 1)]),
    "label mixed": lambda draw, x, y, n: (x, [1, "1"] * (n // 2) + [1] * (n % 2)),
    "label NaT": lambda draw, x, y, n: (x, [pd.NaT, *["a"] * (n - 1)]),
    "label NA": lambda draw, x, y, n: (x, pd.array([None, *[1] * (n - 1)], dtype="Int64")),
    "label masked": lambda draw, x, y, n: (x, np.ma.MaskedArray([1] * n, mask=[i == 2 for i in range(n)])),
    "label rows": lambda draw, x, y, n: (x, [[1] * (1 + i % 2) for i in range(n)]),
    "label left out": lambda draw, x, y, n: (x, [-100, *[i % 2 for i in range(n - 1)]]),
    "label one hot": lambda draw, x, y, n: (x, np.eye(3)[[i % 3 for i in range(n)]]),
    "label complex": lambda draw, x, y, n: (x, np.ones(n) * 1j),
    "label dates": lambda draw, x, y, n: (x, pd.date_range("2024", periods=n)),
    "label lists": lambda draw, x, y, n: (x, [["a"], *["b"] * (n - 1)]),
    "label deep": lambda draw, x, y, n: (x, np.zeros((n, 2, 2))),
    "label dict": lambda draw, x, y, n: (x, {"y": 1}),
    "label zeros": lambda draw, x, y, n: (x, ["a", *["a\0"] * (n - 1)]),
    "label nothing": lambda draw, x, y, n: (x, None),
    "label one": lambda draw, x, y, n: (x, 3),
    "label set": lambda draw, x, y, n: (x, {1, 2, 3}),
    "label sparse": lambda draw, x, y, n: (x, torch.ones(n, 2, device="meta")),
}


def _with(values: Any, draw: Draw, odd: float) -> np.ndarray:
    whole = np.array(values, dtype=np.float64)
    if not whole.size:
        whole = np.zeros((len(whole), 2))
    whole.reshape(-1)[draw.randrange(whole.size)] = odd
    return whole


def drawn_arrays(draw: Draw, folder: Path) -> Case:
    """Inputs and labels, perhaps broken."""
    n = draw.randrange(12, 40)
    (x, told), (y, labels, kind) = values_of(draw, n), labels_of(draw, n)
    given, way = held(draw, x)
    broken = draw.random() < 0.4
    if broken:
        how = draw.choice(list(BREAKS))
        given, y = BREAKS[how](draw, x, y, n)
        told = f"{told}, broken: {how}"
    settings: dict[str, Any] = {"test": draw.choice([0.2, 0.5])}
    test = not broken and draw.random() < 0.3
    if test:
        settings["test"] = (given, y)
    clients = None
    if draw.random() < 0.4 and not broken:
        clients, settings["columns"], wrong = keys_of(draw, n)
        if test:
            settings["test_columns"] = settings["columns"]
        broken, told = wrong, f"{told}, keys {settings['columns']!r:.100}"
    right = Rows(right_inputs(x) if not broken else x, labels, clients)

    def judge(found: Any) -> str:
        parts = [rows_of(found, "train", "k"), rows_of(found, "test", "k")]
        if not test:
            return apart_in_any_order(parts, right)
        return next((wrong for part in parts if (wrong := apart(part, right, 1e-7))), "")

    odd_shape = x.ndim == 1 or 0 in x.shape
    return Case(
        told=f"{told}, {way}; labels: {kind}; {'test given' if test else settings['test']}",
        read=lambda: data.arrays(given, y, **settings),
        judge=judge,
        must="refuse" if broken else "" if odd_shape else "take",
    )


def keys_of(draw: Draw, n: int) -> tuple[list[str] | None, dict[str, Any], bool]:
    """Keys of samples, and whether they cannot be used."""
    texts, numbers = [draw.choice(WORDS) for _ in range(n)], [draw.randrange(4) for _ in range(n)]
    many: list[tuple[Any, list[str] | None]] = [
        (texts, texts),
        (np.array(texts), texts),
        (pd.Series(numbers), [str(i) for i in numbers]),
        (torch.tensor(numbers), [str(i) for i in numbers]),
        (pd.Categorical(texts), texts),
        ([None, *texts[1:]], None),
        ([1, *texts[1:]], None),
        ([float("nan"), *numbers[1:]], None),
        (texts[1:], None),
        (np.zeros((n, 2)), None),
        (3, None),
        ("abc", None),
        (np.ma.MaskedArray(numbers, mask=[True] + [False] * (n - 1)), None),
        ([[1], *[[1, 2]] * (n - 1)], None),
        ({"a": 1}, None),
        (["a", *["a\0"] * (n - 1)], None),
    ]
    values, right = draw.choice(many)
    return right, {"k": values}, right is None


@final
class Items(Dataset[Any]):
    """Items that a function gives, and a length that may be a lie."""

    def __init__(self, give: Callable[[int], Any], length: int) -> None:
        self._give, self._length = give, length
        self.targets = [-1] * length  # of before some transform

    def __getitem__(self, index: int) -> Any:
        return self._give(index)

    def __len__(self) -> int:
        return self._length
