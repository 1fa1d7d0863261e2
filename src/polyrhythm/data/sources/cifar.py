"""CIFAR-10 and CIFAR-100: the official Python archives, unpacked or not, or one `.npz` file."""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np

from polyrhythm.base.errors import unknown
from polyrhythm.data.collection import Collection
from polyrhythm.data.labels import as_text
from polyrhythm.data.sources.files import Download, cache_folder, content, corrupt, existing, fetched, located, opened
from polyrhythm.data.sources.images import Statistics, channels_first, image_collection, image_transforms
from polyrhythm.data.sources.npz import read_npz
from polyrhythm.data.sources.pickles import unpickled

REFERENCE = 'Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009'
CIFAR10 = Download(
    "cifar-10-python.tar.gz",
    ("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",),
    "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
)
CIFAR100 = Download(
    "cifar-100-python.tar.gz",
    ("https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",),
    "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
)
STATISTICS10: Statistics = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
STATISTICS100: Statistics = ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))
CLASSES10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

LARGEST = 200_000_000
"""Bytes of a file in an archive; the largest official one has 155 million."""
LARGEST_ARCHIVE = 400_000_000
"""Bytes of all files in an archive; the official ones have 186 million."""

Parts = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
Reader = Callable[[str], tuple[bytes, Path]]


def cifar10(
    folder: str | Path | None = None, *, scaling: str = "standard", pad: int = 0, augment: bool = False
) -> Collection:
    """60,000 colour pictures of 32 x 32 pixels, 10 classes; 50,000 to train, 10,000 to test.

    Args:
        folder: the unpacked archive (or the folder that holds it), cifar-10-python.tar.gz, or an .npz file with
            x_train, y_train, x_test, y_test; else the cache is looked into, then the archive is downloaded.
        scaling: "standard" the published channel mean and standard deviation, "half" [-1, 1], "unit" [0, 1].
        pad: pixels of black added on each side.
        augment: random crop (4 pixels) and flip in training.

    Reference: Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009.
    """
    batches = ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5")
    (x, y, tx, ty), names = _load(
        folder, CIFAR10, "cifar-10-batches-py", batches, "test_batch", "labels", ("batches.meta", "label_names")
    )
    return image_collection(
        "cifar10",
        (x, y),
        (tx, ty),
        transforms=image_transforms(scaling, pad=pad, standard=STATISTICS10),
        augment=augment,
        classes=range(10),
        class_names=names or CLASSES10,
        reference=REFERENCE,
    )


def cifar100(
    folder: str | Path | None = None,
    *,
    labels: str = "fine",
    scaling: str = "standard",
    pad: int = 0,
    augment: bool = False,
) -> Collection:
    """60,000 colour pictures of 32 x 32 pixels, 100 classes (or 20 coarse ones); 50,000 to train, 10,000 to test.

    Args:
        folder: the unpacked archive (or the folder that holds it), cifar-100-python.tar.gz, or an .npz file with
            x_train, y_train, x_test, y_test; else the cache is looked into, then the archive is downloaded.
        labels: "fine" (100 classes) or "coarse" (20 classes).
        scaling: "standard" the published channel mean and standard deviation, "half" [-1, 1], "unit" [0, 1].
        pad: pixels of black added on each side.
        augment: random crop (4 pixels) and flip in training.

    Reference: Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009.
    """
    number = {"fine": 100, "coarse": 20}
    if labels not in number:
        raise unknown("labels", labels, number, where="cifar100")
    (x, y, tx, ty), names = _load(
        folder, CIFAR100, "cifar-100-python", ("train",), "test", f"{labels}_labels", ("meta", f"{labels}_label_names")
    )
    return image_collection(
        "cifar100",
        (x, y),
        (tx, ty),
        transforms=image_transforms(scaling, pad=pad, standard=STATISTICS100),
        augment=augment,
        classes=range(number[labels]),
        class_names=names or [str(i) for i in range(number[labels])],
        reference=REFERENCE,
    )


def _load(
    folder: str | Path | None,
    download: Download,
    inside: str,
    batches: tuple[str, ...],
    test: str,
    key: str,
    meta: tuple[str, str],
) -> tuple[Parts, list[str]]:
    place = (
        None if folder is None else existing(folder, what=f"a folder with {inside}, {download.name}, or an .npz file")
    )
    if place is not None and place.is_file() and place.suffix == ".npz":
        found = read_npz(place)
        return (
            channels_first(found.x_train, str(place)),
            found.y_train.astype(np.int64),
            channels_first(found.x_test, str(place)),
            found.y_test.astype(np.int64),
        ), []
    read = _reader(place, download, inside, test, {*batches, test, meta[0]})
    train = [_batch(*read(name), key) for name in batches]
    x, y = np.concatenate([images for images, _ in train]), np.concatenate([labels for _, labels in train])
    tx, ty = _batch(*read(test), key)
    raw, path = read(meta[0])
    names = _field(unpickled(raw, path), meta[1], path)
    if not isinstance(names, list) or not all(isinstance(name, (bytes, str)) for name in names):
        raise corrupt(path, f"its {meta[1]} are no plain list of text", "the one of the official archive")
    return (x, y, tx, ty), [as_text(name) for name in names]


def _reader(place: Path | None, download: Download, inside: str, probe: str, wanted: set[str]) -> Reader:
    """How to read one file of the archive by its name."""
    unpacked, archive = _found(place, download, inside, probe)
    if unpacked is not None:
        return lambda name: (content(unpacked / name), unpacked / name)
    if archive is None and place is not None:
        raise corrupt(place, f"holds neither {inside} nor {download.name}", f"the official archive {download.name}")
    archive = archive or fetched(download, cache_folder("cifar"), data=download.name.split("-python")[0])
    members = _members(archive, wanted)

    def read(name: str) -> tuple[bytes, Path]:
        if name not in members:
            raise corrupt(archive, f"has no {name}", f"the official archive {download.name}")
        return members[name], archive / name

    return read


def _found(place: Path | None, download: Download, inside: str, probe: str) -> tuple[Path | None, Path | None]:
    """The unpacked archive and the packed one, each if it is there."""
    root = cache_folder("cifar") if place is None else place
    unpacked = next((folder for folder in (root, root / inside) if (folder / probe).is_file()), None)
    return unpacked, root if root.is_file() else located([download.name], [root])


def at_hand(name: Literal["cifar10", "cifar100"]) -> bool:
    """Whether a data set is in the cache. Nothing is read or fetched."""
    wanted = (
        (CIFAR10, "cifar-10-batches-py", "test_batch") if name == "cifar10" else (CIFAR100, "cifar-100-python", "test")
    )
    return any(_found(None, *wanted))


def _members(archive: Path, wanted: set[str]) -> dict[str, bytes]:
    """Some files of an archive by their last name; read into memory and never unpacked, so wherever they would go."""
    found, total = {}, 0
    try:
        with opened(archive) as file, tarfile.open(fileobj=file, mode="r:") as tar:
            for member in tar:
                total += member.size  # as its header says, before anything of it is read
                if member.size > LARGEST or total > LARGEST_ARCHIVE:
                    has = f"{member.size:,} bytes" if member.size > LARGEST else f"with those before {total:,} bytes"
                    raise corrupt(archive, f"{member.name[:100]} in it has {has}", f"at most {LARGEST:,} in a file")
                name = Path(member.name).name
                held = tar.extractfile(member) if member.isfile() and name in wanted else None  # no links
                if held is not None:
                    found[name] = held.read()
            while file.read(2**20):  # to its end, where the sum over all of it stands
                pass
            return found
    except (tarfile.TarError, EOFError, OSError, zlib.error, MemoryError, OverflowError) as error:
        raise corrupt(archive, f"cannot be unpacked ({error})") from None


def _batch(raw: bytes, path: Path, key: str) -> tuple[np.ndarray, np.ndarray]:
    batch = unpickled(raw, path)
    images, labels = _field(batch, "data", path), _field(batch, key, path)
    if not isinstance(labels, list) or not all(type(label) is int for label in labels):
        raise corrupt(path, f"its {key} are no plain list of whole numbers", "a batch of the official archive")
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.shape != (len(labels), 3072):
        what = f"shape {images.shape}" if isinstance(images, np.ndarray) else f"type {type(images).__name__}"
        raise corrupt(path, f"images of {what} with {len(labels)} labels", "bytes [n, 3072], n labels")
    return images.reshape(-1, 3, 32, 32), np.array(labels, dtype=np.int64)


def _field(fields: Any, name: str, path: Path) -> Any:
    """A field of an archive's dict, whose keys are bytes if Python 2 wrote it."""
    if isinstance(fields, dict):
        for key in (name, name.encode()):
            if key in fields:
                return fields[key]
    raise corrupt(path, f"has no field {name!r}", "a batch of the official archive")
