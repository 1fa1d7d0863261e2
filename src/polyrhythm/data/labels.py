"""Labels of any kind become class numbers once, over the whole data set; the original labels are kept for output."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from polyrhythm.base.errors import UserError


def as_text(label: object) -> str:
    """A label as it is shown: "3", "cat", "True"; whole floats without the ".0" that a missing cell brings."""
    if isinstance(label, bytes):
        return label.decode(errors="backslashreplace")  # so that two that are no text stay two
    if isinstance(label, (float, np.floating)) and float(label).is_integer():
        return str(int(label))
    return str(label)


@final
@dataclass(frozen=True, kw_only=True)
class ClassLabels:
    """Labels as they were given, in the order of class numbers; plain data, for a record.

    Args:
        values: numbers, truth values or text; of bytes what `surrogateescape` makes of them.
        kind: what NumPy calls their type, such as "float32"; "str" for text, "bytes" for bytes.
    """

    values: tuple[Any, ...]
    kind: str

    @classmethod
    def of(cls, targets: np.ndarray, classes: Sequence[str]) -> ClassLabels | None:
        """Those that class names stand for; None where there are no classes.

        Args:
            targets: as they were given, [n], [n, 1], or [n, C] with a 1 for the class or for each tag.
            classes: as text.
        """
        if not classes:
            return None
        flat = targets[:, 0] if targets.shape[1:] == (1,) else targets
        if flat.dtype.kind == "S":
            known = {as_text(label): label for label in np.unique(flat).tolist()}
            given = [known.get(text, text.encode()) for text in classes]
            return cls(values=tuple(label.decode(errors="surrogateescape") for label in given), kind="bytes")
        numbers = _numbers(classes, flat.dtype.kind if flat.ndim == 1 else "i")
        if flat.dtype.kind not in "biuf" or _texts(numbers) != [*classes]:
            return cls(values=tuple(classes), kind="str")
        held = numbers.astype(flat.dtype) if flat.ndim == 1 else numbers
        # A class that no sample has may not fit the type of the others.
        return cls(values=tuple(numbers.tolist()), kind=str((held if _texts(held) == [*classes] else numbers).dtype))

    def as_array(self) -> np.ndarray:
        """Them, [C]."""
        if self.kind == "bytes":
            return np.array([text.encode(errors="surrogateescape") for text in self.values])
        return np.array(self.values, dtype=self.kind)


def _numbers(texts: Sequence[str], kind: str) -> np.ndarray:
    """What texts are the text of, of one kind of numbers; nothing where some are of none."""
    try:
        return np.array(
            [text == "True" if kind == "b" else float(text) if kind == "f" else int(text) for text in texts]
        )
    except (ValueError, OverflowError):
        return np.empty(0)


def _texts(labels: np.ndarray) -> list[str]:
    return [as_text(label) for label in labels]


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
