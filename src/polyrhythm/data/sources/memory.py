"""Data that is already in memory: any pair of arrays, any torch Dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from polyrhythm.base.errors import UserError, unknown
from polyrhythm.base.streams import stream
from polyrhythm.data.collection import Collection
from polyrhythm.data.given import as_inputs
from polyrhythm.data.holdout import check_share, held_out
from polyrhythm.data.items import Adapt, check_lengths, labels_of
from polyrhythm.data.keys import Keys, columns_at, columns_of
from polyrhythm.data.labels import ClassLabels
from polyrhythm.data.preprocessing import Preprocessing
from polyrhythm.data.samples import ArraySamples, DatasetSamples
from polyrhythm.data.sources.exactness import same_in_float32
from polyrhythm.data.sources.images import channels_in_front
from polyrhythm.data.sources.scaling import SCALED, in_float32
from polyrhythm.data.sources.several import Packing, are_several, no_scaling, packed, structure_of_items
from polyrhythm.data.structured import Padding, Structure
from polyrhythm.data.targets import as_targets, column, meaning_of, padded_rows, strata
from polyrhythm.data.transforms import Augmentation, RandomCrop, RandomFlip

Arrays = tuple[Any, Any]


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
    padding: Padding | None = None,
    name: str = "arrays",
    reference: str = "",
    notes: tuple[str, ...] = (),
    features: Sequence[str] = (),
) -> Collection:
    """Any inputs [n, ...] with targets [n] or [n, C]: NumPy arrays, tensors or lists.

    Floats become float32, bytes (uint8) become float32 in [0, 1], other integers stay (tokens). Images with their
    channels last, [n, H, W, C] of 1, 3 or 4, become [n, C, H, W] with a note, and bytes [n, H, W] become [n, 1, H, W].

    A model may take several arrays: a mapping of them is given to it by name, `model(**arrays)`, a tuple in order,
    `model(*arrays)`. Of these, bytes stay bytes, and truth values truth values.

    Args:
        inputs: one row a sample; or several such arrays, in a mapping or a tuple; or sequences of different lengths.
        targets: classes (integers or text), 0/1 tags [n, C], or floats; for next_token tokens, a list of them for each
            text or [n, L], −100 where nothing is asked.
        test: (inputs, targets) to test on, or a share to hold out, spread over the classes, the same for every seed.
        task: "classification", "multilabel", "next_token", "regression" or "survival" (a time and an event of each
            sample, [n, 2]); None goes by the targets, and takes none for tokens or for survival.
        classes: the labels in the order of class numbers; None sorts those that occur.
        scaling: "none", or "train" for zero mean and unit variance of each channel or feature over the training
            samples of all clients together (which a real federation would have to compute first).
        augment: random crop and flip in training, for images [n, channels, H, W].
        columns: keys of the samples for natural clients, each [n]; with a share as `test` they are split along.
        test_columns: keys of the test samples, when they are given.
        padding: of sequences of different lengths, `pr.data.Padding(value=0)`.
        name: of the collection.
        reference: who made the data.
        notes: shown in the plan.
        features: names of the inputs in order, or of the tokens in order of their numbers; a real federation refuses
            nodes that have others.

    Raises:
        UserError: arrays that do not go together, or labels that fit no class.
    """
    if scaling not in ("none", "train"):
        raise unknown("scaling", scaling, ["none", "train"])
    structure: Structure | None = None
    if are_several(inputs, padding):
        inputs, test, structure = packed(inputs, test, padding)
        if scaling != "none" or augment:
            raise no_scaling("scaling" if scaling != "none" else "augment")
    if task == "next_token":
        targets, *others = padded_rows(targets, *([test[1]] if isinstance(test, (tuple, list)) else []))
        test = (test[0], others[0]) if isinstance(test, (tuple, list)) and others else test
    x, y = as_inputs(inputs), as_targets(targets)
    check_lengths(len(x), len(y))
    keys = columns_of(columns, len(x))
    if isinstance(test, (tuple, list)) and len(test) == 2:
        tx, ty = as_inputs(test[0]), as_targets(test[1])
        check_lengths(len(tx), len(ty))
        _check_same_kind(x, tx)
        test_keys, places = columns_of(test_columns, len(tx)), None
    else:
        check_share("test", test)
        labels = strata(y, task, named=classes is not None)
        out = held_out(np.zeros(len(y), dtype=np.int64), labels, test, stream(0, "split", "test"))
        if not out.any():
            raise no_test(f"test = {test!r} of {len(y):,} samples")
        places = np.flatnonzero(~out), np.flatnonzero(out)
        x, tx, y, ty = x[~out], x[out], y[~out], y[out]
        keys, test_keys = columns_at(keys, ~out), columns_at(keys, out)
    given, layout, held = x, tuple[str, ...](), dict[str, Any]()
    if structure is None:
        x, tx, layout = channels_in_front(x, tx)
        named = tuple(features) if x.shape[1:] == (len(features),) else ()
        wide = x
        x, tx, transforms, done = in_float32(x, tx, scaling=scaling == "train", columns=named, places=places)
        notes = (*notes, *same_in_float32(wide, x, named, scaling == "train"))
        held = {"transforms": transforms, "done": done}
    meaning = meaning_of(y, ty, task=task, classes=classes)
    augmentations: tuple[Augmentation, ...] = (RandomCrop(padding=4), RandomFlip()) if augment else ()
    return Collection(
        name=name,
        task=meaning.task,
        classes=meaning.classes,
        train=ArraySamples(torch.from_numpy(x), meaning.encode(y), augmentations=augmentations, **held),
        test=ArraySamples(torch.from_numpy(tx), meaning.encode(ty), **held),
        columns=keys | _bands(y, meaning.task, y),
        test_columns=test_keys | _bands(y, meaning.task, ty),
        reference=reference,
        notes=(*notes, *layout, *((SCALED,) if scaling == "train" else ()), *meaning.notes),
        features=tuple(features) if structure is None else (*features, *structure.words),
        preprocessing=None
        if structure is not None
        else Preprocessing.of_arrays(given, (*done, *transforms), shape=x.shape[1:]),
        labels=ClassLabels.of(y, meaning.classes),
        structure=structure,
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
    padding: Padding | None = None,
    name: str = "dataset",
    reference: str = "",
    features: Sequence[str] = (),
) -> Collection:
    """Any two torch Datasets with a length, read item by item at each access.

    Labels are those that the items give, since partitions, training and tests go by them. To know them every item is
    read once here, which takes as long as one pass over the data; what a data set says of itself in `targets` or
    `labels` is not believed, as a transform, a filter or a set around another may give something else. Only of a plain
    `TensorDataset` of two tensors, and of `Subset`s (`random_split`) and `ConcatDataset`s of such, the labels are known
    without. Where reading is slow, as of images in files, `targets` states the labels instead. In every case some
    hundred items are read once more here, and whenever an item is used its label must be the one that is known.

    An input may be a mapping of arrays, which a model is given by name, `model(**arrays)`, or a tuple of them, which it
    is given in order, `model(*arrays)`.

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
        padding: of sequences of different lengths, as in `arrays`; unless it says to which length, every item is read
            once more.
        name: of the collection.
        reference: who made the data.
        features: names of the inputs in order, or of the tokens in order of their numbers; a real federation refuses
            nodes that have others.

    Raises:
        UserError: not a dataset with a length, its items are not (input, target), or their labels are not as stated, or
            not the same in each read.
    """
    if isinstance(test, int | float):
        raise UserError(
            f"test = {test!r} for a data set",
            expected="a data set to test on",
            why="items may be augmented for training, and items that test must not be",
            fix="if nothing is augmented: train, test = torch.utils.data.random_split(data, [0.8, 0.2]), then both",
        )
    structure = structure_of_items(train, test, adapt, padding)
    adapt = adapt if structure is None else Packing(adapt, structure)
    labels = labels_of(train, adapt, targets)
    try:
        test_labels = labels_of(test, adapt, test_targets)
    except UserError as error:
        raise error.at("the test set") from error
    raw, raw_test = labels.values, test_labels.values
    meaning = meaning_of(raw, raw_test, task=task, classes=classes)
    keys, test_keys = columns_of(columns, len(raw)), columns_of(test_columns, len(raw_test))
    return Collection(
        name=name,
        task=meaning.task,
        classes=meaning.classes,
        train=DatasetSamples(train, adapt=adapt, encode=meaning.encode, augmented=augmented, labels=labels),
        test=DatasetSamples(test, adapt=adapt, encode=meaning.encode, labels=test_labels),
        columns=keys | _bands(raw, meaning.task, raw),
        test_columns=test_keys | _bands(raw, meaning.task, raw_test),
        reference=reference,
        notes=meaning.notes,
        features=tuple(features) if structure is None else (*features, *structure.words),
        labels=ClassLabels.of(raw, meaning.classes),
        structure=structure,
    )


def _bands(train: np.ndarray, task: str, targets: np.ndarray) -> dict[str, Keys]:
    """Ten bands of equal counts for single regression targets, so that label partitions can go by="target_band"."""
    train, targets = column(train), column(targets)
    if task != "regression" or train.ndim != 1:
        return {}
    edges = np.quantile(train.astype(np.float64), np.linspace(0.1, 0.9, 9))
    return {"target_band": Keys(np.arange(10), np.searchsorted(edges, targets, side="right").astype(np.int64))}


def _check_same_kind(train: np.ndarray, test: np.ndarray) -> None:
    """Refuses bytes beside floats: one would be divided by 255, and the other not."""
    kinds = ["bytes (uint8)" if of.dtype == np.uint8 else "floats" for of in (train, test)]
    if np.uint8 in (train.dtype, test.dtype) and "f" in (train.dtype.kind, test.dtype.kind):
        raise UserError(
            f"training inputs that are {kinds[0]}, and test inputs that are {kinds[1]}",
            expected="both of one type",
            why="bytes become floats in [0, 1] and floats stay, so the two would not be on one scale",
            fix="give both as bytes, or prepare both in the same way, such as x / 255",
        )


def no_test(found: str) -> UserError:
    """The error for a share that left nothing to test on."""
    return UserError(
        found,
        expected="at least one test sample",
        why="the model is tested on samples that nobody trained on",
        fix="a larger share, e.g. test=0.5, or a test set of its own in test=",
    )
