"""Finding, fetching and reading files, with errors that name the file."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import urllib.error
import urllib.request
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from polyrhythm.base.errors import UserError


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


def content(path: Path) -> bytes:
    """A file's bytes, unpacked if its name ends in .gz."""
    try:
        raw = path.read_bytes()
        return gzip.decompress(raw) if path.suffix == ".gz" else raw
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise corrupt(path, f"gzip stream is damaged ({error})") from None
    except OSError as error:
        raise UserError(
            f"cannot read {path}: {error.strerror or error}",
            expected="a file that can be read",
            why="the data is read from there",
            fix="check the path and its permissions",
        ) from None


def corrupt(path: Path, found: str, expected: str = "the whole, undamaged file") -> UserError:
    """The error for a file that is not what it should be."""
    return UserError(
        f"{path}: {found}",
        expected=expected,
        why="a run on damaged data would give numbers that mean nothing",
        fix="delete the file and fetch or copy it again",
    )
