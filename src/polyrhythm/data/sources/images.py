"""What all image sources share: byte images become a collection with named scaling, padding and augmentation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch

from polyrhythm.base.errors import UserError, unknown
from polyrhythm.data.collection import Collection
from polyrhythm.data.labels import ClassLabels, as_text, classes_of, encode
from polyrhythm.data.preprocessing import Preprocessing
from polyrhythm.data.samples import ArraySamples
from polyrhythm.data.transforms import Augmentation, Normalise, Pad, RandomCrop, RandomFlip, ToFloat, Transform

ImageScaling = Literal["unit", "half", "standard", "train"]
Statistics = tuple[tuple[float, ...], tuple[float, ...]]


def image_transforms(
    scaling: str,
    *,
    pad: int = 0,
    white: float = 255.0,
    standard: Statistics | None = None,
    train: np.ndarray | None = None,
) -> tuple[Transform, ...]:
    """The transforms of an image source.

    Args:
        scaling: "unit" gives [0, 1]; "half" (x - 0.5) / 0.5, so [-1, 1]; "standard" the data set's published channel
            mean and standard deviation; "train" the same computed from the training images.
        pad: pixels of black added on each side before scaling.
        white: the largest stored number.
        standard: published (means, standard deviations) of the channels, if there are any.
        train: training images [n, channels, height, width], for "train".
    """
    known = ["unit", "half", *(["standard"] if standard else []), *(["train"] if train is not None else [])]
    if scaling not in known:
        raise unknown("scaling", scaling, known)
    steps: list[Transform] = [Pad(amount=pad)] if pad else []
    steps.append(ToFloat(scale=white))
    if scaling == "half":
        steps.append(Normalise(mean=(0.5,), std=(0.5,)))
    elif scaling == "standard" and standard:
        steps.append(Normalise(mean=standard[0], std=standard[1]))
    elif scaling == "train" and train is not None:
        axes = (0, *range(2, train.ndim))
        mean, std = train.mean(axis=axes) / white, train.std(axis=axes) / white
        steps.append(Normalise(mean=tuple(mean.tolist()), std=tuple(np.where(std > 0, std, 1.0).tolist()), fitted=True))
    return tuple(steps)


def channels_first(images: np.ndarray, where: str) -> np.ndarray:
    """[n, H, W] or [n, H, W, 1 or 3] or [n, 1 or 3, H, W] as [n, channels, H, W]."""
    if images.ndim == 3:
        return images[:, None]
    if images.ndim == 4 and images.shape[1] in (1, 3):
        return images
    if images.ndim == 4 and images.shape[3] in (1, 3):
        return np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    raise UserError(
        f"{where}: images of shape {images.shape}",
        expected="[n, height, width], [n, height, width, 1 or 3] or [n, 1 or 3, height, width]",
        why="models read images as [channels, height, width]",
        fix="reshape the array",
    )


def channels_in_front(train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Arrays of any kind, those that are images as [n, channels, H, W], and what must be said of it.

    Images are bytes [n, H, W], and whatever is [n, H, W, C] with 1, 3 or 4 channels and more rows and columns.
    """
    if train.ndim == test.ndim == 3 and train.dtype == test.dtype == np.uint8:
        return train[:, None], test[:, None], ()
    if train.ndim != 4 or train.shape[1:] != test.shape[1:]:
        return train, test, ()
    _, height, width, channels = train.shape
    if channels not in (1, 3, 4) or min(height, width) <= 4:
        return train, test, ()
    train, test = (np.ascontiguousarray(part.transpose(0, 3, 1, 2)) for part in (train, test))
    return train, test, (f"inputs [n, {height}, {width}, {channels}] are images whose channels were put in front",)


def image_collection(
    name: str,
    train: tuple[np.ndarray, np.ndarray],
    test: tuple[np.ndarray, np.ndarray],
    *,
    transforms: Sequence[Transform],
    augment: bool = False,
    classes: Sequence[object] | None = None,
    class_names: Sequence[str] | None = None,
    reference: str = "",
    notes: tuple[str, ...] = (),
) -> Collection:
    """Builds a classification collection from images [n, channels, H, W] and labels [n].

    `classes` are the label values in class order (default: all that occur, sorted); `class_names` how to show them.
    """
    known = np.asarray(classes) if classes is not None else classes_of(train[1], test[1])
    names = tuple(class_names) if class_names is not None else tuple(as_text(c) for c in known)
    augmentations: tuple[Augmentation, ...] = (RandomCrop(padding=4), RandomFlip()) if augment else ()
    return Collection(
        name=name,
        task="classification",
        classes=names,
        train=ArraySamples(
            torch.from_numpy(train[0]), encode(train[1], known), transforms=transforms, augmentations=augmentations
        ),
        test=ArraySamples(torch.from_numpy(test[0]), encode(test[1], known), transforms=transforms),
        reference=reference,
        notes=notes,
        preprocessing=Preprocessing.of_arrays(train[0], transforms),
        labels=ClassLabels.of(train[1], names),
    )
