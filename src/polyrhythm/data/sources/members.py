"""Files of one kind in a folder, or in a zip archive as data sets are published."""

from __future__ import annotations

import contextlib
import io
import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from polyrhythm.base.input_file import check_file
from polyrhythm.data.sources.files import check_unpacked, content, corrupt, existing

LARGEST = 2**28
"""Bytes of a file in an archive, at most."""
MOST = 100_000
"""Files that are looked at, at most."""
_DAMAGED = (OSError, RuntimeError, ValueError, EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error)


def members(path: str | Path, wanted: str, *, what: str, raw: bool = False) -> Iterator[tuple[str, bytes]]:
    """The files whose name fits a pattern, each with its bytes, in the order of their names.

    Args:
        path: a folder, of which folders inside are searched too; or a .zip, of which a .zip inside is searched too.
        wanted: a regular expression of the whole name, without folders.
        what: the files in words, for messages.
        raw: whether a file that is packed in a folder, such as x.gz, is given as it lies there.

    Raises:
        UserError: nothing there, a damaged archive, a file twice, or none that fits.
    """
    place, pattern = existing(path, what=what), re.compile(wanted)
    found = _of_folder(place, pattern, raw) if place.is_dir() else _of_zip(place, pattern)
    last = ""
    for name, held in found:
        if name == last:
            raise corrupt(place, f"has {name} twice", f"each file once: {what}")
        last = name
        yield name, held
    if not last:
        raise corrupt(place, "has no such files", what)


def _of_folder(place: Path, pattern: re.Pattern[str], raw: bool) -> Iterator[tuple[str, bytes]]:
    files = [file for file, _ in zip(place.rglob("*"), range(MOST), strict=False) if pattern.fullmatch(file.name)]
    for file in sorted(files, key=lambda file: (file.name, file)):
        yield file.name, _bytes(file) if raw else content(file, LARGEST)


def _bytes(file: Path) -> bytes:
    try:
        check_file(file)
        with file.open("rb") as lying:
            return lying.read(LARGEST)
    except OSError as error:
        raise corrupt(file, f"cannot be read ({error})") from None


def _of_zip(place: Path, pattern: re.Pattern[str]) -> Iterator[tuple[str, bytes]]:
    with _opened(place) as archive:
        packed = [member for member in archive.infolist()[:MOST] if not member.is_dir()]
        inner = [member for member in packed if member.filename.endswith(".zip")]
        if not any(pattern.fullmatch(_last(member)) for member in packed) and len(inner) == 1:
            with zipfile.ZipFile(io.BytesIO(_read(archive, inner[0]))) as nested:
                check_unpacked(place, place.stat().st_size, sum(member.file_size for member in nested.infolist()))
                yield from _fitting(nested, pattern)
        else:
            yield from _fitting(archive, pattern)


def _fitting(archive: zipfile.ZipFile, pattern: re.Pattern[str]) -> Iterator[tuple[str, bytes]]:
    fitting = [member for member in archive.infolist()[:MOST] if pattern.fullmatch(_last(member))]
    for member in sorted(fitting, key=lambda member: (_last(member), member.filename)):
        yield _last(member), _read(archive, member)


@contextlib.contextmanager
def _opened(place: Path) -> Iterator[zipfile.ZipFile]:
    try:
        check_file(place)
        with zipfile.ZipFile(place) as archive:
            check_unpacked(place, place.stat().st_size, sum(member.file_size for member in archive.infolist()))
            yield archive
    except _DAMAGED as error:
        raise corrupt(place, f"cannot be read ({error})", "a .zip archive, or the folder that it unpacks to") from None


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    if member.file_size > LARGEST:
        raise ValueError(f"{member.filename} has {member.file_size:,} bytes, and {LARGEST:,} at most are read")
    with archive.open(member) as file:
        return file.read(member.file_size)


def _last(member: zipfile.ZipInfo) -> str:
    return member.filename.rpartition("/")[2]
