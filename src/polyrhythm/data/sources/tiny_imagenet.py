"""Tiny-ImageNet: the folder as it is distributed, or one `.npz` file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from polyrhythm.data.collection import Collection
from polyrhythm.data.labels import as_text, classes_of
from polyrhythm.data.sources.files import content, corrupt, existing
from polyrhythm.data.sources.images import Statistics, channels_first, image_collection, image_transforms
from polyrhythm.data.sources.npz import read_npz
from polyrhythm.data.sources.pictures import read_pictures

REFERENCE = 'Le and Yang, "Tiny ImageNet Visual Recognition Challenge", Stanford CS 231N, 2015'
STATISTICS: Statistics = ((0.4802, 0.4481, 0.3975), (0.2770, 0.2691, 0.2821))


def tiny_imagenet(folder: str | Path, *, scaling: str = "standard", pad: int = 0, augment: bool = False) -> Collection:
    """110,000 colour pictures of 64 x 64 pixels, 200 classes; 100,000 to train, the 10,000 validation ones to test.

    Args:
        folder: the unpacked tiny-imagenet-200 (train/WNID/images, val/val_annotations.txt), any subset of its classes,
            or an .npz file with x_train, y_train, x_val, y_val. Reading JPEG files needs Pillow.
        scaling: "standard" the published channel mean and standard deviation, "half" [-1, 1], "unit" [0, 1].
        pad: pixels of black added on each side.
        augment: random crop (4 pixels) and flip in training.

    Reference: Le and Yang, "Tiny ImageNet Visual Recognition Challenge", 2015.
    """
    place = existing(folder, what="the unpacked folder tiny-imagenet-200, or an .npz file")
    if place.is_file():
        found = read_npz(place)
        if not found.tested:
            raise corrupt(place, "has no test arrays", "x_train, y_train, x_val and y_val")
        train = (channels_first(found.x_train, str(place)), found.y_train)
        test = (channels_first(found.x_test, str(place)), found.y_test)
        classes = [as_text(c) for c in classes_of(train[1], test[1])]
    else:
        place = place / "tiny-imagenet-200" if (place / "tiny-imagenet-200").is_dir() else place
        train, test, classes = _read_folder(place)
    return image_collection(
        "tiny-imagenet",
        train,
        test,
        transforms=image_transforms(scaling, pad=pad, standard=STATISTICS),
        augment=augment,
        class_names=classes,
        reference=REFERENCE,
    )


def _read_folder(place: Path) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray], list[str]]:
    wnids = sorted(p.name for p in (place / "train").glob("*") if p.is_dir())
    annotations = place / "val" / "val_annotations.txt"
    if not wnids or not annotations.is_file():
        raise corrupt(place, "has no train/WNID folders or no val/val_annotations.txt", "the folder as distributed")
    number = {wnid: i for i, wnid in enumerate(wnids)}
    files = [(path, number[w]) for w in wnids for path in sorted((place / "train" / w / "images").glob("*.JPEG"))]
    rows = [line.split("\t") for line in content(annotations).decode().splitlines() if line.strip()]
    # A subset of the classes may lie beside the full annotations.
    tests = [(place / "val" / "images" / row[0], number[row[1]]) for row in rows if len(row) > 1 and row[1] in number]
    return _images(files, place), _images(tests, place), _words(place, wnids)


def _images(files: Sequence[tuple[Path, int]], place: Path) -> tuple[np.ndarray, np.ndarray]:
    if not files:
        raise corrupt(place, "has no images", "train/WNID/images/*.JPEG and val/images")
    return read_pictures([path for path, _ in files])[0], np.array([label for _, label in files], dtype=np.int64)


def _words(place: Path, wnids: list[str]) -> list[str]:
    listed = place / "words.txt"
    if not listed.is_file():
        return wnids
    words = dict(line.split("\t", 1) for line in content(listed).decode().splitlines() if "\t" in line)
    return [words.get(w, w).split(",")[0] for w in wnids]
