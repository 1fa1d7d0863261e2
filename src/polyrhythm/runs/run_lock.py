"""Tells a run that is going on from one whose process was killed.

A process holds a lock on a file in the run's folder for as long as it lives; the system drops the lock however the
process ends, SIGKILL included. Where the system has no such locks (Windows) a killed run keeps its status "running".
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from polyrhythm.base.errors import UserError
from polyrhythm.base.input_file import check_file

if sys.platform != "win32":
    import fcntl

_FILE = "running.lock"
_TRIES, _PAUSE = 5, 0.01  # seconds


def hold(folder: Path) -> IO[bytes]:
    """Marks the run of a folder as going on until `release`, or until this process ends.

    Raises:
        BlockingIOError: it is going on in another process.
    """
    file = (folder / _FILE).open("wb")
    if sys.platform != "win32":
        try:
            _lock(file)
        except BaseException:
            file.close()
            raise
    return file


def _lock(file: IO[bytes]) -> None:
    for _ in range(_TRIES):
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # perhaps by somebody who only looks, which takes microseconds
            time.sleep(_PAUSE)
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def release(folder: Path, file: IO[bytes]) -> None:
    """Ends the mark."""
    file.close()
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        (folder / _FILE).unlink()


@contextlib.contextmanager
def alone(folder: Path, otherwise: UserError) -> Iterator[None]:
    """Keeps other processes from what is done in the block.

    Args:
        folder: stands for it; it is there only meanwhile.
        otherwise: raised if another process is at it.

    Raises:
        UserError: that.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        lock = hold(folder)
    except BlockingIOError:
        raise otherwise from None
    try:
        yield
    finally:
        release(folder, lock)
        with contextlib.suppress(OSError):
            folder.rmdir()


def is_alive(folder: Path) -> bool:
    """Whether the process that records the run of a folder still lives."""
    path = folder / _FILE
    if sys.platform == "win32":
        return path.exists()
    try:
        check_file(path)
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False
