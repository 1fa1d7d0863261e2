"""Data that is already in memory: any pair of arrays, any torch Dataset."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from polyrhythm.base.errors import UserError, unknown
from polyrhythm.base.streams import stream
from polyrhythm.data.collection import Collection, Task
from polyrhythm.data.holdout import check_share, held_out
from polyrhythm.data.items import Adapt, check_lengths, labels_of
from polyrhythm.data.keys import Keys, columns_at, columns_of
from polyrhythm.data.labels import as_text, classes_of, encode
from polyrhythm.data.preprocessing import Preprocessing
from polyrhythm.data.samples import ArraySamples, DatasetSamples
from polyrhythm.data.transforms import Augmentation, Normalise, RandomCrop, RandomFlip, ToFloat, Transform

Arrays = tuple[Any, Any]


class Meaning(NamedTuple):
    """What targets mean: the task, its classes as text, and how raw targets become a tensor."""

    task: Task
    classes: tuple[str, ...]
    encode: Callable[[np.ndarray], Tensor]


def arrays(
    inputs: Any,
    targets: Any,
    *,
    test: Arrays | float = 0.2,
    task: str | None = None,
    classes: Sequence[object] | None = None,
    scaling: str = "none",
    augment: bool = False,
    columns: Mapping[str, Any] | None = None,
    test_columns: Mapping[str, Any] | None = None,
    name: str = "arrays",
    reference: str = "",
    notes: tuple[str, ...] = (),
) -> Collection:
    """Any inputs [n, ...] with targets [n] or [n, C]: NumPy arrays, tensors or lists.

    Floats become float32, bytes (uint8) become float32 in [0, 1], other integers stay (tokens).

    Args:
        inputs: one row a sample.
        targets: classes (integers or text), 0/1 tags [n, C], or floats.
        test: (inputs, targets) to test on, or a share to hold out, spread over the classes, the same for every seed.
        task: "classification", "multilabel" or "regression"; None goes by the targets.
        classes: the labels in the order of class numbers; None sorts those that occur.
        scaling: "none", or "train" for zero mean and unit variance of each channel or feature over the training
            samples of all clients together (which a real federation would have to compute first).
        augment: random crop and flip in training, for images [n, channels, H, W].
        columns: keys of the samples for natural clients, each [n]; with a share as `test` they are split along.
        test_columns: keys of the test samples, when they are given.
        name: of the collection.
        reference: who made the data.
        notes: shown in the plan.

    Raises:
        UserError: arrays that do not go together, or labels that fit no class.
    """
    x, y = _inputs(inputs), _targets(targets)
    check_lengths(len(x), len(y))
    keys, test_keys = columns_of(columns), columns_of(test_columns)
    if isinstance(test, tuple):
        tx, ty = _inputs(test[0]), _targets(test[1])
        check_lengths(len(tx), len(ty))
    else:
        check_share("test", test)
        labels = np.unique(y, return_inverse=True)[1] if y.ndim == 1 and y.dtype.kind != "f" else None
        out = held_out(np.zeros(len(y), dtype=np.int64), labels, test, stream(0, "split", "test"))
        if not out.any():
            raise _no_test(f"test = {test!r} of {len(y):,} samples")
        x, tx, y, ty = x[~out], x[out], y[~out], y[out]
        keys, test_keys = columns_at(keys, ~out), columns_at(keys, out)
    meaning = meaning_of(y, ty, task=task, classes=classes)
    transforms = _scaling(scaling, x)
    augmentations: tuple[Augmentation, ...] = (RandomCrop(padding=4), RandomFlip()) if augment else ()
    if scaling == "train":
        notes = (*notes, "inputs are scaled by the mean and standard deviation of all training samples")
    return Collection(
        name=name,
        task=meaning.task,
        classes=meaning.classes,
        train=ArraySamples(torch.from_numpy(x), meaning.encode(y), transforms=transforms, augmentations=augmentations),
        test=ArraySamples(torch.from_numpy(tx), meaning.encode(ty), transforms=transforms),
        columns=keys | _bands(y, meaning.task, y),
        test_columns=test_keys | _bands(y, meaning.task, ty),
        reference=reference,
        notes=notes,
        preprocessing=Preprocessing.of_arrays(x, y, meaning.classes, transforms),
    )


def dataset(
    train: Any,
    test: Any,
    *,
    adapt: Adapt | None = None,
    targets: Any = None,
    test_targets: Any = None,
    task: str | None = None,
    classes: Sequence[object] | None = None,
    augmented: bool = False,
    columns: Mapping[str, Any] | None = None,
    test_columns: Mapping[str, Any] | None = None,
    name: str = "dataset",
    reference: str = "",
) -> Collection:
    """Any two torch Datasets with a length, read item by item at each access.

    Labels are those that the items give, since partitions, training and tests go by them. To know them every item is
    read once here, which takes as long as one pass over the data; what a data set says of itself in `targets` or
    `labels` is not believed, as a transform, a filter or a set around another may give something else. Only of a plain
    `TensorDataset` of two tensors, and of `Subset`s (`random_split`) and `ConcatDataset`s of such, the labels are known
    without. Where reading is slow, as of images in files, `targets` states the labels instead. In every case some
    hundred items are read once more here, and whenever an item is used its label must be the one that is known.

    Args:
        train: maps 0 .. n - 1 to (input, target).
        test: likewise, with the transforms meant for tests.
        adapt: turns an item of another form into (input, target), e.g. lambda item: (item["image"], item["label"]).
        targets: the labels of the training items as they are given, after `adapt` and all transforms, [n] or [n, C];
            None to read them.
        test_targets: those of the test items.
        task: "classification", "multilabel" or "regression"; None goes by the targets.
        classes: the labels in the order of class numbers; None sorts those that occur.
        augmented: True if the training set's own transforms draw from torch's default generator.
        columns: keys of the training samples for natural clients, each [n].
        test_columns: keys of the test samples.
        name: of the collection.
        reference: who made the data.

    Raises:
        UserError: not a dataset with a length, its items are not (input, target), or their labels are not as stated, or
            not the same in each read.
    """
    labels, test_labels = (labels_of(items, adapt, given) for items, given in ((train, targets), (test, test_targets)))
    raw, raw_test = labels.values, test_labels.values
    for part in (raw, raw_test) if task is None else ():
        _check_plain(part, named=classes is not None)
    meaning = meaning_of(raw, raw_test, task=task, classes=classes)
    keys, test_keys = columns_of(columns), columns_of(test_columns)
    return Collection(
        name=name,
        task=meaning.task,
        classes=meaning.classes,
        train=DatasetSamples(train, adapt=adapt, encode=meaning.encode, augmented=augmented, labels=labels),
        test=DatasetSamples(test, adapt=adapt, encode=meaning.encode, labels=test_labels),
        columns=keys | _bands(raw, meaning.task, raw),
        test_columns=test_keys | _bands(raw, meaning.task, raw_test),
        reference=reference,
    )


def meaning_of(
    train: np.ndarray, test: np.ndarray, *, task: str | None = None, classes: Sequence[object] | None = None
) -> Meaning:
    """Finds out what raw targets mean. Classes are those of train and test together.

    Raises:
        UserError: one-hot rows (ambiguous), or a task that does not fit the targets.
    """
    kind = task or _task_of(train)
    if kind not in ("classification", "multilabel", "regression"):
        raise unknown("task", kind, ["classification", "multilabel", "regression"])
    if kind == "regression":
        if train.dtype.kind not in "buif" or train.ndim > 2:
            raise _unfit(kind, train, "numbers, [n] or [n, d]")
        return Meaning("regression", (), lambda raw: torch.from_numpy(_floats(raw)))
    if kind == "multilabel":
        if train.ndim != 2 or train.dtype.kind not in "buif" or train.shape[1:] != test.shape[1:]:
            raise _unfit(kind, train, "0/1 tags [n, C]")
        names = classes if classes is not None else range(train.shape[1])
        return Meaning("multilabel", tuple(as_text(c) for c in names), lambda raw: torch.from_numpy(_floats(raw)))
    if train.ndim != 1:
        raise _unfit(kind, train, "one label a sample, [n]")
    known = np.asarray(classes) if classes is not None else classes_of(train, test)
    return Meaning("classification", tuple(as_text(c) for c in known), lambda raw: encode(raw, known))


def _task_of(targets: np.ndarray) -> str:
    if targets.ndim == 1:
        return "regression" if targets.dtype.kind == "f" else "classification"
    binary = targets.ndim == 2 and bool(np.isin(targets, (0, 1)).all())
    if binary and bool((targets.sum(axis=1) == 1).all()):
        raise UserError(
            f"targets of shape {targets.shape} with exactly one 1 in every row",
            expected="class numbers [n], or task='multilabel' said in words",
            why="one-hot labels and tags look the same but are trained and scored differently",
            fix="targets.argmax(axis=1) gives class numbers",
        )
    return "multilabel" if binary else "regression"


def _check_plain(labels: np.ndarray, *, named: bool) -> None:
    """Refuses labels that would be taken for something else than they are, where nobody says what they are."""
    if not named and labels.dtype.kind in "iu" and (left_out := int((labels == _LEFT_OUT).sum())):
        raise UserError(
            f"label {_LEFT_OUT} in {left_out:,} items",
            expected="a class for each item",
            why="torch's losses leave such items out (ignore_index), and here it would be a class of its own",
            fix="leave these items out, e.g. with a Subset; or name all classes in classes=, if it is one",
        )
    if labels.dtype.kind != "f" and labels.shape[1:] == (1,):
        raise UserError(
            f"labels of {labels.dtype} that are rows of one element, {labels[0].tolist()!r} for instance",
            expected="class numbers without an axis of their own, or task='multilabel' or 'regression' said in words",
            why="one class number, one tag and one number to predict look the same, and are trained differently",
            fix="give class numbers, e.g. with adapt=lambda item: (item[0], item[1].item())",
        )
    if labels.dtype.kind == "f" and labels.ndim == 2 and labels.shape[1] > 1 and _are_shares(labels):
        raise UserError(
            f"labels of shape {labels.shape} that are shares of {labels.shape[1]} classes",
            expected="class numbers, or task='regression' said in words",
            why="smoothed labels and numbers to predict look the same, and are trained and scored differently",
            fix="give class numbers, and smooth in the loss: Experiment(task=pr.task('classification', smoothing=0.1))",
        )


_LEFT_OUT = -100


def _are_shares(labels: np.ndarray) -> bool:
    """Whether each row has no negative numbers and adds up to 1, and they are not all 0 or 1."""
    whole = bool(np.isclose(labels.sum(axis=1), 1.0, atol=1e-3).all()) and bool((labels >= 0).all())
    return whole and not bool(np.isin(labels, (0, 1)).all())


def _inputs(values: Any) -> np.ndarray:
    array = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    if array.dtype.kind not in "buif" or array.ndim < 1:
        raise UserError(
            f"inputs of {array.dtype} and shape {array.shape}",
            expected="numbers in one array, one row a sample",
            why="inputs of different shapes or of text cannot be stacked into batches",
            fix="make all samples one shape, or give a torch Dataset to `dataset(...)`",
        )
    if array.dtype.kind == "f":
        # The sum is NaN or infinite where any entry is: no second array of the inputs' size.
        if not np.isfinite(array.sum(dtype=np.float64)):
            raise UserError(
                f"{int((~np.isfinite(array)).sum()):,} inputs that are NaN or infinite",
                expected="finite numbers",
                why="one of them makes every weight it touches NaN",
                fix="drop those samples or fill the cells",
            )
        return array.astype(np.float32, copy=False)
    return array if array.dtype == np.uint8 else array.astype(np.int64)


def _targets(values: Any) -> np.ndarray:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)


def _floats(raw: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(raw, dtype=np.float32)


def _scaling(scaling: str, train: np.ndarray) -> tuple[Transform, ...]:
    if scaling not in ("none", "train"):
        raise unknown("scaling", scaling, ["none", "train"])
    steps: tuple[Transform, ...] = (ToFloat(scale=255.0),) if train.dtype == np.uint8 else ()
    if scaling == "train":
        axes = (0, *range(2, train.ndim))
        scale = 255.0 if train.dtype == np.uint8 else 1.0
        mean, std = (
            np.atleast_1d(train.mean(axis=axes, dtype=np.float64)),
            np.atleast_1d(train.std(axis=axes, dtype=np.float64)),
        )
        # A constant feature has std 0: divided by 1 it becomes all 0 in place of NaN.
        std = np.where(std > 1e-12 * np.maximum(np.abs(mean), 1.0), std, scale)
        steps = (*steps, Normalise(mean=tuple((mean / scale).tolist()), std=tuple((std / scale).tolist())))
    return steps


def _bands(train: np.ndarray, task: str, targets: np.ndarray) -> dict[str, Keys]:
    """Ten bands of equal counts for single regression targets, so that label partitions can go by="target_band"."""
    if task != "regression" or train.ndim != 1:
        return {}
    edges = np.quantile(train.astype(np.float64), np.linspace(0.1, 0.9, 9))
    return {"target_band": Keys(np.arange(10), np.searchsorted(edges, targets, side="right").astype(np.int64))}


def _unfit(task: str, targets: np.ndarray, expected: str) -> UserError:
    return UserError(
        f"targets of {targets.dtype} and shape {targets.shape} for {task}",
        expected=expected,
        why="the loss and the metrics follow from the task",
        fix="give another task=, or targets of that form",
    )


def _no_test(found: str) -> UserError:
    return UserError(
        found,
        expected="at least one test sample",
        why="the model is tested on samples that nobody trained on",
        fix="a larger share, e.g. test=0.2, or test=(inputs, targets)",
    )
