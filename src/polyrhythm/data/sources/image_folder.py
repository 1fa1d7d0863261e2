"""Folders of pictures: one for each class, in folders for clients and for training and test where there are such."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from polyrhythm.base.errors import UserError
from polyrhythm.data.collection import Collection
from polyrhythm.data.sources.files import corrupt, existing
from polyrhythm.data.sources.memory import arrays
from polyrhythm.data.sources.pictures import read_pictures

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}
_NOT_DATA = {"__MACOSX", "Thumbs.db", "desktop.ini"}
_TRAIN, _TESTS = ("train", "training"), ("test", "testing", "val", "valid", "validation")
_SHOWN = 5


class Found(NamedTuple):
    """The pictures of a part of the data, by their folders alone; nothing was opened."""

    files: list[Path]
    classes: list[str]
    clients: list[str]


def image_folder(
    path: str | Path,
    *,
    clients: bool = False,
    size: int | None = None,
    test: float = 0.2,
    scaling: str = "none",
    augment: bool = False,
    classes: Sequence[object] | None = None,
    name: str = "",
) -> Collection:
    """Pictures in one folder for each class: CLASS/*.png, or train/CLASS/*.png beside test/CLASS/*.png.

    With clients=True a folder for each client stands above those of its classes, CLIENT/CLASS/*.png, and the column
    "client" has their names. Hidden files and folders, those without pictures, and files that are none are left out,
    and a note says so, as it does of transparency. Without a test folder val serves, and without either a share of the
    pictures. Folders alone say the labels; each picture is read once and held as bytes.

    Args:
        path: the folder.
        clients: whether the folders of classes stand in folders of clients; partition with `by_column(column=client)`.
        size: makes all pictures size x size; None takes pictures of one size as they are.
        test: share to hold out if there is no folder for it, spread over the classes, the same for every seed.
        scaling: "none" (bytes still become [0, 1]), or "train" for zero mean and unit variance of each colour over all
            training pictures.
        augment: random crop and flip in training.
        classes: the folders in the order of class numbers; None sorts those that occur.
        name: of the collection; the folder's name by default.

    Raises:
        UserError: no pictures where they should be, one that is damaged, or of several sizes.

    Reference: the folder's own.
    """
    place = existing(path, what="a folder with one folder for each class")
    if not place.is_dir():
        raise corrupt(
            place, "is a file", "a folder with one folder for each class", fix="unpack it, and give its folder"
        )
    if size is not None and size < 1:
        raise UserError(
            f"size = {size}",
            expected="1 or more",
            why="it is the pictures' width and height",
            fix="size=64, for instance",
        )
    left_out: list[str] = []
    parts = {folder.name.lower(): folder for folder in _folders(place, [])}
    training = next((parts[name] for name in _TRAIN if name in parts), None)
    tests = [parts[name] for name in _TESTS if name in parts]
    split = training is not None and (bool(tests) or len(parts) == 1)
    train = _found(training if split and training is not None else place, clients, left_out)
    tested = _found(tests[0], clients, left_out) if split and tests else None
    notes = [f"left out, as no pictures: {_some(left_out)}"] if left_out else []
    if split and len(parts) > 2:
        used = {folder.name for folder in (training, *tests[:1]) if folder is not None}
        notes.append(f"not used: {_some(sorted({folder.name for folder in parts.values()} - used))}")
    images, transparent = read_pictures(train.files, size=size)
    test_images = None
    if tested is not None:
        test_images, more = read_pictures(tested.files, size=size)
        transparent += more
    if transparent:
        of = len(train.files) + (len(tested.files) if tested is not None else 0)
        notes.append(
            f"{transparent:,} of {of:,} pictures have transparent parts: their alpha channel is left out, and "
            "the colours are taken as they are written"
        )
    return arrays(
        images,
        train.classes,
        test=test if tested is None or test_images is None else (test_images, tested.classes),
        classes=classes,
        scaling=scaling,
        augment=augment,
        columns={"client": train.clients} if clients else None,
        test_columns={"client": tested.clients} if clients and tested is not None else None,
        name=name or place.resolve().name,
        notes=tuple(notes),
    )


def _found(place: Path, clients: bool, left_out: list[str]) -> Found:
    """The pictures of one part, in the order of their names."""
    found = Found([], [], [])
    for holder in _folders(place, left_out) if clients else [place]:
        for folder in _folders(holder, left_out):
            files = [
                file
                for file in sorted(folder.rglob("*"))
                if file.is_file() and not _hidden(file.relative_to(folder)) and file.suffix.lower() in SUFFIXES
            ]
            # What else is there: other files, pipes, and links to folders, which are not followed.
            others = sum(file.is_symlink() or not file.is_dir() for file in folder.rglob("*"))
            others -= len(files)
            if not files or others:
                shown = folder.relative_to(place).as_posix()
                left_out.append(f"{others} files in {shown}" if others else f"the empty folder {shown}")
            found.files.extend(files)
            found.classes.extend([folder.name] * len(files))
            found.clients.extend([holder.name] * len(files))
    if not found.files:
        form = "CLIENT/CLASS/*.png" if clients else "CLASS/*.png"
        kinds = Counter(file.suffix for file in place.rglob("*") if file.is_file()).most_common(3)
        has = f", only files ending in {', '.join(repr(kind) for kind, _ in kinds)}" if kinds else ""
        raise corrupt(
            place,
            f"has no pictures in folders {form}{has}",
            f"{form}, ending in {', '.join(sorted(SUFFIXES))}",
            fix="check that it is this folder you mean; clients=True if folders of clients hold those of classes",
        )
    return found


def _folders(place: Path, left_out: list[str]) -> list[Path]:
    """The folders in one, and beside them what is none or hidden."""
    folders = []
    for entry in sorted(place.iterdir()):
        if entry.is_dir() and not _hidden(Path(entry.name)):
            folders.append(entry)
        else:
            left_out.append(entry.name)
    return folders


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") or part in _NOT_DATA for part in path.parts)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else "")
