"""Torch Datasets of every make, and what must come out of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import ConcatDataset, IterableDataset, Subset, TensorDataset

from drawn.arrays import Items
from drawn.case import Case, Draw, Rows, apart, rows_of
from polyrhythm import data

SHAPES = ((3,), (2, 4), (1, 6, 6), ())


def drawn_set(draw: Draw, folder: Path) -> Case:
    """A data set to train on and the same to test on, perhaps broken."""
    n, shape = draw.randrange(8, 30), draw.choice(SHAPES)
    generator = torch.Generator().manual_seed(draw.randrange(2**31))
    inputs = torch.randn(n, *shape, generator=generator)
    dtype = draw.choice(
        [torch.float32, torch.float32, torch.float64, torch.float16, torch.int64, torch.uint8, torch.bool]
    )
    inputs = inputs.to(dtype) if dtype.is_floating_point else (inputs.abs() * 3).to(dtype)
    numbers = [draw.randrange(3) for _ in range(n)]
    labels, right, of = labels_of(draw, numbers)
    made = draw.choice(list(MAKES))
    given, adapt = MAKES[made](inputs, labels)
    told = f"{made}, {dtype} {shape}, labels {of}"
    stated, broken = None, ""
    if draw.random() < 0.25:
        stated = list(labels)
    if draw.random() < 0.35:
        broken = draw.choice(list(BREAKS))
        given = BREAKS[broken](inputs, labels, draw)
        adapt, told = None, f"{told}, broken: {broken}"
    elif stated is not None and draw.random() < 0.3:
        stated = draw.choice([stated[1:], [*stated[1:], stated[0]], [None, *stated[1:]]])
        broken = "stated" if repr(stated) != repr(labels) else ""
        told += ", stated otherwise"
    settings = {"targets": stated, "test_targets": stated, "adapt": adapt}
    rows = Rows(inputs.numpy(), right)

    def judge(found: Any) -> str:
        parts = [rows_of(found, "train"), rows_of(found, "test")]
        if any(part.inputs.dtype != rows.inputs.dtype for part in parts):
            return f"inputs of {parts[0].inputs.dtype}"
        return next((wrong for part in parts if (wrong := apart(part, rows))), "")

    def read() -> Any:
        found = data.dataset(given, given, **settings)
        if broken:  # whatever is wrong with an item must be said at the latest when it is used
            for part in (found.train, found.test):
                part.batch(torch.arange(len(part)))
        return found

    return Case(told=told, read=read, judge=judge, must="refuse" if broken else "take")


def labels_of(draw: Draw, numbers: list[int]) -> tuple[list[Any], list[Any], str]:
    """The labels of items and what they must become."""
    words, n = draw.sample(["cat", "NA", "007", "é", "None", ""], 3), len(numbers)
    amounts = [float(np.float32(draw.uniform(-1, 1))) for _ in range(n)]
    tags = [[i % 2, 1, int(number == 2)] for i, number in enumerate(numbers)]
    tags[0] = [0, 0, 0]
    many: dict[str, tuple[list[Any], list[Any]]] = {
        "numbers": (numbers, [str(i) for i in numbers]),
        "tensors": ([torch.tensor(i) for i in numbers], [str(i) for i in numbers]),
        "columns": ([torch.tensor([i]) for i in numbers], [str(i) for i in numbers]),
        "NumPy's": ([np.int32(i) for i in numbers], [str(i) for i in numbers]),
        "texts": ([words[i] for i in numbers], [words[i] for i in numbers]),
        "truth": ([i == 1 for i in numbers], [str(i == 1) for i in numbers]),
        "amounts": (amounts, amounts),
        "tensors of amounts": ([torch.tensor(a, dtype=torch.float64) for a in amounts], amounts),
        "tags": ([torch.tensor(t) for t in tags], [[float(v) for v in t] for t in tags]),
        "lists of tags": (tags, [[float(v) for v in t] for t in tags]),
    }
    kind = draw.choice(list(many))
    return (*many[kind], kind)


Make = Callable[[torch.Tensor, list[Any]], tuple[Any, Any]]


def _tensors(inputs: torch.Tensor, labels: list[Any]) -> tuple[Any, Any]:
    if isinstance(labels[0], str):
        return list(zip(inputs, labels, strict=True)), None
    stacked = torch.stack(labels) if isinstance(labels[0], torch.Tensor) else torch.tensor(np.array(labels))
    return TensorDataset(inputs, stacked), None


def _halves(inputs: torch.Tensor, labels: list[Any]) -> tuple[Any, Any]:
    pieces = [_tensors(inputs[part], labels[part])[0] for part in (slice(0, 4), slice(4, None))]
    return ConcatDataset(pieces), None


def _subset(inputs: torch.Tensor, labels: list[Any]) -> tuple[Any, Any]:
    order = list(range(len(labels)))[::-1]
    return Subset(_tensors(inputs.flip(0), labels[::-1])[0], order), None


MAKES: Mapping[str, Make] = {
    "list": lambda x, y: (list(zip(x, y, strict=True)), None),
    "lists": lambda x, y: ([[a, b] for a, b in zip(x, y, strict=True)], None),
    "TensorDataset": _tensors,
    "ConcatDataset": _halves,
    "Subset": _subset,
    "items": lambda x, y: (Items(lambda i: (x[i], y[i]), len(x)), None),
    "arrays": lambda x, y: (Items(lambda i: (x[i].numpy(), y[i]), len(x)), None),
    "turned arrays": lambda x, y: (
        Items(
            lambda i: (
                (x.numpy()[::-1][len(x) - 1 - i][..., ::-1][..., ::-1], y[i]) if x.dim() > 1 else (x[i].numpy(), y[i])
            ),
            len(x),
        ),
        None,
    ),
    "swapped arrays": lambda x, y: (
        Items(lambda i: (np.array(x[i].numpy(), x.numpy().dtype.newbyteorder(">")), y[i]), len(x)),
        None,
    ),
    "NumPy's numbers": lambda x, y: (Items(lambda i: (x.numpy()[i], y[i]), len(x)), None),
    "one tensor used again": lambda x, y: (_Same(x, y), None),
    "dicts": lambda x, y: ([{"x": a, "y": b} for a, b in zip(x, y, strict=True)], lambda item: (item["x"], item["y"])),
    "triples": lambda x, y: (
        [(b, "file", a) for a, b in zip(x, y, strict=True)],
        lambda item: (item[2], item[0]),
    ),
}


class _Same:
    """Gives each item in one and the same tensor."""

    def __init__(self, inputs: torch.Tensor, labels: list[Any]) -> None:
        self._inputs, self._labels, self._buffer = inputs, labels, inputs[0].clone()

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> Any:
        return self._buffer.copy_(self._inputs[index]), self._labels[index]


class _Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter([(torch.zeros(3), 1)])


def _raises(error: Exception) -> Any:
    raise error


def _with(x: torch.Tensor, value: float) -> torch.Tensor:
    x = x.to(torch.float32).clone()
    x.view(-1)[0] = value
    return x


BREAKS: Mapping[str, Callable[[torch.Tensor, list[Any], Draw], Any]] = {
    "empty": lambda x, y, draw: [],
    "a stream": lambda x, y, draw: _Stream(),
    "nothing": lambda x, y, draw: None,
    "a dict": lambda x, y, draw: {"x": x, "y": y},
    "a loader": lambda x, y, draw: torch.utils.data.DataLoader(list(zip(x, y, strict=True))),
    "inputs alone": lambda x, y, draw: list(x),
    "texts": lambda x, y, draw: [("some text", b) for b in y],
    "None": lambda x, y, draw: [(None, b) for b in y],
    "lists": lambda x, y, draw: [(x[i].tolist() if x.dim() > 1 else None, y[i]) for i in range(len(y))],
    "of several shapes": lambda x, y, draw: [(torch.zeros(1 + i % 2), b) for i, b in enumerate(y)],
    "of several types": lambda x, y, draw: [
        (torch.zeros(2, dtype=[torch.float32, torch.int64][i % 2]), b) for i, b in enumerate(y)
    ],
    "array of texts": lambda x, y, draw: [(np.array(["a", "b"]), b) for b in y],
    "array of objects": lambda x, y, draw: [(np.array([None, 1]), b) for b in y],
    "NaN": lambda x, y, draw: list(zip(_with(x, float("nan")), y, strict=True)),
    "infinity": lambda x, y, draw: Items(lambda i: (_with(x, float("inf"))[i], y[i]), len(y)),
    "sparse": lambda x, y, draw: [(torch.eye(3).to_sparse(), b) for b in y],
    "meta": lambda x, y, draw: [(torch.empty(3, device="meta"), b) for b in y],
    "longer than it is": lambda x, y, draw: Items(lambda i: [(x[j], y[j]) for j in range(len(y))][i], len(y) + 3),
    "labels that are drawn": lambda x, y, draw: Items(lambda i: (x[i], draw.random()), len(y)),
    "labels None": lambda x, y, draw: [(a, None) for a in x],
    "a label None": lambda x, y, draw: [(a, None if i == 3 else b) for i, (a, b) in enumerate(zip(x, y, strict=True))],
    "a label of another kind": lambda x, y, draw: [(a, "odd" if i == 3 else 1) for i, a in enumerate(x)],
    "labels dict": lambda x, y, draw: [(a, {"label": 1}) for a in x],
    "labels ragged": lambda x, y, draw: [(a, [1] * (1 + i % 2)) for i, a in enumerate(x)],
    "labels NaN": lambda x, y, draw: [(a, float("nan")) for a in x],
    "labels sets": lambda x, y, draw: [(a, {1}) for a in x],
    "labels meta": lambda x, y, draw: [(a, torch.empty((), device="meta")) for a in x],
    "labels beyond all": lambda x, y, draw: [(a, 10**30 + i) for i, a in enumerate(x)],
    "items that fail": lambda x, y, draw: Items(lambda i: _raises(OSError(f"no file {i}")), len(y)),
    "items without an end": lambda x, y, draw: Items(lambda i: _raises(IndexError("list index out of range")), len(y)),
    "three values": lambda x, y, draw: [(a, b, 1.0) for a, b in zip(x, y, strict=True)],
    "three tensors": lambda x, y, draw: TensorDataset(x, torch.arange(len(y)), torch.ones(len(y))),
    "text items": lambda x, y, draw: ["ab"] * len(y),
}
