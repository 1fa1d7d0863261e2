"""Labels of any kind become class numbers once, over the whole data set; the original labels are kept for output."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from polyrhythm.base.errors import UserError


def as_text(label: object) -> str:
    """A label as it is shown: "3", "cat", "True"; whole floats without the ".0" that a missing cell brings."""
    if isinstance(label, bytes):
        return label.decode(errors="replace")
    if isinstance(label, (float, np.floating)) and float(label).is_integer():
        return str(int(label))
    return str(label)


def classes_of(*parts: Iterable[object]) -> np.ndarray:
    """The distinct labels of all parts together, sorted: numbers by size, text by its letters."""
    return np.unique(np.concatenate([np.asarray(part) for part in parts]))


def encode(labels: np.ndarray, classes: np.ndarray | Sequence[object]) -> Tensor:
    """Class numbers [n] int64 of labels [n], by their place in `classes`.

    Raises:
        UserError: a label that is none of the classes.
    """
    known = np.asarray(classes)
    order = np.argsort(known, kind="stable")
    place = np.searchsorted(known, labels, sorter=order)
    numbers = order[np.minimum(place, len(known) - 1)]
    strange = known[numbers] != labels
    if strange.any():
        raise UserError(
            f"label {as_text(labels[strange][0])!r} in {int(strange.sum()):,} samples",
            expected=f"one of the {len(known)} classes {', '.join(as_text(c) for c in known[:20])}",
            why="every label must stand for one of the model's outputs",
            fix="name all classes, in the order you want, in classes=",
        )
    return torch.from_numpy(numbers.astype(np.int64))


def by_first_appearance(codes: np.ndarray) -> np.ndarray:
    """Renumbers codes [n] by the order in which they first appear: the same whatever the labels are called."""
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse.reshape(-1)]
