"""Finding, fetching and reading files, with errors that name the file."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import hashlib
import io
import os
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple, cast, final

from polyrhythm.base.errors import UserError
from polyrhythm.base.input_file import check_file

SMALL = 2**24
"""Bytes that any packed file may unpack to."""
MOST_TIMES = 100
"""How many times its own size a larger one may unpack to. Zeros pack to a thousandth, data to a fifth or a fiftieth."""
_BLOCK = 2**20
_PACKED: dict[bytes, Callable[..., Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open}
_DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile)


class Download(NamedTuple):
    """A file that can be fetched: its name, the addresses to try in turn, and what it must be."""

    name: str
    urls: tuple[str, ...]
    sha256: str


def cache_folder(name: str) -> Path:
    """Where downloads of one data set are kept: under $POLYRHYTHM_CACHE, or ~/.cache/polyrhythm."""
    root = os.environ.get("POLYRHYTHM_CACHE")
    return (Path(root) if root else Path.home() / ".cache" / "polyrhythm") / name


def existing(path: str | Path, *, what: str) -> Path:
    """The path, if there is something there."""
    found = Path(path).expanduser()
    if not found.exists():
        raise UserError(
            f"no such file or folder: {found}",
            expected=what,
            why="the data is read from there",
            fix="check the path; relative paths start at the folder you run in",
        )
    return found


def located(names: Sequence[str], folders: Sequence[Path]) -> Path | None:
    """The first of `names` that is in the first of `folders` to have one."""
    return next((folder / name for folder in folders for name in names if (folder / name).is_file()), None)


def fetched(download: Download, folder: Path, *, data: str, timeout: float = 60.0) -> Path:
    """Downloads a file into `folder` unless it is there, and checks it before it gets its name.

    Args:
        download: what to fetch.
        folder: where it is kept.
        data: name of the data set, for messages.
        timeout: seconds without an answer before an address is given up.

    Raises:
        UserError: no address answered with the right bytes.
    """
    target = folder / download.name
    if target.is_file():
        return target
    problems, was_there = [], folder.exists()
    for url in download.urls:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with urllib.request.urlopen(url, timeout=timeout) as answer:
                content = answer.read()
        except (OSError, urllib.error.URLError) as error:
            problems.append(f"{url}: {error}")
            continue
        digest = hashlib.sha256(content).hexdigest()
        if digest != download.sha256:
            problems.append(f"{url}: SHA-256 {digest} in place of {download.sha256}")
            continue
        partial = target.with_name(f"{target.name}.{os.getpid()}.part")
        partial.write_bytes(content)
        partial.replace(target)
        return target
    if not was_there:
        with contextlib.suppress(OSError):
            folder.rmdir()  # which is empty
    raise UserError(
        f"{data}: {download.name} is not on this machine and could not be downloaded ({'; '.join(problems)})",
        expected=f"the file in folder=, in {folder}, or a connection to fetch it",
        why="the data set is not part of this package",
        fix="give folder=, the folder that holds the original files, or copy them into the one named above",
    )


def content(path: Path, most: int | None = None) -> bytes:
    """A file's bytes, unpacked if it is packed; no more than `most` of them, if that is given."""
    with opened(path) as file:
        return file.read() if most is None else file.read(most)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """A file to read bytes from, unpacked on the way if it was packed by gzip or bzip2.

    Raises:
        UserError: it cannot be read, is damaged, or unpacks to far more than data do.
    """
    try:
        check_file(path)
        with path.open("rb") as file:
            begin = file.read(8)
            file.seek(0)
            unpack = next((unpack for magic, unpack in _PACKED.items() if begin.startswith(magic)), None)
            if unpack is None and path.suffix == ".gz":
                raise gzip.BadGzipFile(f"it begins with {begin.hex() or 'nothing'}")
            if unpack is None:
                yield file
                return
            with unpack(file, "rb") as unpacked, _Reader(_Bounded(unpacked, file, path)) as bounded:
                yield cast(BinaryIO, bounded)
    except _DAMAGED as error:
        kind = "gzip" if path.suffix == ".gz" else "packed"
        raise corrupt(path, f"{kind} stream is damaged ({error})") from None
    except OSError as error:
        raise UserError(
            f"cannot read {path}: {error.strerror or error}",
            expected="a file that can be read",
            why="the data is read from there",
            fix="check the path and its permissions",
        ) from None


@final
class _Bounded(io.RawIOBase):
    """What comes out of a packed file, until it is too much for what went in."""

    def __init__(self, unpacked: IO[bytes], packed: IO[bytes], path: Path) -> None:
        self._unpacked, self._packed, self._path = unpacked, packed, path

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._unpacked.seek(offset, whence)

    def tell(self) -> int:
        return self._unpacked.tell()

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        read = self._unpacked.read(min(len(buffer), _BLOCK))
        buffer[: len(read)] = read
        check_unpacked(self._path, self._packed.tell(), self._unpacked.tell())
        return len(read)


@final
class _Reader(io.BufferedReader):
    """Reads block by block: the memory for all that is asked for is not taken before it is there."""

    def read(self, size: int | None = -1, /) -> bytes:
        left, parts = -1 if size is None else size, []
        while left and (part := super().read(_BLOCK if left < 0 else min(left, _BLOCK))):
            parts.append(part)
            left -= len(part) if left > 0 else 0
        return b"".join(parts)


def check_unpacked(path: Path, packed: int, unpacked: int) -> None:
    """Refuses what would fill memory from a small file: so many bytes out of so many."""
    if unpacked > SMALL and unpacked > MOST_TIMES * packed:
        raise UserError(
            f"{path}: {packed:,} bytes that become {unpacked:,} or more",
            expected=f"at most {MOST_TIMES} times as many",
            why="data do not pack so well, and such a file is made to fill a machine's memory",
            fix="get it from where it was published; if it is your own, store it unpacked",
        )


def corrupt(path: Path, found: str, expected: str = "the whole, undamaged file", fix: str = "") -> UserError:
    """The error for a file that is not what it should be."""
    what = "delete it: then it is fetched again"
    if not path.is_relative_to(cache_folder("")):
        what = "check that it is this file you mean, and whole"
    return UserError(
        f"{path}: {found}",
        expected=expected,
        why="a run on damaged data would give numbers that mean nothing",
        fix=fix or what,
    )
