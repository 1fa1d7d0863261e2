"""NumPy `.npz` files with training and test arrays."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np

from polyrhythm.data.collection import Collection
from polyrhythm.data.sources.files import corrupt, existing
from polyrhythm.data.sources.images import channels_first
from polyrhythm.data.sources.memory import Arrays, arrays


@final
@dataclass(frozen=True, kw_only=True)
class NpzArrays:
    """The arrays of one file; the test arrays may be missing (None)."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    columns: Mapping[str, np.ndarray]
    test_columns: Mapping[str, np.ndarray]
    tested: bool


def npz(
    path: str | Path,
    *,
    test: float = 0.2,
    task: str | None = None,
    classes: Sequence[object] | None = None,
    scaling: str = "none",
    augment: bool = False,
    name: str = "",
    features: Sequence[str] = (),
) -> Collection:
    """One `.npz` file with x_train, y_train, x_test, y_test.

    x_val and y_val serve where there are no test arrays, and a share of the training samples where there are neither;
    x and y serve as training arrays. Any other NAME_train of the right length (with NAME_test) becomes a column for
    natural clients. Bytes are images: [n, H, W] or [n, H, W, C] become [n, C, H, W].

    Args:
        path: the file.
        test: share to hold out if the file has no test arrays.
        task: "classification", "multilabel" or "regression"; None goes by the targets.
        classes: the labels in the order of class numbers; None sorts those that occur.
        scaling: "none" (bytes still become [0, 1]), or "train" for zero mean and unit variance over all training
            samples.
        augment: random crop and flip in training, for images.
        name: of the collection; the file's name by default.
        features: names of the inputs in order, or of the tokens in order of their numbers; a real federation refuses
            nodes that have others.

    Raises:
        UserError: a damaged file, pickled objects in it, or arrays missing.

    Reference: the file's own.
    """
    place = existing(path, what="an .npz file")
    found = read_npz(place)
    x, tx = found.x_train, found.x_test
    if x.dtype == np.uint8 and x.ndim >= 3:
        x, tx = channels_first(x, str(place)), channels_first(tx, str(place))
    held: Arrays | float = (tx, found.y_test) if found.tested else test
    return arrays(
        x,
        found.y_train,
        test=held,
        task=task,
        classes=classes,
        scaling=scaling,
        augment=augment,
        columns=found.columns,
        test_columns=found.test_columns if found.tested else None,
        name=name or place.stem,
        features=features,
    )


def read_npz(place: Path) -> NpzArrays:
    """Reads the arrays of an .npz file by their usual names; without test arrays the test ones are empty."""
    try:
        # Opened here: NumPy leaves a file open that turns out not to be one of its own.
        with place.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            found = {key: stored[key] for key in stored.files}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error, AttributeError) as error:
        raise corrupt(place, f"cannot be read ({error})", "an .npz file of plain arrays") from None
    x, y = found.pop("x_train", found.pop("x", None)), found.pop("y_train", found.pop("y", None))
    tested = next((p for p in ("test", "val") if f"x_{p}" in found and f"y_{p}" in found), "")
    if x is None or y is None:
        raise corrupt(place, f"has no x_train and y_train, only {', '.join(found) or 'nothing'}", "x_train and y_train")
    tx, ty = (found.pop(f"x_{tested}"), found.pop(f"y_{tested}")) if tested else (x[:0], y[:0])
    keys = {k.removesuffix("_train"): v for k, v in found.items() if k.endswith("_train") and v.shape == (len(y),)}
    suffix = f"_{tested}"
    tests = {
        k.removesuffix(suffix): v for k, v in found.items() if tested and k.endswith(suffix) and v.shape == (len(ty),)
    }
    return NpzArrays(x_train=x, y_train=y, x_test=tx, y_test=ty, columns=keys, test_columns=tests, tested=bool(tested))
