"""NumPy `.npz` files with training and test arrays."""

from __future__ import annotations

import contextlib
import math
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, final

import numpy as np

from polyrhythm.base.input_file import check_file
from polyrhythm.data.collection import Collection
from polyrhythm.data.items import check_lengths
from polyrhythm.data.sources.files import check_unpacked, corrupt, existing
from polyrhythm.data.sources.memory import Arrays, arrays

_MOST_ARRAYS = 10_000
# A header is an expression in Python, of which NumPy lets its parsers' errors through.
_DAMAGED = (
    *(
        OSError,
        ValueError,
        EOFError,
        MemoryError,
        RuntimeError,
        SyntaxError,
    ),  # a RuntimeError if a password is asked for
    *(zipfile.BadZipFile, zlib.error, tokenize.TokenError),
)


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
    natural clients. Images are read as `arrays` reads them.

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
    held: Arrays | float = (found.x_test, found.y_test) if found.tested else test
    return arrays(
        found.x_train,
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
    with stored_arrays(place) as stored:
        names = {part: next((n for n in (f"{part}_train", part) if n in stored.shapes), "") for part in "xy"}
        if not all(names.values()):
            raise corrupt(
                place,
                f"has no x_train and y_train, only {', '.join(list(stored.shapes)[:20]) or 'nothing'}",
                "x_train and y_train",
            )
        for part in ("test", "val"):
            here = [n for n in (f"x_{part}", f"y_{part}") if n in stored.shapes]
            if len(here) == 1:
                raise corrupt(place, f"has {here[0]} alone", f"x_{part} and y_{part}, or neither of them")
        for one, other in (("x", "y"), ("x_test", "y_test"), ("x_val", "y_val")):
            rows = [stored.shapes.get(names.get(name, name), ())[:1] for name in (one, other)]
            if all(rows):  # as their headers say, before any of them is unpacked
                check_lengths(rows[0][0], rows[1][0])
        x, y = stored.read(names["x"]), stored.read(names["y"])
        tested = next((p for p in ("test", "val") if f"x_{p}" in stored.shapes and f"y_{p}" in stored.shapes), "")
        tx, ty = (stored.read(f"x_{tested}"), stored.read(f"y_{tested}")) if tested else (x[:0], y[:0])

        def keys(ending: str, rows: int) -> dict[str, np.ndarray]:
            named = (n for n, shape in stored.shapes.items() if n.endswith(ending) and shape == (rows,))
            return {n.removesuffix(ending): stored.read(n) for n in named if n not in (f"x{ending}", f"y{ending}")}

        return NpzArrays(
            x_train=x,
            y_train=y,
            x_test=tx,
            y_test=ty,
            columns=keys("_train", len(y)),
            test_columns=keys(f"_{tested}", len(ty)) if tested else {},
            tested=bool(tested),
        )


@final
class Stored:
    """The arrays of an open .npz file: their shapes, as their headers say, and each when it is asked for."""

    def __init__(self, place: Path, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self.shapes: dict[str, tuple[int, ...]] = {}
        members = archive.infolist()
        check_unpacked(place, place.stat().st_size, sum(member.file_size for member in members))
        if len(members) > _MOST_ARRAYS:
            raise ValueError(f"{len(members):,} arrays, and {_MOST_ARRAYS:,} at most are read")
        names = [member.filename for member in members]
        if twice := next((name for name in names if names.count(name) > 1), ""):
            raise ValueError(f"{twice!r} is in it more than once, and which is meant nobody can say")
        for member in members:
            with archive.open(member) as file:  # any: its name stands twice in the file, and must be the same
                if member.filename.endswith(".npy"):
                    self.shapes[member.filename.removesuffix(".npy")] = self._header(file)[0]

    def read(self, name: str) -> np.ndarray:
        """One array, whose memory is taken after it was found to be no more than there is in the file."""
        member = self._archive.getinfo(f"{name}.npy")
        with self._archive.open(member) as file:
            shape, by_columns, dtype = self._header(file)
            if dtype.hasobject:
                raise ValueError(f"{name} holds Python objects, which could run any command")
            size = math.prod(shape) * dtype.itemsize  # of Python's integers, which do not overflow
            if size > member.file_size:
                raise ValueError(f"{name}: {member.file_size:,} bytes for an array of shape {shape}")
            raw = file.read(size)
        if len(raw) != size:
            raise ValueError(f"{name}: {len(raw):,} bytes for an array of shape {shape}")
        return np.frombuffer(bytearray(raw), dtype=dtype).reshape(shape, order="F" if by_columns else "C")

    @staticmethod
    def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
        major, _ = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
        shape, by_columns, dtype = read(file)
        if not all(0 <= size < 2**63 for size in shape):
            raise ValueError(f"an array of shape {shape}")
        return shape, by_columns, dtype


@contextlib.contextmanager
def stored_arrays(place: Path) -> Iterator[Stored]:
    """The arrays of an .npz file.

    Raises:
        UserError: it is damaged, holds Python objects, or would take far more memory than its size.
    """
    try:
        check_file(place)
        with zipfile.ZipFile(place) as archive:
            yield Stored(place, archive)
    except KeyError as error:
        raise corrupt(place, f"has no array {error.args[0]}", "an .npz file of plain arrays") from None
    except _DAMAGED as error:
        raise corrupt(
            place,
            f"cannot be read ({' '.join(str(error).split())[:200]})",
            "an .npz file of plain arrays",
            fix=_instead(place),
        ) from None


def _instead(place: Path) -> str:
    if ".csv" in place.suffixes or place.suffix.lower() in (".tsv", ".txt", ".parquet", ".pq"):
        return f"table(path={place}, target=...) reads tables"
    return "np.savez writes such a file: np.savez(path, x_train=..., y_train=...)"
