"""MNIST by the writer of each digit."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from polyrhythm.base.streams import stream
from polyrhythm.data.collection import Collection
from polyrhythm.data.holdout import check_share, held_out
from polyrhythm.data.sources.files import content, corrupt, existing, located
from polyrhythm.data.sources.idx import read_idx
from polyrhythm.data.sources.memory import arrays
from polyrhythm.data.sources.npz import read_npz

REFERENCE = 'Yadav and Bottou, "Cold Case: The Lost MNIST Digits", NeurIPS 2019 (QMNIST), after LeCun et al., 1998'
IMAGES = ("qmnist-train-images-idx3-ubyte", "train-images-idx3-ubyte")
LABELS = ("qmnist-train-labels-idx2-int",)
WHAT = "qmnist-train-images-idx3-ubyte and qmnist-train-labels-idx2-int, plain or .gz, in a folder"
_MOST = 2**26
_CLASS, _WRITER = 0, 2
"""Columns of QMNIST's labels."""


def mnist_by_writer(path: str | Path, *, test: float = 0.2) -> Collection:
    """MNIST's 60,000 training digits by their 539 writers: natural clients; 10 classes.

    Reads QMNIST's training images and labels, which say who wrote what, in a folder; or an .npz file with x_train,
    y_train and writer_train. MNIST's own test digits are by other writers, so a share of each writer's digits tests,
    spread over the digits, the same for every seed. Partition with `by_column(column="writer")`.

    Args:
        path: of the folder or the .npz file.
        test: share of each writer's digits that test.

    Raises:
        UserError: no such files, or images and labels that do not go together.

    Reference: Yadav and Bottou, "Cold Case: The Lost MNIST Digits", NeurIPS 2019.
    """
    check_share("test", test)
    place = existing(path, what=WHAT)
    if place.is_dir():
        files = [located([name + end for name in names for end in ("", ".gz")], [place]) for names in (IMAGES, LABELS)]
        if files[0] is None or files[1] is None:
            raise corrupt(place, f"has no {(IMAGES if files[0] is None else LABELS)[0]}", WHAT)
        images, labels = read_idx(files[0]), read_integers(files[1])
        if labels.ndim != 2 or labels.shape[1] <= _WRITER or len(labels) != len(images) or images.ndim != 3:
            raise corrupt(place, f"labels of shape {labels.shape} for images {images.shape}", "a row for each image")
        digit, writer = labels[:, _CLASS].astype(np.int64), labels[:, _WRITER].astype(np.int64)
    else:
        found = read_npz(place)
        if "writer" not in found.columns or found.x_train.dtype != np.uint8 or found.x_train.ndim != 3:
            raise corrupt(place, "has no writer_train, or no images of bytes", "x_train, y_train and writer_train")
        images, digit, writer = found.x_train, found.y_train, found.columns["writer"]
    if digit.ndim != 1 or not len(digit) or digit.min() < 0 or digit.max() > 9:
        raise corrupt(place, "has labels that are no digits", "digits 0 to 9")
    groups = np.unique(writer, return_inverse=True)[1]
    out = held_out(groups, digit.astype(np.int64), test, stream(0, "split", "writers"))
    return arrays(
        images[~out],
        digit[~out],
        test=(images[out], digit[out]),
        classes=range(10),
        columns={"writer": writer[~out]},
        test_columns={"writer": writer[out]},
        name="mnist-by-writer",
        reference=REFERENCE,
        notes=("a share of each writer's digits tests, in place of MNIST's test digits by other writers",),
    )


def read_integers(path: Path) -> np.ndarray:
    """An IDX file of integers with two axes, plain or .gz. [n, columns] int32

    Raises:
        UserError: another file, or one that is cut off.
    """
    raw = content(path, _MOST)
    if len(raw) < 12 or raw[:4] != b"\x00\x00\x0c\x02":
        raise corrupt(path, f"begins with {raw[:4].hex() or 'nothing'}", "an IDX file of integers: 00000c02")
    rows, columns = struct.unpack(">2I", raw[4:12])
    if len(raw) != 12 + 4 * rows * columns or not rows or not columns:
        raise corrupt(path, f"has {len(raw):,} bytes for shape {rows:,} by {columns:,}", "four bytes for each number")
    return np.frombuffer(raw, dtype=">i4", offset=12).reshape(rows, columns).astype(np.int32)
