"""MNIST and Fashion-MNIST: IDX files, plain or gzipped."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from polyrhythm.data.collection import Collection
from polyrhythm.data.sources.files import (
    Download,
    cache_folder,
    check_unpacked,
    corrupt,
    existing,
    fetched,
    located,
    opened,
)
from polyrhythm.data.sources.images import Statistics, image_collection, image_transforms

DEBIAN_FASHION = Path("/usr/share/datasets/fashion-mnist")
MNIST_REFERENCE = 'LeCun et al., "Gradient-based learning applied to document recognition", 1998'
FASHION_REFERENCE = 'Xiao, Rasul and Vollgraf, "Fashion-MNIST", 2017 (MIT)'
FASHION_CLASSES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
MNIST_SHA256 = (
    "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
)
FASHION_SHA256 = (
    "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
    "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
    "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
    "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
)
MNIST_URLS = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")
FASHION_URLS = (
    "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
)
MNIST_STATISTICS: Statistics = ((0.1307,), (0.3081,))
FASHION_STATISTICS: Statistics = ((0.2860,), (0.3530,))


def mnist(
    folder: str | Path | None = None, *, scaling: str = "half", pad: int = 0, augment: bool = False
) -> Collection:
    """70,000 handwritten digits of 28 x 28 pixels, 10 classes; 60,000 to train, 10,000 to test.

    Args:
        folder: holds the four IDX files, plain or .gz; else the cache is looked into, then they are downloaded.
        scaling: "half" gives [-1, 1], "unit" [0, 1], "standard" the published mean and standard deviation.
        pad: pixels of black added on each side; 2 gives 32 x 32.
        augment: random crop and flip in training.

    Reference: LeCun et al., "Gradient-based learning applied to document recognition", 1998.
    """
    parts = _read("mnist", folder, (), MNIST_URLS, MNIST_SHA256)
    return image_collection(
        "mnist",
        (parts[0][:, None], parts[1]),
        (parts[2][:, None], parts[3]),
        transforms=image_transforms(scaling, pad=pad, standard=MNIST_STATISTICS),
        augment=augment,
        reference=MNIST_REFERENCE,
    )


def fashion_mnist(
    folder: str | Path | None = None, *, scaling: str = "half", pad: int = 0, augment: bool = False
) -> Collection:
    """70,000 grey pictures of clothes, 28 x 28 pixels, 10 classes; 60,000 to train, 10,000 to test.

    Args:
        folder: holds the four IDX files, plain or .gz; else the folder of the Debian package dataset-fashion-mnist and
            the cache are looked into, then they are downloaded.
        scaling: "half" gives [-1, 1] as CCFL has it, "unit" [0, 1], "standard" the published mean and standard
            deviation.
        pad: pixels of black added on each side; 2 gives 32 x 32.
        augment: random crop and flip in training.

    Reference: Xiao, Rasul and Vollgraf, "Fashion-MNIST: a Novel Image Dataset for Benchmarking", 2017.
    """
    parts = _read("fashion-mnist", folder, (DEBIAN_FASHION,), FASHION_URLS, FASHION_SHA256)
    return image_collection(
        "fashion-mnist",
        (parts[0][:, None], parts[1]),
        (parts[2][:, None], parts[3]),
        transforms=image_transforms(scaling, pad=pad, standard=FASHION_STATISTICS),
        augment=augment,
        classes=range(10),
        class_names=FASHION_CLASSES,
        reference=FASHION_REFERENCE,
    )


def read_idx(path: Path) -> np.ndarray:
    """Reads one IDX file of bytes, plain or .gz.

    Raises:
        UserError: not an IDX file of bytes, or cut off.
    """
    with opened(path) as file:
        begin = file.read(4)
        if len(begin) < 4 or begin[:3] != b"\x00\x00\x08" or not 1 <= begin[3] <= 4:
            raise corrupt(
                path, f"begins with {begin.hex() or 'nothing'}", "an IDX file of bytes: 000008 and the number of axes"
            )
        header = file.read(4 * begin[3])
        if len(header) < 4 * begin[3]:
            raise corrupt(path, f"ends after {4 + len(header):,} bytes, inside its header")
        shape = struct.unpack(f">{begin[3]}I", header)
        wanted = math.prod(shape)  # of Python's integers, which do not overflow
        if not wanted:
            raise corrupt(path, f"has shape {shape}", "at least one entry")
        check_unpacked(path, path.stat().st_size, wanted)
        # One more byte than there should be, to see whether there are more.
        raw = file.read(wanted + 1)
    if len(raw) != wanted:
        more = "more than " if len(raw) > wanted else ""
        raise corrupt(path, f"{more}{min(len(raw), wanted):,} bytes for shape {shape}", f"{wanted:,} bytes")
    return np.frombuffer(raw, dtype=np.uint8).reshape(shape).copy()


def _located(name: str, folders: Sequence[Path]) -> Path | None:
    # Some copies have a dot in place of the second hyphen.
    return located([n + end for n in (name, name.replace("-idx", ".idx")) for end in ("", ".gz")], folders)


def at_hand(name: Literal["mnist", "fashion-mnist"]) -> bool:
    """Whether a data set is on this machine. Nothing is read or fetched."""
    folders = [*([DEBIAN_FASHION] if name == "fashion-mnist" else []), cache_folder(name)]
    return all(_located(file, folders) for file in FILES)


def _read(
    data: str, folder: str | Path | None, known: tuple[Path, ...], urls: tuple[str, ...], sums: tuple[str, ...]
) -> list[np.ndarray]:
    given = [existing(folder, what=f"a folder with the IDX files of {data}")] if folder is not None else []
    parts = []
    for name, sha256 in zip(FILES, sums, strict=True):
        path = _located(name, given or [*known, cache_folder(data)])
        if path is None and given:
            raise corrupt(given[0], f"has no {name}", f"the four IDX files of {data}, plain or .gz")
        if path is None:
            download = Download(f"{name}.gz", tuple(f"{url}{name}.gz" for url in urls), sha256)
            path = fetched(download, cache_folder(data), data=data)
        parts.append(read_idx(path))
        if parts[-1].ndim != (3 if "images" in name else 1):
            raise corrupt(path, f"has shape {parts[-1].shape}", "images of 3 axes, labels of 1")
    return parts
